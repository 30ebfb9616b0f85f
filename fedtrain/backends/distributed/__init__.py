"""Clients divided among processes, started by torchrun or by fedco2 itself."""
