"""FedRep: FedPer that trains the head first, then the features (Collins et al., 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedtrain.methods.base import Batch, Phase, RoundContext
from fedtrain.methods.fedper import FedPer
from fedtrain.models import Net
from theory.errors import InputError


@dataclass(frozen=True)
class FedRep(FedPer):
    """Passes for the head on fixed features, then the local epochs for the features under a fixed head."""

    head_epochs: int = 10
    """Passes over the data that train the head."""
    title: ClassVar[str] = "FedRep"

    def __post_init__(self) -> None:
        if self.head_epochs < 0:
            raise InputError(f"method.head_epochs is {self.head_epochs}; it must be 0 or more")

    def phases(self, round: int, epochs: int) -> Sequence[Phase[Net]]:
        """The head, then the features."""
        return [self.head_loss] * self.head_epochs + [self.features_loss] * epochs

    def head_loss(self, module: Net, batch: Batch, context: RoundContext[Net]) -> Tensor:
        """Cross entropy, of which only the head sees the gradient."""
        x, y = batch
        with torch.no_grad():
            z = module.features(x)
        return context.cross_entropy(module.head(z), y)

    def features_loss(self, module: Net, batch: Batch, context: RoundContext[Net]) -> Tensor:
        """Cross entropy, of which only the features see the gradient."""
        x, y = batch
        fixed = {name: weight.detach() for name, weight in module.head.named_parameters()}
        from torch.func import functional_call  # here: it loads the compiler

        return context.cross_entropy(functional_call(module.head, fixed, (module.features(x),)), y)
