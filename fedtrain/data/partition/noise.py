"""Feature skew by noise: each client sees the images with more noise than the one before."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from theory.errors import InputError


def compute_noise_levels(clients: int, sigma_max: float) -> NDArray[np.float64]:
    """σ_i = σ_M · i / (N - 1): client 0 sees clean images, the last client the noisiest."""
    if clients < 1:
        raise InputError(f"clients is {clients}; at least one client is needed")
    if not 0 <= sigma_max < np.inf:
        raise InputError(f"data.noise is {sigma_max}; choose a finite standard deviation, 0 or more")
    return sigma_max * np.arange(clients) / max(clients - 1, 1)
