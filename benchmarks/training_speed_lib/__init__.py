"""The plain literal loop against fedtrain's backend: what they train, how each makes a round, how it is reported."""
