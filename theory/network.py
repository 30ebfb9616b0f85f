"""The two-layer batch-norm ReLU network, which the theory analyses and fedtrain trains."""

from __future__ import annotations

from collections import OrderedDict
from typing import cast

import torch
from torch import Tensor, nn

HIDDEN_KEY, SCALE_KEY = "features.hidden.weight", "features.norm.weight"  # where v and γ live in the state dict


def compute_covariance_norms(v: Tensor, S: Tensor) -> Tensor:
    """|v_k|_S = sqrt(v_kᵀ S v_k) for each row of v; leading dimensions broadcast."""
    return ((v @ S) * v).sum(-1).sqrt()


def draw_weights(
    dim: int, width: int, alpha: float, generator: torch.Generator, outputs: int = 1, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor]:
    """The paper's initialisation (Eq. 11): v ~ N(0, α² I), γ = |v|₂ / α, c ~ Unif{-1, 1} as (outputs, m).

    Drawn in float64 and then rounded, so that every precision starts from the same network.
    """
    v = alpha * torch.randn(width, dim, generator=generator, dtype=torch.float64)
    c = 2 * torch.randint(2, (outputs, width), generator=generator).to(dtype) - 1
    return v.to(dtype), (v.norm(dim=-1) / alpha).to(dtype), c


class ScaleNorm(nn.BatchNorm1d):
    """Batch norm with a scale γ (its ``weight``) and no shift; a subclass, so that methods recognise it."""

    def __init__(self, width: int, eps: float = 1e-5, dtype: torch.dtype | None = None) -> None:
        super().__init__(width, eps=eps, dtype=dtype)
        self.register_parameter("bias", None)


class TwoLayerBN(nn.Module):
    """f(x) = m^(-1/2) Σ_k c_k relu(γ_k v_kᵀx / |v_k|_S): ``features`` up to the ReLU, ``head`` = c / sqrt(m), fixed.

    With a ``covariance`` S it is the network of the theory: unit k is divided by |v_k|_S, and the gradient runs
    through that norm. Without one it is the network that fedtrain trains, with batch statistics in training and running
    statistics afterwards. On a centred batch whose xᵀx/n is S both give the same outputs and gradients (up to ``eps``).
    """

    covariance: Tensor | None

    def __init__(
        self,
        dim: int,
        width: int,
        outputs: int = 1,
        *,
        alpha: float = 1.0,
        covariance: Tensor | None = None,
        eps: float = 1e-5,
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        dtype = dtype or (covariance.dtype if covariance is not None else torch.get_default_dtype())
        hidden, norm = nn.Linear(dim, width, bias=False, dtype=dtype), ScaleNorm(width, eps, dtype)
        self.features = nn.Sequential(OrderedDict(hidden=hidden, norm=norm, relu=nn.ReLU()))
        self.head = nn.Linear(width, outputs, bias=False, dtype=dtype)
        self.head.weight.requires_grad_(False)  # the paper keeps c as it was drawn
        self.register_buffer("covariance", covariance, persistent=False)
        if not hidden.weight.is_meta:  # a meta tensor has no weights to draw
            self.load_weights(*draw_weights(dim, width, alpha, generator or torch.default_generator, outputs, dtype))

    @torch.no_grad()
    def load_weights(self, v: Tensor, gamma: Tensor, c: Tensor) -> TwoLayerBN:
        """Set the weights, given in the paper's notation."""
        self.get_parameter(HIDDEN_KEY).copy_(v)
        self.get_parameter(SCALE_KEY).copy_(gamma)
        self.head.weight.copy_(c.reshape(self.head.weight.shape) / len(v) ** 0.5)
        return self

    def forward(self, x: Tensor) -> Tensor:
        """One row of outputs for each row of x."""
        if self.covariance is None:
            return self.head(self.features(x))
        hidden, norm, _ = self.features  # attributes, not get_parameter: torch.func puts plain tensors in their place
        v, gamma = cast(Tensor, hidden.weight), cast(Tensor, norm.weight)
        return self.head((x @ v.mT * (gamma / compute_covariance_norms(v, self.covariance))).relu())
