"""FedBN: average all but batch norm (Li et al., 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from fedtrain.methods.fedavg import FedAvg
from fedtrain.models import Net
from fedtrain.partition import Names, batch_norm, everything

Statistics = Literal["local", "shared"]


@dataclass(frozen=True)
class FedBN(FedAvg):
    """FedAvg whose batch norm stays personal."""

    bn_stats: Statistics = "local"
    """Whether the running statistics stay personal too, or only weight and bias (label-skew convention)."""
    title: ClassVar[str] = "FedBN"
    needs_norm: ClassVar[bool] = True

    def shared(self, module: Net) -> Names:
        """All but batch norm."""
        return everything(module) - batch_norm(module, stats=self.bn_stats == "local")
