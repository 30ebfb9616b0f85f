"""The network for Digits: three convolutions (the paper says four; both code bases have three), three dense layers."""

from __future__ import annotations

from torch import nn

from fedtrain.models.net import Net, SplitPoint, build_dense_layers, build_split_net


def build_digits_net(classes: int = 10, *, split_at: SplitPoint = "conv", dense_norm: bool = True) -> Net:
    """For images of 3 x 28 x 28; ``dense_norm`` puts batch norm on the dense layers too."""
    conv: list[nn.Module] = []
    for inside, outside, pool in ((3, 64, True), (64, 64, True), (64, 128, False)):
        conv += [nn.Conv2d(inside, outside, 5, padding=2), nn.BatchNorm2d(outside), nn.ReLU()]
        conv += [nn.MaxPool2d(2)] if pool else []
    return build_split_net(
        [*conv, nn.Flatten()], build_dense_layers((6272, 2048, 512), dense_norm), nn.Linear(512, classes), split_at
    )
