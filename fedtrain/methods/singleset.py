"""SingleSet: every client alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from fedtrain.methods.base import ModelFactory
from fedtrain.methods.fedavg import FedAvg
from fedtrain.models import Net
from fedtrain.parameters import EntryNames


@dataclass(frozen=True)
class SingleSet(FedAvg):
    """FedAvg that shares nothing."""

    start: Literal["common", "own"] = "common"
    """Whether all clients start from the same weights or each from its own (label-skew convention)."""
    title: ClassVar[str] = "SingleSet"

    def build(self, factory: ModelFactory) -> Net:
        """The network."""
        return factory.build_own() if self.start == "own" else factory.build_common()

    def shared(self, module: Net) -> EntryNames:
        """No entry."""
        return frozenset()
