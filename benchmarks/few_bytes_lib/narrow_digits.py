"""The network for Digits with an eighth of the channels and units: a fiftieth of the work, and heads that are as much
of it as there (97 %). In a file of its own, for it is named on the command line."""

from __future__ import annotations

from torch import nn

from fedtrain.models.net import Net, SplitPoint, build_dense_layers, build_split_net


def build_with_head(classes: int) -> Net:
    """Cut where the paper cuts it: before the dense layers."""
    return build_narrow_net(classes, "conv")


def build_with_last_layer(classes: int) -> Net:
    """Cut before the last layer, which alone is published."""
    return build_narrow_net(classes, "last")


def build_narrow_net(classes: int, split_at: SplitPoint) -> Net:
    """For images of 3 x 28 x 28."""
    conv: list[nn.Module] = []
    for inside, outside, pool in ((3, 8, True), (8, 8, True), (8, 16, False)):
        conv += [nn.Conv2d(inside, outside, 5, padding=2), nn.BatchNorm2d(outside), nn.ReLU()]
        conv += [nn.MaxPool2d(2)] if pool else []
    dense = build_dense_layers((784, 256, 64), norm=True)
    return build_split_net([*conv, nn.Flatten()], dense, nn.Linear(64, classes), split_at)
