"""The parts of benchmarks/few_bytes.py."""
