"""AlexNet with batch norm, for Office-Caltech10 and DomainNet."""

from __future__ import annotations

from torch import nn

from fedtrain.models.net import Net, SplitPoint, build_dense_layers, build_split_net


def build_alexnet(classes: int = 10, *, split_at: SplitPoint = "conv", dense_norm: bool = True) -> Net:
    """For images of 3 x 256 x 256; ``dense_norm`` puts batch norm on the dense layers too."""
    shapes = (
        (3, 64, 11, 4, 2, True),
        (64, 192, 5, 1, 2, True),
        (192, 384, 3, 1, 1, False),
        (384, 256, 3, 1, 1, False),
        (256, 256, 3, 1, 1, True),
    )
    conv: list[nn.Module] = []
    for inside, outside, kernel, stride, padding, pool in shapes:
        conv += [nn.Conv2d(inside, outside, kernel, stride, padding), nn.BatchNorm2d(outside), nn.ReLU()]
        conv += [nn.MaxPool2d(3, 2)] if pool else []
    conv += [nn.AdaptiveAvgPool2d(6), nn.Flatten()]  # 7 x 7 arrives at 256 pixels, so the pooling does average
    return build_split_net(conv, build_dense_layers((9216, 4096, 4096), dense_norm), nn.Linear(4096, classes), split_at)
