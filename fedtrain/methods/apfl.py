"""APFL: predict with a mixture of the weights of a generic and a personal model (Deng et al., 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedtrain.methods.base import Batch, RoundContext
from fedtrain.methods.two_models import TwoModelMethod, TwoModels
from theory.errors import InputError


@dataclass(frozen=True)
class APFL(TwoModelMethod):
    """CE(w) + CE(α v + (1 - α) w) with w fixed in the second term: its gradient moves the personal model only."""

    alpha: float = 0.5
    """α, the weight of the personal model; the paper's rule that adapts it is not here."""
    title: ClassVar[str] = "APFL"

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise InputError(f"method.alpha is {self.alpha}; choose it in [0, 1]")

    def loss(self, module: TwoModels, batch: Batch, context: RoundContext[TwoModels]) -> Tensor:
        """Cross entropy of the generic model and of the mixture."""
        x, y = batch
        return context.cross_entropy(module.generic(x), y) + context.cross_entropy(self._call_mixture(module, x), y)

    def branches(self, module: TwoModels, x: Tensor, context: RoundContext[TwoModels]) -> Mapping[str, Tensor]:
        """The generic model, and the mixture in the place of the personal one."""
        return {"generic": module.generic(x), "personal": self._call_mixture(module, x)}

    def _call_mixture(self, module: TwoModels, x: Tensor) -> Tensor:
        """With the batch-norm statistics of the personal model, which are measured on what the mixture sees."""
        pairs = zip(module.personal.named_parameters(), module.generic.parameters(), strict=True)
        mixed = {name: self.alpha * v + (1 - self.alpha) * w.detach() for (name, v), w in pairs}
        from torch.func import functional_call  # here: it loads the compiler

        answer: Tensor = functional_call(module.personal, mixed, (x,))
        return answer
