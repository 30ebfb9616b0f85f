"""Full-batch gradient descent of the real networks, in every reading of the paper.

The loss of Eq. 12 is the mean square (1/n) Σ (F - y)², of the fused network F = (F_on + F_off)/2. Readings:

- joint: one gradient step on that loss, literally, so each branch receives half of the fused residual;
- separate: each branch on its own loss, which is what the algorithm does; online alone is FedBN, offline SingleSet;
- federated: each client one step on its own mean square, then v_on is averaged; γ and the offline network stay.

One network after the other: stacking them (vmap or a batch dimension) was slower, as they leave the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from theory.kernels.closed_form import Weights
from theory.problem import Problem

Reading = Literal["joint", "separate", "federated"]
Branch = Literal["online", "offline", "fused"]


@dataclass
class Trajectory:
    """Outputs of both branches at t = 0..steps, (steps + 1, n), and snapshots of the networks on the way."""

    y: Tensor
    online: Tensor
    offline: Tensor
    snapshots: list[tuple[int, Weights, Weights]] = field(default_factory=list)

    def compute_residual_norms(self, branch: Branch) -> Tensor:
        """|F(t) - y| for each t."""
        outputs = (self.online + self.offline) / 2 if branch == "fused" else getattr(self, branch)
        return (outputs - self.y).norm(dim=1)


BackwardCache = list[tuple[Tensor, Tensor, Tensor]]
"""What the backward pass needs of each client: open gates (M_i, m), |v|_S (m), S v (m, d)."""


def compute_outputs(problem: Problem, weights: Weights) -> tuple[Tensor, BackwardCache]:
    """F(x) for every sample, and what ``compute_gradients`` needs."""
    F, saved = torch.empty_like(problem.y), []
    for i, rows in enumerate(problem.blocks):
        v, gamma, c = weights.get_client_weights(i)
        Sv = v @ problem.S[i]
        size = (Sv * v).sum(1).sqrt()
        hidden = (problem.x[rows] @ v.T).mul_(gamma / size).relu_()
        F[rows] = hidden @ c / weights.width**0.5
        saved.append((hidden.sign_(), size, Sv))
    return F, saved


def compute_gradients(problem: Problem, weights: Weights, saved: BackwardCache, dF: Tensor) -> tuple[Tensor, Tensor]:
    """Each client's gradient with respect to v (N, m, d) and γ (N, m), given ∂loss/∂F.

    With s = γ/|v|_S, F is Σ c s relu(v.x)/sqrt(m), so the samples enter only through P = gate' (dF * X):
    ∂/∂s_k = c_k P_k.v_k / sqrt(m), ∂/∂v_k = c_k s_k P_k / sqrt(m) - (∂/∂s_k) s_k S v_k / |v_k|².
    """
    by_v = weights.v.new_empty(problem.clients, *weights.v.shape[-2:])
    by_gamma = torch.empty_like(weights.gamma)
    for i, rows in enumerate(problem.blocks):
        v, gamma, c = weights.get_client_weights(i)
        gate, size, Sv = saved[i]
        P = (gate.T @ (dF[rows, None] * problem.x[rows])).mul_((c / weights.width**0.5).unsqueeze(1))
        by_scale = (P * v).sum(1)
        by_gamma[i] = by_scale / size
        torch.mul(
            P.addcmul_((by_scale / size.square()).unsqueeze(1), Sv, value=-1), (gamma / size)[:, None], out=by_v[i]
        )
    return by_v, by_gamma


def descend(
    problem: Problem,
    online: Weights,
    offline: Weights,
    reading: Reading,
    steps: int,
    step: float | tuple[float, float],
    snapshot_count: int = 0,
    on_step: Callable[[], None] = lambda: None,
) -> Trajectory:
    """``steps`` steps of size ``step`` (or one size for each branch), keeping ``snapshot_count`` networks."""
    eta = step if isinstance(step, tuple) else (step, step)
    n, sizes = len(problem.y), problem.y.new_tensor(problem.sizes)[problem.owner]
    snapshot_steps = {round(k * steps / max(snapshot_count - 1, 1)) for k in range(snapshot_count)}
    path = Trajectory(problem.y, problem.y.new_empty(steps + 1, n), problem.y.new_empty(steps + 1, n))
    branches = [online, offline]
    for t in range(steps + 1):
        F, saved = zip(*(compute_outputs(problem, w) for w in branches), strict=True)
        path.online[t], path.offline[t] = F
        if t in snapshot_steps:
            path.snapshots.append((t, branches[0], branches[1]))
        if t == steps:
            return path
        fused = ((F[0] + F[1]) / 2 - problem.y) / 2
        for k, weights in enumerate(branches):
            residual = fused if reading == "joint" else F[k] - problem.y
            by_v, by_gamma = compute_gradients(
                problem, weights, saved[k], 2 * residual / (sizes if reading == "federated" else n)
            )
            branches[k] = _take_step(weights, by_v, by_gamma, eta[k], averaged=reading == "federated")
        on_step()
    raise AssertionError("unreachable")


def _take_step(weights: Weights, by_v: Tensor, by_gamma: Tensor, eta: float, averaged: bool) -> Weights:
    gamma = weights.gamma - eta * by_gamma
    if weights.is_personal:
        return replace(weights, v=weights.v - eta * by_v, gamma=gamma)
    if averaged:
        return replace(weights, v=(weights.v - eta * by_v).mean(0), gamma=gamma)  # N local copies, then their mean
    return replace(weights, v=weights.v - eta * by_v.sum(0), gamma=gamma)
