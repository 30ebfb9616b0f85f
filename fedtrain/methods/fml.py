"""FML: a generic and a personal model teach each other (Shen et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedtrain.methods.base import Batch, RoundContext
from fedtrain.methods.two_models import TwoModelMethod, TwoModels, kl_from_teacher
from theory.errors import InputError


@dataclass(frozen=True)
class FML(TwoModelMethod):
    """Each model learns from the labels and, by KL(other ‖ self), from what the other says of the same batch."""

    alpha: float = 0.5
    """α, the share of the labels in the personal loss; the rest is the generic model's."""
    beta: float = 0.5
    """β, the same of the generic loss."""
    title: ClassVar[str] = "FML"

    def __post_init__(self) -> None:
        for name in ("alpha", "beta"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"method.{name} is {getattr(self, name)}; choose it in [0, 1]")

    def loss(self, module: TwoModels, batch: Batch, context: RoundContext[TwoModels]) -> Tensor:
        """α CE + (1 - α) KL of the personal model, β CE + (1 - β) KL of the generic one."""
        x, y = batch
        generic, personal = module.generic(x), module.personal(x)
        own = self.alpha * context.cross_entropy(personal, y)
        own = own + (1 - self.alpha) * kl_from_teacher(generic.detach(), personal)
        common = self.beta * context.cross_entropy(generic, y)
        common = common + (1 - self.beta) * kl_from_teacher(personal.detach(), generic)
        return own + common
