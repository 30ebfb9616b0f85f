"""The theory of the networks that are really trained: their kernels, spectra, orderings, and the next round."""
