"""The network of the theory, for images."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from fedtrain.models.net import Net
from theory.network import TwoLayerBN


def two_layer(dim: int, classes: int = 10, *, width: int = 1024) -> Net:
    """`theory.network.TwoLayerBN` behind a flattening of its input; its parts keep their names, its head is fixed."""
    net = TwoLayerBN(dim, width, classes)
    layers = OrderedDict(flatten=nn.Flatten(), **dict(net.features.named_children()))
    return Net(nn.Sequential(layers), net.head)
