"""How the residual shrinks if a kernel drives it: dr = -K r."""

from __future__ import annotations

import torch
from torch import Tensor


def predict_residuals(K: Tensor, r: Tensor, rate: float, steps: int) -> Tensor:
    """r_t = (I - rate K)^t r for t = 0..steps: (steps + 1, n)."""
    values, vectors = torch.linalg.eigh(K)
    t = torch.arange(steps + 1, dtype=K.dtype, device=K.device)
    return ((1 - rate * values) ** t[:, None] * (vectors.T @ r)) @ vectors.T


def predict_gradient_flow(K: Tensor, r: Tensor, times: Tensor) -> Tensor:
    """r(t) = exp(-K t) r, the limit of small steps: (len(times), n)."""
    values, vectors = torch.linalg.eigh(K)
    return ((-values * times[:, None]).exp() * (vectors.T @ r)) @ vectors.T


def compute_stable_step(K: Tensor, share: float = 0.9) -> float:
    """``share`` of the largest step 2/λ_max at which the residual does not grow; 0 if K is zero."""
    steepest = torch.linalg.eigvalsh(K)[-1].item()
    return share * 2 / steepest if steepest > 0 else 0.0
