"""The parts of `reference.py`: what all twins share, and twins that have a file of their own."""
