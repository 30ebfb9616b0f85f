"""A network for tables: two hidden layers."""

from __future__ import annotations

from torch import nn

from fedtrain.models.net import Net, SplitPoint, build_split_net
from fedtrain.models.norm import NormLayer, build_norm


def build_mlp(
    inputs: int, classes: int = 2, *, units: int = 64, split_at: SplitPoint = "conv", norm: NormLayer = "batch"
) -> Net:
    """For inputs of any shape with so many numbers; it has no convolutions, and its first layer stands for them."""

    def layer(before: int) -> list[nn.Module]:
        return [nn.Linear(before, units), *build_norm(norm, units, images=False), nn.ReLU()]

    return build_split_net([nn.Flatten(), *layer(inputs)], layer(units), nn.Linear(units, classes), split_at)
