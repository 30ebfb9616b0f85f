"""Chance as a function of its purpose: the clients' data and the networks never share a stream.

Eq. 10 wants v independent of the data. Torch's generator keeps 32 bits of a seed, so two purposes that both seed it
meet somewhere, however they are salted. The data come from another generator altogether (numpy's PCG64), which hashes
every word of its key; the networks, the deep one of X1 too, keep torch's.
"""

from __future__ import annotations

import numpy as np
import torch

from theory.errors import InputError

SEED_LIMIT = 2**32
"""Torch's generator tells so many seeds apart."""
DATA_KEY = int.from_bytes(b"data", "big")
"""The first word of the key: the directions of ``estimate_sphere_average`` come from the same kind of generator."""
FOLD_KEY = int.from_bytes(b"fold", "big")
"""Likewise of the folds."""


def check_seed(seed: int, draws: int = 1) -> None:
    """Refuse a seed that another seed would stand for, or from which so many draws could not count on."""
    if not 0 <= seed <= SEED_LIMIT - draws:
        raise InputError(f"seed is {seed}; choose it between 0 and {SEED_LIMIT - draws}")


def make_data_rng(seed: int, client: int) -> np.random.Generator:
    """For the covariance, inputs and targets of one client."""
    check_seed(seed)
    return np.random.default_rng([DATA_KEY, seed, client])


def make_fold_rng(seed: int) -> np.random.Generator:
    """For who is predicted from whom."""
    check_seed(seed)
    return np.random.default_rng([FOLD_KEY, seed])


def make_network_rng(seed: int) -> torch.Generator:
    """For v and c of a network; whoever draws several counts on from the study's seed."""
    return torch.Generator().manual_seed(seed)
