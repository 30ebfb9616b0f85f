"""Data sets, their partitions, and how they become the data of clients."""
