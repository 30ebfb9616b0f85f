"""Figures of data and of training."""
