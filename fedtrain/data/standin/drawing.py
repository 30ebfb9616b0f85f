"""Drawing many pictures at once: where a shape lies, how its ink covers the paper, what the paper looks like."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedtrain.data.partition.indices import Indices
from fedtrain.data.standin.shapes import FIELD_SIZE, SHAPE_HALF_SIZE, DistanceFields, ShapeSet

Array = NDArray[np.float32]
Rng = np.random.Generator


@dataclass(frozen=True)
class Pose:
    """How much shapes vary. A picture reaches from -1 to 1; angles are in radians."""

    scale: tuple[float, float]
    """Half the longer side of a shape, from least to most."""
    shift: float = 0.1
    rotation: float = 0.2
    shear: float = 0.2
    wobble: float = 0.0
    """Of outlines, as of an unsteady hand."""


def draw_uniform(rng: Rng, low: float, high: float, n: int, channels: int = 1) -> Array:
    """Uniform, (n, channels, 1, 1)."""
    return rng.uniform(low, high, (n, channels, 1, 1)).astype(np.float32)


def make_colour(*channels: float) -> Array:
    """The same everywhere, (channels, 1, 1)."""
    return np.array(channels, dtype=np.float32)[:, None, None]


def draw_distances(
    rng: Rng, shapes: ShapeSet, classes: Indices, size: int, pose: Pose, shift_right: float = 0.0
) -> Array:
    """Distances (n, 1, size, size) in pixels to the outline of a shape of each class, moved ``aside`` to the right."""
    n = len(classes)
    scale, shear = draw_uniform(rng, *pose.scale, n)[:, 0], draw_uniform(rng, -pose.shear, pose.shear, n)[:, 0]
    down, right = (
        draw_uniform(rng, -pose.shift, pose.shift, n)[:, 0],
        draw_uniform(rng, -pose.shift, pose.shift, n)[:, 0],
    )
    angle = rng.uniform(-pose.rotation, pose.rotation, (n, 1, 1))
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    axis = np.linspace(-1, 1, size, dtype=np.float32)
    y, x = (axis[None, :, None] - down) / scale, (axis[None, None, :] - right - shift_right) / scale
    y, x = cos * y - sin * x, sin * y + cos * x
    x = x + shear * y
    if pose.wobble:
        bend = pose.wobble * (2 * draw_texture(rng, n, size, 5, 2) - 1)
        y, x = y + bend[:, 0], x + bend[:, 1]
    distance = _sample_bilinear(
        shapes.fields,
        shapes.sample_fields(rng, classes),
        y * SHAPE_HALF_SIZE + (FIELD_SIZE - 1) / 2,
        x * SHAPE_HALF_SIZE + (FIELD_SIZE - 1) / 2,
    )
    return (distance * scale * (size / 2))[:, None]


def compute_coverage(distance: Array, grow: Array | float = 0.0, soft: Array | float = 1.0) -> Array:
    """How much of a pixel is covered, 0..1: inside the outline moved out by ``grow``, the edge ``soft`` pixels wide."""
    return np.clip(0.5 - (distance - grow) / soft, 0, 1)


def compute_outline_coverage(distance: Array, width: Array | float, soft: float = 1.0) -> Array:
    """The same for the outline itself."""
    return compute_coverage(np.abs(distance), 0.5 * width, soft)


def blend(coverage: Array, fore: Array | float, back: Array | float) -> Array:
    """``fore`` where there is ink, ``back`` elsewhere."""
    return back + (fore - back) * coverage


def draw_texture(rng: Rng, n: int, size: int, cells: int, channels: int = 3) -> Array:
    """Soft random blotches, 0..1, ``cells`` of them in a row."""
    return enlarge(rng.random((n, channels, cells + 1, cells + 1), dtype=np.float32), size)


def draw_grain(rng: Rng, n: int, size: int, channels: int = 3) -> Array:
    """Noise of each pixel, -1..1."""
    return 2 * rng.random((n, channels, size, size), dtype=np.float32) - 1


def enlarge(pictures: Array, size: int) -> Array:
    """To this size, bilinear, corner to corner."""
    at = np.linspace(0, pictures.shape[-1] - 1, size, dtype=np.float32)
    first = np.minimum(at.astype(np.int64), pictures.shape[-1] - 2)
    part = (at - first).astype(np.float32)
    rows = blend(part[:, None], pictures[:, :, first + 1], pictures[:, :, first])
    return blend(part, rows[..., first + 1], rows[..., first])


def _sample_bilinear(fields: DistanceFields, which: Indices, y: Array, x: Array) -> Array:
    y, x = np.clip(y, 0, FIELD_SIZE - 1.001), np.clip(x, 0, FIELD_SIZE - 1.001)
    top, left = np.floor(y), np.floor(x)
    down, right = y - top, x - left
    at = (which[:, None, None] * FIELD_SIZE + top.astype(np.int64)) * FIELD_SIZE + left.astype(np.int64)
    flat = fields.reshape(-1)
    upper = blend(right, flat[at + 1], flat[at])
    lower = blend(right, flat[at + FIELD_SIZE + 1], flat[at + FIELD_SIZE])
    return blend(down, lower, upper)
