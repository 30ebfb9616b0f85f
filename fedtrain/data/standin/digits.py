"""Stand-ins for the five domains of Digits: the same printed digits, five ways to see them."""

from __future__ import annotations

import numpy as np

from fedtrain.data.partition.indices import Indices
from fedtrain.data.standin.drawing import (
    Array,
    Pose,
    Rng,
    blend,
    compute_coverage,
    draw_distances,
    draw_grain,
    draw_texture,
    draw_uniform,
    enlarge,
    make_colour,
)
from fedtrain.data.standin.shapes import build_digit_shapes

HANDWRITING = Pose((0.45, 0.8), shift=0.2, rotation=0.4, shear=0.4, wobble=0.2)
"""How written digits vary."""


def mnist(rng: Rng, labels: Indices, size: int) -> Array:
    """White on black, thin or fat, slanted."""
    n = len(labels)
    return blend(
        compute_coverage(_draw_digit_distances(rng, labels, size, HANDWRITING), draw_uniform(rng, -0.4, 0.8, n)),
        draw_uniform(rng, 0.7, 1, n),
        0,
    )


def svhn(rng: Rng, labels: Indices, size: int) -> Array:
    """House numbers: bluish plates of little contrast, out of focus, with the neighbouring digits in view."""
    n = len(labels)
    pose = Pose((0.5, 0.85), shift=0.15, rotation=0.4, shear=0.3)
    back = make_colour(0.3, 0.4, 0.55) + draw_uniform(rng, -0.1, 0.1, n) + draw_uniform(rng, -0.05, 0.05, n, 3)
    soft = draw_uniform(rng, 1.5, 3.5, n)
    covered = compute_coverage(_draw_digit_distances(rng, labels, size, pose), 0.0, soft)
    for aside in (-1.2, 1.2):
        covered = np.maximum(
            covered, compute_coverage(_draw_digit_distances(rng, rng.integers(0, 10, n), size, pose, aside), 0.0, soft)
        )
    fore = back + draw_uniform(rng, 0.1, 0.3, n) + draw_uniform(rng, -0.03, 0.03, n, 3)
    return blend(covered, fore, back) + 0.1 * (draw_texture(rng, n, size, 2) - 0.5) + 0.03 * draw_grain(rng, n, size)


def usps(rng: Rng, labels: Indices, size: int) -> Array:
    """Scanned envelopes: 16 x 16 pixels, bold, filling the frame."""
    n = len(labels)
    pose = Pose((0.6, 0.95), shift=0.1, rotation=0.4, shear=0.4, wobble=0.2)
    covered = compute_coverage(_draw_digit_distances(rng, labels, 16, pose), draw_uniform(rng, 0, 0.9, n), 1.6)
    return enlarge(blend(covered, draw_uniform(rng, 0.6, 1, n), 0), size)


def synthdigits(rng: Rng, labels: Indices, size: int) -> Array:
    """White print on paper of any bright colour, turned further, with pale stray shapes behind."""
    n = len(labels)
    pose = Pose((0.45, 0.85), shift=0.25, rotation=0.5, shear=0.3)
    stray = compute_coverage(
        _draw_digit_distances(rng, rng.integers(0, 10, n), size, Pose((1.2, 2.0), shift=0.8, rotation=3.0))
    )
    back = blend(stray, draw_uniform(rng, 0.5, 0.8, n, 3), draw_uniform(rng, 0.35, 0.85, n, 3))
    return blend(
        compute_coverage(_draw_digit_distances(rng, labels, size, pose), 0.0, draw_uniform(rng, 1, 2.5, n)),
        draw_uniform(rng, 0.9, 1, n, 3),
        back,
    )


def mnist_m(rng: Rng, labels: Indices, size: int) -> Array:
    """The digit turns the colours of a busy background into their opposites."""
    n = len(labels)
    covered = compute_coverage(_draw_digit_distances(rng, labels, size, HANDWRITING), draw_uniform(rng, -0.2, 0.8, n))
    back = draw_uniform(rng, 0, 0.15, n, 3) + 0.35 * draw_texture(rng, n, size, 9)
    return np.abs(back - 0.85 * covered)


STYLES = {style.__name__: style for style in (mnist, svhn, usps, synthdigits, mnist_m)}


def _draw_digit_distances(rng: Rng, labels: Indices, size: int, pose: Pose, aside: float = 0.0) -> Array:
    return draw_distances(rng, build_digit_shapes(), labels, size, pose, aside)
