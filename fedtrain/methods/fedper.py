"""FedPer: average the features, keep the head (Arivazhagan et al., 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedtrain.methods.fedavg import FedAvg
from fedtrain.models import Net
from fedtrain.parameters import EntryNames, entries_under


@dataclass(frozen=True)
class FedPer(FedAvg):
    """FedAvg whose head stays personal."""

    title: ClassVar[str] = "FedPer"

    def shared(self, module: Net) -> EntryNames:
        """The features."""
        return entries_under(module, "features")
