"""FedAvg: average everything (McMahan et al., 2017)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedtrain.methods.base import Batch, Method, ModelFactory, RoundContext
from fedtrain.models import Net
from fedtrain.parameters import EntryNames, all_entries


@dataclass(frozen=True)
class FedAvg(Method[Net]):
    """One network, all of it shared."""

    title: ClassVar[str] = "FedAvg"

    def build(self, factory: ModelFactory) -> Net:
        """The network."""
        return factory.build_common()

    def shared(self, module: Net) -> EntryNames:
        """All of it."""
        return all_entries(module)

    def loss(self, module: Net, batch: Batch, context: RoundContext[Net]) -> Tensor:
        """Cross entropy."""
        x, y = batch
        return context.cross_entropy(module(x), y)

    def branches(self, module: Net, x: Tensor, context: RoundContext[Net]) -> Mapping[str, Tensor]:
        """The network."""
        return {"model": module(x)}
