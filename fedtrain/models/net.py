"""A network in two parts, features and head, and where it is split."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from torch import Tensor, nn

SplitPoint = Literal["conv", "last"]
"""Where ``features`` ends: before the fully connected layers, or before the last of them."""


class Net(nn.Module):
    """``head`` after ``features``; any module with these two parts can be trained."""

    def __init__(self, features: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.features, self.head = features, head

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.head(self.features(x))


def build_dense_layers(sizes: Sequence[int], norm: bool) -> list[nn.Module]:
    """Hidden fully connected layers, each linear, batch norm where wanted, ReLU."""
    layers: list[nn.Module] = []
    for inside, outside in pairwise(sizes):
        layers += [nn.Linear(inside, outside), *([nn.BatchNorm1d(outside)] if norm else []), nn.ReLU()]
    return layers


def build_split_net(
    conv: Sequence[nn.Module], hidden: Sequence[nn.Module], last: nn.Module, split_at: SplitPoint
) -> Net:
    """Part the layers at the cut."""
    if split_at == "conv":
        return Net(nn.Sequential(*conv), nn.Sequential(*hidden, last))
    return Net(nn.Sequential(*conv, *hidden), nn.Sequential(last))
