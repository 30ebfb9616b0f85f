"""How a client trains: the section ``[local]`` of a configuration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import cos, inf, pi
from typing import Literal

import torch
from torch import Tensor

from fedtrain.config.optimizers import check_optimizer
from theory.errors import InputError


@dataclass(frozen=True)
class LocalSettings:
    """An optimiser, made afresh in every round: it remembers nothing of the last one."""

    lr: float = 0.01
    momentum: float = 0.0
    weight_decay: float = 0.0
    epochs: int = 1
    batch_size: int = 32
    last_batch: Literal["keep", "drop"] = "keep"
    """What becomes of the rest that does not fill a batch; a rest of one is never used with batch norm."""
    optimizer: str = "sgd"
    """sgd, adam, adamw, or any other class of ``torch.optim`` by its name; a plug-in, or a reference to one of yours.
    What is not named here is as its class has it."""
    beta1: float | None = None
    """Of Adam and its kin: how much of the mean gradient stays; none for torch's own."""
    beta2: float | None = None
    """Of Adam and its kin: how much of the mean square stays."""
    lr_schedule: Literal["constant", "cosine", "step"] = "constant"
    """How the learning rate falls over rounds."""
    lr_rounds: int | None = None
    """cosine: the rounds over which it falls; without it ``server.rounds`` as the run begins."""
    lr_min: float = 0.0
    """cosine: where it ends."""
    lr_step: int = 100
    """step: after so many rounds it is multiplied ..."""
    lr_decay: float = 0.1
    """... by so much."""
    warmup_rounds: int = 0
    """So many rounds it rises in equal steps to ``lr``, before the schedule begins."""
    max_grad_norm: float | None = None
    """The longest gradient of a step; a longer one is shortened to it. none: no limit."""
    label_smoothing: float = 0.0
    """The share of a label that the cross entropy gives to all classes alike."""
    class_weights: Literal["none", "balanced"] = "none"
    """balanced: samples of all classes that a client holds count alike together, however many they are."""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise InputError(f"local.{name} is {getattr(self, name)}; it must be at least 1")
        if not 0 < self.lr <= 1e38:
            raise InputError(f"local.lr is {self.lr}; it must be above 0 and at most 1e38")
        if not 0 <= self.momentum < 1:
            raise InputError(f"local.momentum is {self.momentum}; choose it in [0, 1)")
        if not 0 <= self.weight_decay < inf:
            raise InputError(f"local.weight_decay is {self.weight_decay}; it must be 0 or more")
        check_optimizer(self.optimizer, self.momentum, self.weight_decay, (self.beta1, self.beta2))
        if not 0 <= self.label_smoothing < 1:
            raise InputError(f"local.label_smoothing is {self.label_smoothing}; choose it in [0, 1)")
        if self.max_grad_norm is not None and not 0 < self.max_grad_norm < inf:
            raise InputError(f"local.max_grad_norm is {self.max_grad_norm}; it must be above 0")
        self._check_schedule()

    def _check_schedule(self) -> None:
        if self.warmup_rounds < 0:
            raise InputError(f"local.warmup_rounds is {self.warmup_rounds}; it must be 0 or more")
        if self.lr_rounds is not None and self.lr_rounds <= self.warmup_rounds:
            raise InputError(
                f"local.lr_rounds is {self.lr_rounds}; it must be above local.warmup_rounds ({self.warmup_rounds})"
            )
        if not 0 <= self.lr_min <= self.lr:
            raise InputError(f"local.lr_min is {self.lr_min}; choose it from 0 to local.lr ({self.lr})")
        if self.lr_step < 1:
            raise InputError(f"local.lr_step is {self.lr_step}; it must be at least 1")
        if not 0 < self.lr_decay <= 1:
            raise InputError(f"local.lr_decay is {self.lr_decay}; choose it in (0, 1]")

    @property
    def uses_sgd(self) -> bool:
        """Whether steps are those of SGD, which has faster ways."""
        return self.optimizer.lower() == "sgd"

    def with_schedule_length(self, rounds: int) -> LocalSettings:
        """The same with the length of its cosine said outright, so that a run that is prolonged keeps it."""
        is_open = self.lr_schedule == "cosine" and self.lr_rounds is None
        return replace(self, lr_rounds=rounds) if is_open else self

    def at_round(self, round: int) -> LocalSettings:
        """The same with the learning rate of this round, counted from 0."""
        if self.lr_schedule == "constant" and round >= self.warmup_rounds:
            return self
        lr = self.compute_lr(round)
        if not lr:
            raise InputError(
                f"local.lr_schedule cosine is at 0 in round {round + 1}; say more local.lr_rounds or a local.lr_min"
            )
        return replace(self, lr=lr, lr_min=0.0)

    def compute_lr(self, round: int) -> float:
        """The learning rate of a round, counted from 0; a cosine may end at 0."""
        if round < self.warmup_rounds:
            return self.lr * (round + 1) / self.warmup_rounds
        if self.lr_schedule == "constant":
            return self.lr
        since = round - self.warmup_rounds
        if self.lr_schedule == "step":
            return float(self.lr * self.lr_decay ** (since // self.lr_step))
        if self.lr_rounds is None:
            raise InputError("local.lr_schedule is cosine; say over how many rounds: local.lr_rounds")
        share = min(1.0, since / (self.lr_rounds - self.warmup_rounds))
        return self.lr_min + (self.lr - self.lr_min) * (1 + cos(pi * share)) / 2

    def split_into_batches(self, order: Tensor, has_batch_norm: bool) -> Iterator[Tensor]:
        """Cut an order of samples into batches."""
        for rows in order.split(self.batch_size):
            short = len(rows) < self.batch_size
            if not (short and self.last_batch == "drop") and len(rows) > has_batch_norm:
                yield rows

    def count_last_batch(self, samples: int) -> int:
        """Of an epoch's incomplete last batch that follows complete ones and is trained on; 0 if there is none."""
        return samples % self.batch_size if self.last_batch == "keep" and samples > self.batch_size else 0

    def check_has_batches(self, client: str, samples: int, has_batch_norm: bool) -> None:
        """A client that would never train is a mistake."""
        if next(self.split_into_batches(torch.arange(samples), has_batch_norm), None) is not None:
            return
        if samples == 0:
            raise InputError(f"client {client}: it has no training samples; lower the number of clients or raise alpha")
        if has_batch_norm and (samples == 1 or self.batch_size == 1):
            raise InputError(
                f"client {client}: {samples} training samples in batches of {self.batch_size}: batch norm cannot train "
                "on a batch of one; raise local.batch_size, give it more samples, or take a network without batch norm"
            )
        raise InputError(
            f"client {client}: {samples} training samples leave no batch of {self.batch_size}; lower "
            "local.batch_size or set local.last_batch = keep"
        )
