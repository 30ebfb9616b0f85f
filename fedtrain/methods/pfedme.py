"""pFedMe: personal models on elastic bands, and a generic one that follows them (Dinh, Tran & Nguyen, 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from fedtrain.methods.base import Batch, Phase, RoundContext, check_non_negative
from fedtrain.methods.two_models import TwoModelMethod, TwoModels, squared_distance
from theory.errors import InputError


@dataclass(frozen=True)
class PFedMe(TwoModelMethod):
    """On every batch, steps of θ down CE + λ/2 ‖θ - w‖², then one of w down λ/2 ‖w - θ‖²."""

    lam: float = 15.0
    """λ, how strong the pull is."""
    inner_steps: int = 5
    """Steps of the personal model on each batch."""
    outer_lr: float = 1.0
    """Learning rate of the generic model, as a multiple of ``local.lr``, which is that of the personal one."""
    title: ClassVar[str] = "pFedMe"

    def __post_init__(self) -> None:
        check_non_negative("lam", self.lam)
        check_non_negative("outer_lr", self.outer_lr)
        if self.inner_steps < 1:
            raise InputError(f"method.inner_steps is {self.inner_steps}; it must be at least 1")

    def plain_sgd_parameters(self, module: TwoModels) -> Sequence[nn.Parameter]:
        """The generic model moves by w - η_w λ (w - θ) and nothing else."""
        return list(module.generic.parameters())

    def phases(self, round: int, epochs: int) -> Sequence[Phase[TwoModels]]:
        """Inner steps and the outer one on every batch."""
        return [(*[self.loss] * self.inner_steps, self.generic_loss)] * epochs

    def loss(self, module: TwoModels, batch: Batch, context: RoundContext[TwoModels]) -> Tensor:
        """Of the personal model."""
        x, y = batch
        return context.cross_entropy(module.personal(x), y) + self.lam / 2 * squared_distance(
            module.personal, module.generic
        )

    def generic_loss(self, module: TwoModels, batch: Batch, context: RoundContext[TwoModels]) -> Tensor:
        """Of the generic model, which sees no data; times η_w / η, for the step is made with η."""
        return self.outer_lr * self.lam / 2 * squared_distance(module.generic, module.personal)

    @torch.no_grad()
    def finish(self, module: TwoModels, context: RoundContext[TwoModels]) -> None:
        """The generic model takes the batch-norm statistics of the personal one, for it saw no data itself."""
        for generic, personal in zip(module.generic.buffers(), module.personal.buffers(), strict=True):
            generic.copy_(personal)
