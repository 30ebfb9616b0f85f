"""FedBN: average all but batch norm (Li et al., 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from fedtrain.methods.base import PersonalNorm
from fedtrain.methods.fedavg import FedAvg
from fedtrain.models import Net
from fedtrain.parameters import EntryNames, all_entries, norm_entries

BatchNormStatistics = Literal["local", "shared"]


@dataclass(frozen=True)
class FedBN(FedAvg):
    """FedAvg whose batch norm stays personal."""

    bn_stats: BatchNormStatistics = "local"
    """Whether the running statistics stay personal too, or only weight and bias (label-skew convention)."""
    norm: PersonalNorm = "batch"
    """Which normalisation layers stay personal."""
    title: ClassVar[str] = "FedBN"
    needs_batch_norm: ClassVar[bool] = True

    @property
    def personal_norm(self) -> PersonalNorm:
        """As its option says."""
        return self.norm

    def shared(self, module: Net) -> EntryNames:
        """All but batch norm."""
        return all_entries(module) - norm_entries(module, self.norm, stats=self.bn_stats == "local")
