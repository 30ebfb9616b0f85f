"""What distribution costs, in parts; ``benchmarks/distributed_cost.py`` is the program."""
