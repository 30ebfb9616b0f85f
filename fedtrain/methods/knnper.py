"""kNN-Per: the shared model beside the client's own nearest training samples (Marfoq et al., 2022)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fedtrain.methods.base import RoundContext
from fedtrain.methods.fedavg import FedAvg
from fedtrain.methods.fusion import FusingMethod
from fedtrain.models import Net, SplitPoint
from theory.errors import InputError


@dataclass(frozen=True)
class KnnPer(FusingMethod[Net], FedAvg):
    """FedAvg; only predictions differ: λ p_neighbours + (1 - λ) p_model.

    With the fusion ``weighted`` each client chooses its own λ on its validation samples, as in the paper.
    """

    weight: float = 0.5
    """λ, the share of the neighbours."""
    k: int = 10
    """How many neighbours have a say."""
    scale: float = 1.0
    """s in a neighbour's weight exp(-‖z - z'‖² / (d s)), d being the number of features."""
    title: ClassVar[str] = "kNN-Per"
    split_at: ClassVar[SplitPoint] = "last"
    needs_training_data: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= 1:
            raise InputError(f"method.weight is {self.weight}; choose it in [0, 1]")
        if self.k < 1:
            raise InputError(f"method.k is {self.k}; it must be at least 1")
        if not self.scale > 0:
            raise InputError(f"method.scale is {self.scale}; it must be above 0")

    @property
    def branch_names(self) -> Sequence[str]:
        """The network and the neighbours."""
        return ("model", "neighbours")

    def prepare_prediction(self, module: Net, context: RoundContext[Net]) -> RoundContext[Net]:
        """Remember the features and labels of the training samples."""
        features, labels = [], []
        for x, y in context.training_samples():
            features.append(module.features(x).flatten(1))
            labels.append(y)
        return replace(context, memory=(torch.cat(features), torch.cat(labels)))

    def branches(self, module: Net, x: Tensor, context: RoundContext[Net]) -> Mapping[str, Tensor]:
        """The network, and the logarithm of what the neighbours vote for; without a memory the network alone."""
        z = module.features(x)
        own = {"model": module.head(z)}
        if context.memory is None:
            return own
        votes = self._count_votes(z.flatten(1), context.memory, own["model"].shape[-1])
        return own | {"neighbours": votes.clamp_min(torch.finfo(votes.dtype).tiny).log()}

    def _count_votes(self, z: Tensor, memory: tuple[Tensor, Tensor], classes: int) -> Tensor:
        """The weights of the nearest samples by their classes; they add up to one."""
        known, labels = memory
        squares = torch.cdist(z, known, compute_mode="donot_use_mm_for_euclid_dist").square()
        near, which = squares.topk(min(self.k, len(known)), largest=False)
        weights = (-near / (z.shape[1] * self.scale)).softmax(-1)
        return weights.new_zeros(len(z), classes).scatter_add_(1, labels[which], weights)

    def fuse(self, branches: Mapping[str, Tensor], context: RoundContext[Net]) -> Tensor:
        """Both; without a memory the network alone."""
        return super().fuse(branches, context) if "neighbours" in branches else branches["model"]

    def fuse_as_published(self, branches: Mapping[str, Tensor], context: RoundContext[Net]) -> Tensor:
        """The logarithm of the mixture of probabilities."""
        own = branches["model"]
        if self.weight == 0:
            return own
        mixed = self.weight * branches["neighbours"].exp() + (1 - self.weight) * own.softmax(-1)
        return mixed.clamp_min(torch.finfo(mixed.dtype).tiny).log()
