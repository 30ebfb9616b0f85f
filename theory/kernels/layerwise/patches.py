"""What each output position of a convolution sees of its input."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor
from torch.nn.modules.conv import _ConvNd


def extract_patches(layer: _ConvNd, x: Tensor) -> Tensor:
    """(n, channels, *space) as (n, groups, channels of a group · kernel, positions)."""
    dims = x.dim() - 2
    if padding := _list_padding(layer):
        x = F.pad(x, padding, "constant" if layer.padding_mode == "zeros" else layer.padding_mode)
    for axis in range(dims):
        span = layer.dilation[axis] * (layer.kernel_size[axis] - 1) + 1
        x = x.unfold(2 + axis, span, layer.stride[axis])
    for axis, step in enumerate(layer.dilation):
        x = x[(slice(None),) * (2 + dims + axis) + (slice(None, None, step),)]
    x = x.permute(0, 1, *range(2 + dims, 2 + 2 * dims), *range(2, 2 + dims))  # n, channels, kernel, positions
    inside = x.shape[1] // layer.groups
    return x.reshape(len(x), layer.groups, inside * _multiply(layer.kernel_size), -1)


def _list_padding(layer: _ConvNd) -> list[int]:
    """Before and after, from the last axis to the first, as torch's pad wants it; empty for none."""
    sides: list[int] = []
    for axis in reversed(range(len(layer.kernel_size))):
        if isinstance(layer.padding, str):
            whole = layer.dilation[axis] * (layer.kernel_size[axis] - 1) if layer.padding == "same" else 0
            sides += [whole // 2, whole - whole // 2]
        else:
            sides += [layer.padding[axis]] * 2
    return sides if any(sides) else []


def _multiply(sizes: tuple[int, ...]) -> int:
    product = 1
    for size in sizes:
        product *= size
    return product
