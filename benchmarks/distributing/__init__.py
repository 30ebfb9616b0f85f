"""What distribution costs, in parts; ``benchmarks/distribution.py`` is the program."""
