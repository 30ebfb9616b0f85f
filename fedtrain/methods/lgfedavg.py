"""LG-FedAvg: average the head, keep the features (Liang et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedtrain.methods.fedavg import FedAvg
from fedtrain.models import Net
from fedtrain.parameters import EntryNames, entries_under


@dataclass(frozen=True)
class LGFedAvg(FedAvg):
    """FedAvg whose features stay personal, FedPer the other way round."""

    title: ClassVar[str] = "LG-FedAvg"

    def shared(self, module: Net) -> EntryNames:
        """The head."""
        return entries_under(module, "head")
