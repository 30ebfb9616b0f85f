"""Random generators keyed by purpose: the clients' data and the networks never share a stream.

Eq. 11 requires v to be independent of the data. Torch's generator keeps only 32 bits of a seed, so two purposes that
both use it collide for some seeds, however they are salted. The data therefore come from a different generator
(numpy's PCG64), which hashes every word of its key; the networks, including the deep one of X1, use torch's.
"""

from __future__ import annotations

import numpy as np
import torch

from theory.errors import InputError

SEED_LIMIT = 2**32
"""The number of seeds that torch's generator can tell apart."""
DATA_KEY = int.from_bytes(b"data", "big")
"""First word of the key; it keeps the data apart from ``estimate_sphere_average``, which also uses PCG64."""
FOLD_KEY = int.from_bytes(b"fold", "big")
"""The same for the folds of a forecast."""


def check_seed(seed: int, draws: int = 1) -> None:
    """Refuse a seed that torch cannot tell from another one, or that has fewer than ``draws`` seeds left from it on."""
    if not 0 <= seed <= SEED_LIMIT - draws:
        raise InputError(f"seed is {seed}; choose it between 0 and {SEED_LIMIT - draws}")


def make_data_rng(seed: int, client: int) -> np.random.Generator:
    """For the covariance, inputs and targets of one client."""
    check_seed(seed)
    return np.random.default_rng([DATA_KEY, seed, client])


def make_fold_rng(seed: int) -> np.random.Generator:
    """For assigning samples to the folds of a forecast."""
    check_seed(seed)
    return np.random.default_rng([FOLD_KEY, seed])


def make_network_rng(seed: int) -> torch.Generator:
    """For v and c of a network; when several are drawn, they use consecutive seeds from the study's on."""
    return torch.Generator().manual_seed(seed)
