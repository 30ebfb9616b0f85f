"""Whose data is it: how a data set becomes the clients' data."""
