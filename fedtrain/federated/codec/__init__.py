"""Fewer bytes: what of a matrix is sent, and how its numbers are written; every decoder trusts no byte."""
