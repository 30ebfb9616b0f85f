"""Gradient descent of the paper's networks, real and predicted."""
