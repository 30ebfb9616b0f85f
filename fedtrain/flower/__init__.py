"""Flower as the engine: clients that are nodes of a simulation or of a deployment; needs ``fedco2[flower]``."""
