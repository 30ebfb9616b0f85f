"""Imported data sets on disk, one checked file for each domain."""
