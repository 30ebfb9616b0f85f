"""APFL: predict with a mixture of the weights of a generic and a personal model (Deng et al., 2020)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from fedtrain.methods.base import Batch, ModelFactory, RoundContext
from fedtrain.methods.two_models import TwoModelMethod, TwoModels
from theory.errors import InputError


class MixedModels(TwoModels):
    """Both models, and the client's own α, which is trained with them."""

    def __init__(self, both: TwoModels, alpha: float) -> None:
        super().__init__(both.generic, both.personal)
        self.alpha = nn.Parameter(next(both.generic.parameters()).detach().new_full((), alpha))


@dataclass(frozen=True)
class APFL(TwoModelMethod):
    """CE(w) + CE(α v + (1 - α) w) with w fixed in the second term: its gradient moves the personal model only."""

    alpha: float = 0.5
    """α, the weight of the personal model."""
    adaptive: bool = False
    """Whether each client adapts α: the steps down the second term move it too, and it stays in [0, 1]."""
    title: ClassVar[str] = "APFL"

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise InputError(f"method.alpha is {self.alpha}; choose it in [0, 1]")

    def build(self, factory: ModelFactory) -> TwoModels:
        """Both models, with an α of the client's own if it adapts."""
        both = super().build(factory)
        return MixedModels(both, self.alpha) if self.adaptive else both

    def plain_sgd_parameters(self, module: TwoModels) -> Sequence[nn.Parameter]:
        """α moves by α - η ⟨v - w, ∇CE⟩, as in the paper, and decays to nowhere."""
        return [module.alpha] if isinstance(module, MixedModels) else []

    def loss(self, module: TwoModels, batch: Batch, context: RoundContext[TwoModels]) -> Tensor:
        """Cross entropy of the generic model and of the mixture."""
        x, y = batch
        return context.cross_entropy(module.generic(x), y) + context.cross_entropy(self._call_mixture(module, x), y)

    @torch.no_grad()
    def finish(self, module: TwoModels, context: RoundContext[TwoModels]) -> None:
        """What left [0, 1] comes back."""
        if isinstance(module, MixedModels):
            module.alpha.clamp_(0, 1)

    def branches(self, module: TwoModels, x: Tensor, context: RoundContext[TwoModels]) -> Mapping[str, Tensor]:
        """The generic model, and the mixture in the place of the personal one."""
        return {"generic": module.generic(x), "personal": self._call_mixture(module, x)}

    def _call_mixture(self, module: TwoModels, x: Tensor) -> Tensor:
        """With the batch-norm statistics of the personal model, which are measured on what the mixture sees."""
        alpha: float | Tensor = self.alpha
        if isinstance(module, MixedModels):  # within a round too it counts as clamped, with the gradient of α itself
            alpha = module.alpha + (module.alpha.clamp(0, 1) - module.alpha).detach()
        pairs = zip(module.personal.named_parameters(), module.generic.parameters(), strict=True)
        mixed = {name: alpha * v + (1 - alpha) * w.detach() for (name, v), w in pairs}
        from torch.func import functional_call  # here: it loads the compiler

        answer: Tensor = functional_call(module.personal, mixed, (x,))
        return answer
