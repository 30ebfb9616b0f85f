"""The kernels V, G and Λ of two-layer networks in closed form, streamed over hidden units."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from theory.errors import InputError
from theory.kernels.federated import keep_client_blocks
from theory.network import draw_weights
from theory.problem import Problem
from theory.rng import make_network_rng

Projection = Literal["exact", "printed"]


@dataclass(frozen=True)
class Weights:
    """One network for each client: v (m, d) if shared, (N, m, d) if personal; c likewise; gamma (N, m); scale alpha."""

    v: Tensor
    c: Tensor
    gamma: Tensor
    alpha: float

    @property
    def is_personal(self) -> bool:
        """Whether each client has its own v (an offline network)."""
        return self.v.dim() == 3

    @property
    def width(self) -> int:
        """m."""
        return self.v.shape[-2]

    def get_client_weights(self, client: int) -> tuple[Tensor, Tensor, Tensor]:
        """v (m, d), gamma (m), c (m) of one client."""
        v, c = (self.v[client], self.c[client]) if self.is_personal else (self.v, self.c)
        return v, self.gamma[client], c

    def copy_per_client(self) -> Weights:
        """The offline network that starts from these weights."""
        if self.is_personal:
            return self
        N = len(self.gamma)
        return replace(self, v=self.v.expand(N, *self.v.shape).clone(), c=self.c.expand(N, *self.c.shape).clone())


@dataclass(frozen=True)
class Kernel:
    """V (from v), G (from γ) and the neural tangent kernel Λ = V/α² + G."""

    V: Tensor
    G: Tensor
    alpha: float

    @property
    def Lambda(self) -> Tensor:  # noqa: N802 - the paper's letter
        """V/α² + G."""
        return self.V / self.alpha**2 + self.G

    def keep_client_blocks(self, owner: Tensor) -> Kernel:
        """The kernel when nothing is shared."""
        return replace(self, V=keep_client_blocks(self.V, owner), G=keep_client_blocks(self.G, owner))

    def __add__(self, other: Kernel) -> Kernel:
        return replace(self, V=self.V + other.V, G=self.G + other.G)

    def __rmul__(self, factor: float) -> Kernel:
        return replace(self, V=factor * self.V, G=factor * self.G)


def draw_initial_weights(problem: Problem, width: int, alpha: float, seed: int = 0) -> Weights:
    """The online network of Eq. 11: v, c shared; γ_{k,i} = |v_k|/α for every client."""
    v, gamma, c = draw_weights(problem.dim, width, alpha, make_network_rng(seed))
    v, gamma, c = (t.to(problem.x) for t in (v, gamma, c[0]))
    return Weights(v, c, gamma.expand(problem.clients, -1).clone(), alpha)


def compute_kernel(
    problem: Problem,
    weights: Weights,
    *,
    share_gamma: bool = False,
    projection: Projection = "exact",
    chunk: int | None = None,
) -> Kernel:
    """V and G at these weights.

    A shared v couples all clients (online); a personal v leaves only the client blocks (offline). G couples clients
    only if γ is shared too (``share_gamma``: FedAvg). Memory is O(n² + (n + N d) · chunk), whatever the width.
    """
    if chunk is not None and chunk < 1:
        raise InputError(f"chunk is {chunk}; it must be at least 1 (or leave it out)")
    if not weights.is_personal:
        return Kernel(*_compute_gram(problem, weights, share_gamma, projection, chunk), weights.alpha)
    V, G = (torch.zeros(len(problem.x), len(problem.x)).to(problem.x) for _ in range(2))
    for i, rows in enumerate(problem.blocks):
        x, y, S = problem.x[rows], problem.y[rows], problem.S[i : i + 1]
        v, gamma, c = weights.get_client_weights(i)
        alone = Problem(x, y, torch.zeros_like(problem.owner[rows]), S)
        one = Weights(v, c, gamma[None], weights.alpha)
        V[rows, rows], G[rows, rows] = _compute_gram(alone, one, share_gamma, projection, chunk)
    return Kernel(V, G, weights.alpha)


def _compute_gram(
    problem: Problem, weights: Weights, share_gamma: bool, projection: Projection, chunk: int | None
) -> tuple[Tensor, Tensor]:
    """V and G for a shared v.

    With A = α c γ 1 / (|v|_S sqrt(m)) (n, m), D = A * v.x / |v|_S² and w_ij = v' S_i S_j v,
    V_ij = (X_i X_j') * (A_i A_j') - T_ij - T_ji',   T_ij = (A_i * (X_i S_j v - (X_i v) w_ij / (2 |v|_{S_i}²))) D_j'.
    The last term of <P_i x, P_j x'> is split evenly between T_ij and T_ji', so that two matrix products over the hidden
    units suffice. ``printed`` replaces S_i v / |v|_{S_i}² by v / |v|²: the paper's projection I - v v'/|v|².
    """
    x, blocks, n = problem.x, problem.blocks, len(problem.x)
    AA, T, G = (x.new_zeros(n, n) for _ in range(3))
    chunk = min(chunk or choose_chunk_size(n, problem.clients, problem.dim), weights.width)
    together = max(n // problem.clients, problem.dim)  # clients at a time: their w_ij take no more memory than h or S v
    # One set of buffers for all chunks: fresh ones would cost a page fault for every 4 KiB.
    buffers = [x.new_empty(n, chunk) for _ in range(5)]
    for v, c, gamma in _iterate_chunks(weights, chunk):
        h, E, A, D, B = (buffer[:, : len(v)] for buffer in buffers)
        torch.mm(x, v.T, out=h)
        Sv = v @ problem.S  # S_i v: (N, k, d)
        q = (Sv * v).sum(-1)  # |v|_{S_i}²: (N, k)
        unit = c / (q.sqrt() * weights.width**0.5)
        if projection == "printed":
            Sv, q = v.expand_as(Sv), v.square().sum(-1).expand_as(q)
        for i, rows in enumerate(blocks):
            torch.mul(h[rows], gamma[i], out=A[rows]).gt_(0).mul_(unit[i])  # the open gates
            torch.mul(A[rows], h[rows], out=E[rows])  # ∂f/∂γ
            A[rows] *= weights.alpha * gamma[i]
            torch.mul(E[rows], weights.alpha * gamma[i] / q[i], out=D[rows])
        for rows in blocks:
            AA[rows, : rows.stop].addmm_(A[rows], A[: rows.stop].T)  # the rest by symmetry
            columns = slice(0, rows.stop) if share_gamma else rows
            G[rows, columns].addmm_(E[rows], E[columns].T)
        for j, columns in enumerate(blocks):
            if j % together == 0:
                w = torch.einsum("ikd,jkd->ijk", Sv, Sv[j : j + together])
                half = w.div_(2 * q.unsqueeze(1))  # w_ij / (2 |v|_{S_i}²)
            torch.mm(x, Sv[j].T, out=B)
            for i, rows in enumerate(blocks):
                B[rows].addcmul_(h[rows], half[i, j % together], value=-1)
            T[:, columns].addmm_(B.mul_(A), D[columns].T)
    AA, G = (K.tril() + K.tril(-1).T for K in (AA, G))
    return (x @ x.T).mul_(AA).sub_(T).sub_(T.T), G


def choose_chunk_size(n: int, N: int, d: int) -> int:
    """Hidden units at a time: large enough for full-speed products, small enough to stay near the cache."""
    return max(64, min(1024, 2**21 // max(n, N * d)))


def _iterate_chunks(weights: Weights, size: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    for start in range(0, weights.width, size):
        part = slice(start, start + size)
        yield weights.v[part], weights.c[part], weights.gamma[:, part]
