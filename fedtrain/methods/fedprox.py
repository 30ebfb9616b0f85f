"""FedProx: stay near the global model (Li et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedtrain.methods.base import Batch, RoundContext, check_non_negative
from fedtrain.methods.fedavg import FedAvg
from fedtrain.models import Net


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg whose local loss adds μ/2 ‖w - w_global‖²."""

    mu: float = 1e-2
    """How strong the pull is."""
    squared: bool = True
    """False: μ/2 ‖w - w_global‖ without the square and not in the first round, as in the published code."""
    title: ClassVar[str] = "FedProx"

    def __post_init__(self) -> None:
        check_non_negative("mu", self.mu)

    def needs_round_start(self, round: int) -> bool:
        """Wherever it pulls."""
        return self.mu != 0 and (self.squared or round > 0)

    def loss(self, module: Net, batch: Batch, context: RoundContext[Net]) -> Tensor:
        """Cross entropy plus the proximal term."""
        own = super().loss(module, batch, context)
        if not self.needs_round_start(context.round):
            return own
        pairs = zip(module.parameters(), context.round_start_model.parameters(), strict=True)
        drift = torch.stack([(w - w0).square().sum() for w, w0 in pairs if w.requires_grad]).sum()
        return own + self.mu / 2 * (drift if self.squared else safe_sqrt(drift))


def safe_sqrt(x: Tensor) -> Tensor:
    """√x, whose gradient at 0 is 0 instead of infinite: the first step of a round feels no pull."""
    moved = x > 0
    return torch.where(moved, torch.where(moved, x, 1.0).sqrt(), 0.0)
