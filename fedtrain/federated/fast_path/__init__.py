"""What makes the fast engine fast. Each equals the plain form to rounding; ``--engine plain`` goes without."""
