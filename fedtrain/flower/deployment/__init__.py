"""Real Flower processes on this machine: start them, watch them, stop them."""
