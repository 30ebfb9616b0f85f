"""FedAvg with fine-tuning: clients adapt the shared model before they predict (Yu, Bagdasaryan & Shmatikov, 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from fedtrain.methods.base import Phase
from fedtrain.methods.fedavg import FedAvg
from fedtrain.models import Net
from theory.errors import InputError


@dataclass(frozen=True)
class FineTune(FedAvg):
    """FedAvg; only predictions differ, for what a client has adapted is never sent and not kept."""

    passes: int = 1
    """Passes over the client's training data before it predicts."""
    title: ClassVar[str] = "FedAvg + FT"
    needs_training_data: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.passes < 0:
            raise InputError(f"method.passes is {self.passes}; it must be 0 or more")

    def phases_before_prediction(self) -> Sequence[Phase[Net]]:
        """The local loss, as in training."""
        return [self.loss] * self.passes
