"""The network of the theory, for images."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import nn

from fedtrain.models.net import Net
from theory.network import SCALE_KEY, TwoLayerBN


def build_two_layer_net(dim: int, classes: int = 10, *, width: int = 1024) -> Net:
    """`theory.network.TwoLayerBN` behind a flattening of its input; its parts keep their names, its head is fixed.

    It starts with γ = 1 and |v| about 1. The theory's γ = |v|/α is for inputs of length 1: on images the first logits
    would be some fifty times too large, and a step of v, whose length does not matter, a thousand times too short.
    """
    net = TwoLayerBN(dim, width, classes, alpha=dim**-0.5)
    with torch.no_grad():
        net.get_parameter(SCALE_KEY).fill_(1)
    layers = OrderedDict(flatten=nn.Flatten(), **dict(net.features.named_children()))
    return Net(nn.Sequential(layers), net.head)
