"""The normalisation layers of networks that leave it to the configuration."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

NormLayer = Literal["batch", "group", "none"]
MAX_GROUPS, MIN_CHANNELS = 8, 4
"""Groups of a layer at most, and channels of a group at least: one alone, on an image of one pixel, would become 0."""


class GroupNorm(nn.GroupNorm):
    """Torch's, of images in whatever layout: under vmap its own takes those whose channels come first."""

    def forward(self, x: Tensor) -> Tensor:
        """As ever."""
        return super().forward(x.contiguous())


def build_norm(kind: NormLayer, units: int, *, images: bool) -> list[nn.Module]:
    """The layer that follows one of so many units or channels, if any; units of a dense layer are one group."""
    if kind == "none":
        return []
    if kind == "group":
        groups = [n for n in range(2, MAX_GROUPS + 1) if units % n == 0 and units // n >= MIN_CHANNELS]
        return [GroupNorm(max(groups, default=1) if images else 1, units)]
    return [nn.BatchNorm2d(units) if images else nn.BatchNorm1d(units)]
