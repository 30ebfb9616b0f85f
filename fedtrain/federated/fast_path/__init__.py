"""Faster ways to compute a training step. Each equals the plain step up to rounding; ``--no-fast-path`` turns them off."""
