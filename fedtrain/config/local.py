"""How a client trains: the section ``[local]`` of a configuration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from theory.errors import InputError


@dataclass(frozen=True)
class LocalSettings:
    """SGD, made afresh in every round."""

    lr: float = 0.01
    momentum: float = 0.0
    weight_decay: float = 0.0
    epochs: int = 1
    batch_size: int = 32
    last_batch: Literal["keep", "drop"] = "keep"
    """What becomes of the rest that does not fill a batch; a rest of one is never used with batch norm."""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise InputError(f"local.{name} is {getattr(self, name)}; it must be at least 1")
        if not 0 < self.lr <= 1e38:
            raise InputError(f"local.lr is {self.lr}; it must be above 0 and at most 1e38")
        if not 0 <= self.momentum < 1:
            raise InputError(f"local.momentum is {self.momentum}; choose it in [0, 1)")
        if not 0 <= self.weight_decay < float("inf"):
            raise InputError(f"local.weight_decay is {self.weight_decay}; it must be 0 or more")

    def split_into_batches(self, order: Tensor, has_batch_norm: bool) -> Iterator[Tensor]:
        """Cut an order of samples into batches."""
        for rows in order.split(self.batch_size):
            short = len(rows) < self.batch_size
            if not (short and self.last_batch == "drop") and len(rows) > has_batch_norm:
                yield rows

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
