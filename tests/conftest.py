"""What every test runs under: one thread a worker, no screen, and examples without a deadline."""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is loaded, and for the commands that tests start
os.environ["MPLBACKEND"] = "Agg"

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("fedco2", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("fedco2")
