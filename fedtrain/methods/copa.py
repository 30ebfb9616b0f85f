"""COPA: shared features must suit every client's head (Wu & Gong, 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedtrain.methods.base import Batch, RoundContext
from fedtrain.methods.fedper import FedPer
from fedtrain.models import Net, SplitPoint


@dataclass(frozen=True)
class Copa(FedPer):
    """FedPer whose heads are published: the peers' heads judge the features, and all heads vote."""

    title: ClassVar[str] = "COPA"
    split_at: ClassVar[SplitPoint] = "last"

    @property
    def published(self) -> str:
        """The head."""
        return "head"

    def loss(self, module: Net, batch: Batch, context: RoundContext[Net]) -> Tensor:
        """Own loss plus the loss under each peer's head."""
        x, y = batch
        z = module.features(x)
        own, others = context.cross_entropy(module.head(z), y), len(context.peers)
        if not others:
            return own
        return own + others * context.cross_entropy(context.peers(z).flatten(0, 1), y.repeat(others))

    def branches(self, module: Net, x: Tensor, context: RoundContext[Net]) -> Mapping[str, Tensor]:
        """The own head, and the mean of the peers'."""
        z = module.features(x)
        own = {"own": module.head(z)}
        return own | {"peers": context.peers(z).mean(0)} if context.peers else own

    def fuse(self, branches: Mapping[str, Tensor], context: RoundContext[Net]) -> Tensor:
        """The mean over all heads."""
        if not context.peers:
            return branches["own"]
        others = len(context.peers)
        return (branches["own"] + others * branches["peers"]) / (1 + others)
