"""The small network for CIFAR-10 and CIFAR-100."""

from __future__ import annotations

from torch import nn

from fedtrain.models.net import Net, SplitPoint, build_dense_layers, build_split_net


def build_cifar_net(classes: int = 10, *, split_at: SplitPoint = "last", norm: bool = True) -> Net:
    """For images of 3 x 32 x 32; with ``norm`` it has batch norm after every layer but the last, without it none."""
    conv: list[nn.Module] = []
    for inside, outside in ((3, 16), (16, 32)):
        conv += [nn.Conv2d(inside, outside, 5), *([nn.BatchNorm2d(outside)] if norm else []), nn.ReLU()]
        conv += [nn.MaxPool2d(2)]
    return build_split_net(
        [*conv, nn.Flatten()], build_dense_layers((800, 120, 84), norm), nn.Linear(84, classes), split_at
    )
