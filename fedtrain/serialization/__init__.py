"""Tensors and messages as bytes, and files with a checksum; no pickles."""
