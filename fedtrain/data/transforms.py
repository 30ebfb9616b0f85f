"""Turn a batch of pixels into the input of a network, on the device of the batch."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from fedtrain.data.client_data import Preprocessing

MAX_ROTATION = math.radians(30)


def preprocess(
    inputs: Tensor,
    preprocessing: Preprocessing,
    *,
    training: bool,
    noise: float,
    rng: torch.Generator,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Bytes / 255, flipped and turned while training if so wished, (x - mean) / std, with noise drawn anew.

    Pixel noise is N(0, σ²) on 0..255, and the sum is clamped to 0..255. Normalised noise comes last, and the sum is
    clamped to 0..255 as published: all that is darker than the mean becomes 0, for a client of σ = 0 too.
    Inputs that are floating numbers already are neither divided by 255, nor flipped or turned, nor clamped.
    Draws are made on the CPU, from ``chance``, and in single precision: every device and ``dtype`` sees the same ones.
    """
    pixels = not inputs.is_floating_point()
    turned = flip_and_rotate(inputs, rng) if pixels and training and preprocessing.augment else inputs
    # Our own copy, changed in place from here on: fresh memory for each step would take longer than the steps.
    x = turned.to(dtype or torch.get_default_dtype(), copy=turned is inputs)
    if preprocessing.noise_unit == "pixel":
        add_noise(x, noise, rng)
        if pixels and noise:
            x.clamp_(0, 255)
    if pixels:
        x.div_(255)
    if any(preprocessing.mean) or set(preprocessing.std) != {1.0}:
        x.sub_(reshape_per_channel(preprocessing.mean, x)).div_(reshape_per_channel(preprocessing.std, x))
    if preprocessing.noise_unit == "normalised":
        add_noise(x, noise, rng)
        if pixels:
            x.clamp_(0, 255)
    return x


def reshape_per_channel(values: tuple[float, ...], like: Tensor) -> Tensor:
    """One value for each channel (or one for all), in a shape that fits a batch."""
    return torch.tensor(values, dtype=like.dtype, device=like.device).reshape(-1, *[1] * (like.ndim - 2))


def add_noise(x: Tensor, sigma: float, rng: torch.Generator) -> None:
    """Add Gaussian noise of this standard deviation in place; no draw for none."""
    if sigma:
        x.add_(torch.randn(x.shape, generator=rng, dtype=torch.float32).to(x), alpha=sigma)


def flip_and_rotate(images: Tensor, rng: torch.Generator) -> Tensor:
    """Each image (n, C, H, W) mirrored left to right with probability 1/2, then turned by up to 30° either way.

    Turned about its centre, nearest pixel, black where nothing was: one look-up at p ↦ F R(φ) p for both.
    """
    flip, turn = torch.rand(2, len(images), generator=rng, dtype=torch.float32)
    side = torch.where(flip < 0.5, -1.0, 1.0)
    angle = MAX_ROTATION * (2 * turn - 1)
    return apply_flip_and_rotation(images, side, angle)


def apply_flip_and_rotation(images: Tensor, side: Tensor, angle: Tensor) -> Tensor:
    """Images mirrored where ``side`` is -1, then turned counterclockwise by ``angle`` (radians), as float32."""
    height, width = images.shape[-2:]
    cos, sin, none = angle.cos(), angle.sin(), torch.zeros_like(angle)
    across = torch.stack([side * cos, side * -sin * (height / width), none], dim=1)
    down = torch.stack([sin * (width / height), cos, none], dim=1)
    theta = torch.stack([across, down], dim=1).to(images.device)
    grid = affine_grid(theta, list(images.shape), align_corners=False)
    return grid_sample(images.float(), grid, mode="nearest", padding_mode="zeros", align_corners=False)
