"""Ditto: FedAvg beside a personal model that stays near it (Li et al., 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedtrain.methods.base import Batch, RoundContext, check_non_negative
from fedtrain.methods.two_models import TwoModelMethod, TwoModels, squared_distance


@dataclass(frozen=True)
class Ditto(TwoModelMethod):
    """The personal loss adds λ/2 ‖v - w‖², w being the generic model as the round began."""

    lam: float = 1.0
    """λ, how strong the pull is."""
    title: ClassVar[str] = "Ditto"

    def __post_init__(self) -> None:
        check_non_negative("lam", self.lam)

    def needs_round_start(self, round: int) -> bool:
        """Wherever it pulls."""
        return self.lam != 0

    def loss(self, module: TwoModels, batch: Batch, context: RoundContext[TwoModels]) -> Tensor:
        """Cross entropy of each model, and the pull on the personal one."""
        x, y = batch
        both = context.cross_entropy(module.generic(x), y) + context.cross_entropy(module.personal(x), y)
        if self.lam == 0:
            return both
        return both + self.lam / 2 * squared_distance(module.personal, context.round_start_model.generic)
