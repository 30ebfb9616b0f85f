"""What a verification will cost, predicted before it starts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from theory.claims.kernels import MAX_JACOBIAN_ENTRIES
from theory.config import DTYPES, ProblemSize, TheoryConfig
from theory.errors import InputError
from theory.kernels.closed_form import choose_chunk_size

FIGURE_KERNELS, FIGURE_CLIENTS = 48, 20
"""Kernels computed for the figures of draws and of client counts, and the largest client count shown."""
WORKSPACE_BYTES = 2**27
"""Bytes for the nodes of a quadrature, and for memory that the allocator does not return."""
REMEDIES = {
    "samples": ("lower samples or clients", ("samples", "clients")),
    "width": ("lower width, or use dtype float32", ("width", "dtype")),
    "dim": ("lower dim or clients", ("dim", "clients")),
}
"""What the memory grows with -> what to do about it, and the settings to change."""
USER_DATA_REMEDIES: dict[str, tuple[str, tuple[str, ...]]] = REMEDIES | {
    "samples": ("give fewer samples in your data", ()),
    "dim": ("project X to fewer dimensions, or give fewer clients", ()),
}


@dataclass(frozen=True)
class PredictedCost:
    """The memory and time that a run will need, predicted before it starts."""

    bytes: int
    seconds: float
    remedy: str
    """What reduces the memory most."""
    options: tuple[str, ...] = ()
    """The settings that the remedy names."""


def predict_cost(setting: TheoryConfig, claims: set[str], figures: bool = True) -> PredictedCost:
    """Predict memory well enough to refuse what cannot fit, and time within a factor of two or three.

    The matrices are n x n, the covariances N x d x d, the descent keeps hidden activations n x m and offline weights
    N x m x d, X1's largest Jacobian is n x 512 d. No data are drawn. ``figures`` adds more clients and draws.
    """
    size, m, item = setting.size, setting.width, DTYPES[setting.dtype].itemsize
    n, N, d = size.n, size.N, size.d
    shown = max(N, FIGURE_CLIENTS) if figures and not setting.dataset and n / N * FIGURE_CLIENTS <= 1000 else N
    descends = bool(claims & {"D1", "D2", "D3", "C1", "C2"})
    chunk = min(setting.chunk or choose_chunk_size(n, N, d), m)
    parts = {
        "samples": 8 * max(n * n * (32 + 96 * ("K3" in claims)), 16 * (n * shown // N) ** 2)
        + item * chunk * (7 * n + 4 * N * d)
        + ("X1" in claims) * 8 * 3 * n * 512 * d,
        "width": item * m * (d * (shown + 2) + 2 * shown)
        + descends * item * (4 * n * m + 24 * N * m * d)
        + bool(claims & {"K1", "D1"}) * item * 3 * min(n * m * (d + 1), MAX_JACOBIAN_ENTRIES),
        "dim": 8 * d * d * (6 * shown + 24) + ("K3" in claims) * 8 * 3 * 2**15 * d,
    }
    rate, pace = _measure_compute_rates(DTYPES[setting.dtype])
    gram = 3.0 * n * n * m + 2.0 * n * d * m * (N + 1)
    grams = 8 + FIGURE_KERNELS * figures + 16 * ("K4" in claims) + 60 * ("C1" in claims)
    work = (
        4 * grams * gram / rate + (40.0 + 160.0 * ("O5" in claims)) * n**3 / rate
    )  # small products run at a quarter of full speed
    if claims & {"D2", "C1", "C2"}:
        work += setting.steps * 220.0 * n * m * (1 + d / 20) / pace  # five readings, two networks, some 20 passes each
    if claims & {"K3", "K4", "C1", "C2"} or (figures and "D2" in claims):  # the figure of D2 draws C2's bound
        work += (1 + ("K3" in claims)) * _predict_limit_seconds(size, rate, pace)
    largest = max(parts, key=lambda name: parts[name])
    remedy, options = (USER_DATA_REMEDIES if setting.dataset else REMEDIES)[largest]
    return PredictedCost(WORKSPACE_BYTES + sum(parts.values()), setting.draws * work, remedy, options)


def _predict_limit_seconds(size: ProblemSize, rate: float, pace: float) -> float:
    """Predict the quadrature of V^inf: some ten d x d products at every node of each pair of clients, then the entries.

    The integrand narrows as 1/√d, so the nodes are doubled once more from d = 20 on, and again from about 320.
    """
    n, N, d = size.n, size.N, size.d
    if size.isotropic:
        return 0.0
    nodes = 24 + 48 if d == 2 else 24**2 + 48**2 + (d >= 20) * 96**2 + (d > 320) * 192**2
    pairs, entries = N * (N + 1) / 2, n * n * (1 + 1 / N) / 2
    return nodes * (pairs * (8e-6 + 32.0 * d**3 / rate) + 250 * entries / pace)


def _measure_compute_rates(dtype: torch.dtype) -> tuple[float, float]:
    """Measure flops per second of a matrix product, and elements per second of elementwise work, on this machine.

    The best of a few short trials: a busy machine makes some of them slow.
    """

    def time_best(job: Callable[[], object]) -> float:
        times = []
        for _ in range(8):
            start = time.perf_counter()
            job()
            times.append(time.perf_counter() - start)
        return min(times)

    a = torch.ones(512, 512, dtype=dtype)
    return 2 * 512**3 / time_best(lambda: a @ a), 512**2 / time_best(lambda: a * a)


def refuse_if_too_large(needed: int, available: int, remedy: str, options: Sequence[str] = ()) -> None:
    """Refuse a run that does not fit in memory before it starts, rather than after an hour."""
    if needed > 0.9 * available:
        raise InputError(
            f"this needs about {needed / 2**30:.1f} GiB and {available / 2**30:.1f} GiB are free; {remedy}",
            options,
        )
