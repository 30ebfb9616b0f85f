"""The plain literal loop against fedtrain's fleet: what they train, how each makes a round, how it is told."""
