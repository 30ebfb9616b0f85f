"""Stand-ins for the six domains of DomainNet: the same things drawn, printed, painted and seen."""

from __future__ import annotations

import numpy as np

from fedtrain.data.partition.indices import Indices
from fedtrain.data.standin.drawing import (
    Array,
    Pose,
    Rng,
    blend,
    compute_coverage,
    compute_outline_coverage,
    draw_distances,
    draw_grain,
    draw_texture,
    draw_uniform,
    make_colour,
)
from fedtrain.data.standin.shapes import build_digit_shapes, build_symbol_shapes

FIRST_FAMILY = 10
"""Class k is the k-th family of pictures from here on."""


def clipart(rng: Rng, labels: Indices, size: int) -> Array:
    """Flat bright colours, thick black outlines, white paper."""
    n = len(labels)
    thing = _draw_symbol_distances(rng, labels, size, Pose((0.6, 0.9), rotation=0.3))
    return blend(
        compute_outline_coverage(thing, 2.5),
        0,
        blend(compute_coverage(thing), draw_uniform(rng, 0, 0.8, n, 3), draw_uniform(rng, 0.9, 1, n)),
    )


def infograph(rng: Rng, labels: Indices, size: int) -> Array:
    """A small black sign on a coloured panel, among figures."""
    n = len(labels)
    panel = draw_uniform(rng, 0.4, 0.9, n, 3)
    for aside in (-0.7, 0.0, 0.7):
        figure = draw_distances(
            rng, build_digit_shapes(), rng.integers(0, 10, n), size, Pose((0.12, 0.2), shift=0.9, rotation=0.0), aside
        )
        panel = blend(compute_coverage(figure), draw_uniform(rng, 0.3, 0.9, n, 3), panel)
    return blend(
        compute_coverage(_draw_symbol_distances(rng, labels, size, Pose((0.5, 0.75), shift=0.2, rotation=0.1)), 0.5),
        0.05,
        panel,
    )


def painting(rng: Rng, labels: Indices, size: int) -> Array:
    """Warm colours in strokes, nothing with a clear edge."""
    n = len(labels)
    thing = _draw_symbol_distances(rng, labels, size, Pose((0.6, 0.9), shift=0.15, rotation=0.3, wobble=0.15))
    warm = make_colour(1.0, 0.75, 0.45)
    ground = draw_uniform(rng, 0.35, 0.6, n) + 0.3 * (draw_texture(rng, n, size, 4) - 0.5)
    return warm * blend(compute_coverage(thing, 0.5, 3.0), draw_uniform(rng, 0.0, 0.3, n, 3), ground) + 0.15 * (
        draw_texture(rng, n, size, 20) - 0.5
    )


def quickdraw(rng: Rng, labels: Indices, size: int) -> Array:
    """A few black lines on white, in a hurry."""
    thing = _draw_symbol_distances(
        rng, labels, size, Pose((0.7, 0.95), shift=0.05, rotation=0.25, shear=0.3, wobble=0.25)
    )
    return blend(compute_outline_coverage(thing, draw_uniform(rng, 1.5, 3, len(labels))), 0, 1)


def real(rng: Rng, labels: Indices, size: int) -> Array:
    """Photographs: rough things before sky and meadow."""
    n = len(labels)
    thing = _draw_symbol_distances(rng, labels, size, Pose((0.5, 0.85), shift=0.2, rotation=0.3))
    height = np.linspace(0, 1, size, dtype=np.float32)[:, None]
    sky, meadow = make_colour(0.4, 0.5, 0.7), make_colour(0.4, 0.5, 0.2)
    scene = blend(compute_coverage(12 * (draw_uniform(rng, 0.3, 0.7, n) - height)), meadow, sky) + 0.2 * (
        draw_texture(rng, n, size, 8) - 0.5
    )
    rough = draw_uniform(rng, 0, 0.35, n, 3) * (0.6 + 0.4 * compute_coverage(thing, -2.0, 4.0))
    return blend(compute_coverage(thing, 0.7), rough, scene) + 0.06 * draw_grain(rng, n, size)


def sketch(rng: Rng, labels: Indices, size: int) -> Array:
    """Grey pencil, hatched, on grainy paper."""
    n = len(labels)
    thing = _draw_symbol_distances(rng, labels, size, Pose((0.6, 0.9), rotation=0.3, wobble=0.1))
    y, x = np.ogrid[:size, :size]
    hatching = np.float32((x + y) % 6 < 3) * compute_coverage(thing)
    covered = np.maximum(0.7 * hatching, compute_outline_coverage(thing, draw_uniform(rng, 1.5, 2.5, n)))
    return blend(covered * draw_uniform(rng, 0.6, 0.9, n), 0.25, 0.82) + 0.06 * draw_grain(rng, n, size, 1)


STYLES = {style.__name__: style for style in (clipart, infograph, painting, quickdraw, real, sketch)}


def _draw_symbol_distances(rng: Rng, labels: Indices, size: int, pose: Pose) -> Array:
    return draw_distances(rng, build_symbol_shapes(), labels + FIRST_FAMILY, size, pose)
