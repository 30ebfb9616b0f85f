"""The data of all clients: which client owns each sample, and each client's covariance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from theory.errors import InputError
from theory.rng import make_data_rng

Covariance = Literal["isotropic", "scaled", "anisotropic"]
PARALLEL_TOLERANCE = 1e-12
"""Two samples whose |cosine| is within this of 1 count as parallel."""
SINGULAR_TOLERANCE = 1e-12
"""A covariance whose λ_min is below this share of its λ_max counts as singular: the rest is rounding."""


@dataclass(frozen=True)
class Problem:
    """x (n, d), y (n), owner (n, sorted, 0..N-1), S (N, d, d): the samples of all clients, client by client."""

    x: Tensor
    y: Tensor
    owner: Tensor
    S: Tensor

    def __post_init__(self) -> None:
        check_data(self.x, self.y, self.owner)
        zero = (self.x == 0).all(dim=1).nonzero()
        if len(zero):
            raise InputError(f"sample {zero[0].item()} is all zeros: its kernel row is zero, so λ_min = 0; drop it")
        if self.owner.diff().lt(0).any():
            raise InputError("samples must be ordered by client; sort x, y and owner by owner first")
        if self.S.shape != (int(self.owner[-1]) + 1, self.dim, self.dim):
            raise InputError(
                f"covariances have shape {tuple(self.S.shape)}; expected (clients, {self.dim}, {self.dim})"
            )
        if len(self.owner.unique()) != len(self.S):
            raise InputError("owner skips a client number: number the clients 0, 1, ... and give each a sample")
        check_covariances(self.S)

    @property
    def dim(self) -> int:
        """The dimension d of the inputs."""
        return self.x.shape[1]

    @property
    def clients(self) -> int:
        """The number of clients, N."""
        return len(self.S)

    @cached_property
    def sizes(self) -> list[int]:
        """The number of samples of each client, M_i."""
        return torch.bincount(self.owner, minlength=self.clients).tolist()

    @cached_property
    def blocks(self) -> list[slice]:
        """The rows of each client."""
        ends = torch.tensor(self.sizes).cumsum(0).tolist()
        return [slice(end - size, end) for end, size in zip(ends, self.sizes, strict=True)]

    @cached_property
    def isotropic_scales(self) -> Tensor | None:
        """s_i where every S_i = s_i I exactly, else None."""
        s = self.S.diagonal(dim1=1, dim2=2)[:, :1]
        same = s.unsqueeze(-1) * torch.eye(self.dim, dtype=self.S.dtype, device=self.S.device) == self.S
        return s.squeeze(1) if bool(same.all()) else None

    def to(self, dtype: torch.dtype | None = None, device: str | torch.device | None = None) -> Problem:
        """The same problem in another precision or on another device."""
        x, y, S = (t.to(device, dtype) for t in (self.x, self.y, self.S))
        return Problem(x, y, self.owner.to(device), S)

    def find_parallel_samples(self) -> list[tuple[int, int, float]]:
        """Pairs (p, q) of samples that are parallel, with their cosine: Assumption 4.1 forbids them."""
        unit = self.x.double() / self.x.double().norm(dim=1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
        cosine = (unit @ unit.T).triu(1)
        pairs = (cosine.abs() >= 1 - PARALLEL_TOLERANCE).nonzero().tolist()
        return [(p, q, cosine[p, q].item()) for p, q in pairs]


def check_data(x: Tensor, y: Tensor, owner: Tensor) -> None:
    """Refuse data on which no claim can be checked."""
    if x.dim() != 2 or x.shape[0] == 0 or x.shape[1] == 0:
        raise InputError(f"X has shape {tuple(x.shape)}; expected (samples, dimension), both at least 1")
    for name, values in (("y", y), ("owner", owner)):
        if values.shape != (len(x),):
            raise InputError(f"{name} has shape {tuple(values.shape)}; X has {len(x)} rows, so expected ({len(x)},)")
    for name, values in (("X", x), ("y", y)):
        bad = (~values.isfinite()).nonzero()
        if len(bad):
            where = ", ".join(map(str, bad[0].tolist()))
            raise InputError(f"{name}[{where}] is {values[tuple(bad[0])].item()}; replace or drop non-finite values")


def check_covariances(S: Tensor) -> None:
    """Refuse covariances that are not symmetric positive definite."""
    for i, one in enumerate(map(Tensor.double, S)):
        if not one.isfinite().all():
            raise InputError(f"covariance of client {i} is not finite")
        if (one - one.T).abs().max() > 1e-6 * one.abs().max():
            raise InputError(f"covariance of client {i} is not symmetric; use (S + S') / 2")
        if (ends := find_singularity(one)) is not None:
            raise InputError(
                f"covariance of client {i} is not positive definite (λ_min = {ends[0]:.3g}, λ_max = {ends[1]:.3g}); "
                "add a ridge, give more samples than dimensions, or lower the heterogeneity"
            )


def find_singularity(S: Tensor) -> tuple[float, float] | None:
    """(λ_min, λ_max) of a symmetric matrix that is not clearly positive definite, else None.

    Most matrices are, and a Cholesky factorisation shows it in a tenth of the time that eigenvalues take.
    """
    S = S.double()
    inside = S - SINGULAR_TOLERANCE * S.diagonal().sum() * torch.eye(len(S), dtype=S.dtype, device=S.device)
    if not torch.linalg.cholesky_ex(inside).info:
        return None
    low, high = torch.linalg.eigvalsh(S)[[0, -1]].tolist()
    return (low, high) if low <= SINGULAR_TOLERANCE * max(high, 0.0) else None


def draw_covariance(kind: Covariance, dim: int, heterogeneity: float, rng: np.random.Generator) -> Tensor:
    """S_i of one client, of trace d on average.

    isotropic: the identity; scaled: s I with s = exp(h z); anisotropic: eigenvalues exp(h z) on random axes.
    ``heterogeneity`` h is the standard deviation of the logarithm of the variances.
    """
    if kind not in get_args(Covariance):
        raise InputError(f"unknown covariance {kind!r}; choose one of {', '.join(get_args(Covariance))}")
    if not 0 <= heterogeneity <= 5:
        raise InputError(f"heterogeneity is {heterogeneity}; choose it between 0 and 5")
    eye = torch.eye(dim, dtype=torch.float64)
    if kind == "isotropic":
        return eye
    logs = heterogeneity * torch.from_numpy(rng.standard_normal(dim))
    variances = (logs - heterogeneity**2 / 2).exp()  # mean one
    if kind == "scaled":
        return variances[0] * eye
    axes = torch.linalg.qr(torch.from_numpy(rng.standard_normal((dim, dim)))).Q
    S = axes * variances @ axes.T
    return (S + S.T) / 2


def draw_synthetic_problem(
    clients: int = 5,
    samples: int | Sequence[int] = 20,
    dim: int = 10,
    *,
    covariance: Covariance = "anisotropic",
    heterogeneity: float = 1.0,
    seed: int = 0,
) -> Problem:
    """Gaussian clients as Assumption 4.1 requires: x ~ N(0, S_i), S_i different; y ~ N(0, 1).

    A client depends only on the seed and its own number, so adding clients does not change the first ones.
    """
    sizes = [samples] * clients if isinstance(samples, int) else list(samples)
    for name, value in (("clients", clients), ("samples", min(sizes, default=0)), ("dim", dim)):
        if value < 1:
            raise InputError(f"{name} is {value}; it must be at least 1")
    if len(sizes) != clients:
        raise InputError(f"{len(sizes)} sample counts for {clients} clients; give one for each")
    x, y, S = [], [], []
    for client, size in enumerate(sizes):
        rng = make_data_rng(seed, client)
        S.append(draw_covariance(covariance, dim, heterogeneity, rng))
        z = torch.from_numpy(rng.standard_normal((size, dim)))
        x.append(z @ torch.linalg.cholesky(S[-1]).T)  # L z ~ N(0, S)
        y.append(torch.from_numpy(rng.standard_normal(size)))
    owner = torch.repeat_interleave(torch.arange(clients), torch.tensor(sizes))
    return Problem(torch.cat(x), torch.cat(y), owner, torch.stack(S))
