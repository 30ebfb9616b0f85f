"""A small residual network for images of any size and number of channels (He et al., 2016)."""

from __future__ import annotations

from itertools import pairwise
from math import ceil, log2

from torch import Tensor, nn

from fedtrain.models.net import Net, SplitPoint, build_split_net
from fedtrain.models.norm import NormLayer, build_norm

STAGES = 3
"""Each with a block of two convolutions, twice the channels of the one before and half its height and width."""
LARGEST_SIDE = 64
"""Of what the first stage sees; larger images are made smaller before it."""


class ResidualBlock(nn.Module):
    """ReLU of the input plus two convolutions of it; where their shapes differ, the input is projected."""

    def __init__(self, inside: int, outside: int, stride: int, norm: NormLayer) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride, 1),
            *build_norm(norm, outside, images=True),
            nn.ReLU(),
            nn.Conv2d(outside, outside, 3, 1, 1),
            *build_norm(norm, outside, images=True),
        )
        self.shortcut = nn.Sequential(
            *([] if inside == outside and stride == 1 else [nn.Conv2d(inside, outside, 1, stride)])
        )
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Of the same number of dimensions."""
        y: Tensor = self.relu(self.residual(x) + self.shortcut(x))
        return y


class SpatialMean(nn.Module):
    """The mean over all pixels; torch's adaptive pooling is slow under vmap."""

    def forward(self, x: Tensor) -> Tensor:
        """From (n, channels, height, width) to (n, channels)."""
        return x.mean((2, 3))


def build_resnet(
    shape: tuple[int, int, int],
    classes: int = 10,
    *,
    channels: int = 16,
    split_at: SplitPoint = "conv",
    norm: NormLayer = "batch",
) -> Net:
    """For images of ``shape``, which is channels x height x width; ``channels`` are those of the first stage."""
    colours, height, width = shape
    halvings = max(0, ceil(log2(max(height, width) / LARGEST_SIDE)))
    conv: list[nn.Module] = [nn.Conv2d(colours, channels, 3, 1 + (halvings > 0), 1)]
    conv += [*build_norm(norm, channels, images=True), nn.ReLU()]
    conv += [nn.MaxPool2d(3, 2, 1) for _ in range(halvings - 1)]
    sizes = [channels, *(channels * 2**stage for stage in range(STAGES))]
    conv += [
        ResidualBlock(inside, outside, 1 + (stage > 0), norm) for stage, (inside, outside) in enumerate(pairwise(sizes))
    ]
    conv += [SpatialMean()]
    hidden = [nn.Linear(sizes[-1], sizes[-1]), *build_norm(norm, sizes[-1], images=False), nn.ReLU()]
    return build_split_net(conv, hidden, nn.Linear(sizes[-1], classes), split_at)
