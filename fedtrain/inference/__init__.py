"""Trained models put to use: for the clients that they belong to, and for new ones."""
