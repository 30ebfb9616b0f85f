"""Mutated and hostile files for every reader, and a watch on what the readers do with them."""
