"""Mixtures of sharing and not sharing: w K_on + (1 - w) K_off of any kernel whose rows belong to clients.

K_off defaults to the client blocks of K_on, as with equal weights. Then λ_min of the mixture is concave in w, largest
at w = 0, and never rises on [0, 1] (claim O5; the proof is in docs/theory/mixtures.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from theory.errors import InputError
from theory.kernels.federated import keep_client_blocks

MANY_ROWS = 400
"""From so many rows on, curves have fewer points: each is an eigenvalue problem."""


FLATNESS = 1e-9
"""Values of λ_min that differ by less, as a share of the largest, differ by rounding."""


@dataclass(frozen=True)
class MixtureCurve:
    """The spectrum of w K_on + (1 - w) K_off over w: 0 is SingleSet, 1/2 the paper's Fed-CO2, 1 FedBN."""

    w: list[float]
    lambda_min: list[float]
    lambda_max: list[float]
    federated_lambda_min: list[float]
    """The same with K_on / N, which is what averaging the clients' steps makes of the shared part (claim D3)."""

    @property
    def best_w(self) -> float:
        """The first w with the largest λ_min."""
        return self.w[self.lambda_min.index(max(self.lambda_min))]

    @property
    def is_flat(self) -> bool:
        """Whether λ_min is the same for every w but for rounding, as it is with one client."""
        return max(self.lambda_min) - min(self.lambda_min) <= FLATNESS * max(self.lambda_min)

    @property
    def smallest_fall(self) -> float:
        """The least λ_min(w) - λ_min(next w): negative where the curve rises."""
        return min(a - b for a, b in pairwise(self.lambda_min))

    @property
    def smallest_bulge(self) -> float:
        """The least height of a point above the chord of its neighbours: negative where the curve is not concave."""
        f = self.lambda_min
        return min(b - (a + c) / 2 for a, b, c in zip(f, f[1:], f[2:], strict=False))


def choose_weights(rows: int) -> list[float]:
    """Equally spaced w in [0, 1], 1/2 among them; dyadic, so that they are exact."""
    steps = 16 if rows <= MANY_ROWS else 8
    return [k / steps for k in range(steps + 1)]


def mix_kernels(online: Tensor, offline: Tensor, w: float) -> Tensor:
    """w K_on + (1 - w) K_off."""
    return w * online + (1 - w) * offline


def trace_mixture(
    online: Tensor,
    owner: Tensor,
    offline: Tensor | None = None,
    weights: Sequence[float] | None = None,
    *,
    averaged: Tensor | None = None,
) -> MixtureCurve:
    """Trace the spectrum of the mixture for kernels of any networks, two-layer or deep.

    ``owner`` names the client of each row of ``online`` (n, n). Without ``offline`` nothing but the client blocks of
    ``online`` is offline. ``weights`` are the values of w, at least three, rising. ``averaged`` is what averaging makes
    of ``online`` where not all of it is shared; without it, ``online`` / N.
    """
    offline = validate_kernels(online, owner, offline)
    clients = len(owner.unique())
    chosen = list(weights) if weights is not None else choose_weights(len(owner))
    if len(chosen) < 3 or any(b <= a for a, b in pairwise(chosen)):
        raise InputError(f"the weights {chosen} must be at least three and rise")
    on, off = online.double(), offline.double()
    in_rounds = on / clients if averaged is None else averaged.double()
    spectra = [torch.linalg.eigvalsh(mix_kernels(on, off, w)) for w in chosen]
    return MixtureCurve(
        w=chosen,
        lambda_min=[values[0].item() for values in spectra],
        lambda_max=[values[-1].item() for values in spectra],
        federated_lambda_min=[torch.linalg.eigvalsh(mix_kernels(in_rounds, off, w))[0].item() for w in chosen],
    )


def validate_kernels(online: Tensor, owner: Tensor, offline: Tensor | None) -> Tensor:
    """The offline kernel, once the shapes are known to fit."""
    n = len(owner)
    for name, K in (("online", online), ("offline", offline)):
        if K is not None and K.shape != (n, n):
            raise InputError(
                f"the {name} kernel has shape {tuple(K.shape)}; owner has {n} rows, so expected ({n}, {n})"
            )
    return keep_client_blocks(online, owner) if offline is None else offline
