"""Stand-ins for CIFAR-10 and CIFAR-100: pictures of any colour before anything, and pictures in five colours."""

from __future__ import annotations

import numpy as np

from fedtrain.data.partition.indices import Indices
from fedtrain.data.partition.known_labels import CIFAR100_COARSE
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
    make_colour,
)
from fedtrain.data.standin.shapes import build_symbol_shapes

POSE = Pose((0.6, 0.95), shift=0.15, rotation=0.35, wobble=0.1)
COLOURS = np.stack(
    [
        make_colour(0.9, 0.2, 0.2),
        make_colour(0.9, 0.8, 0.2),
        make_colour(0.2, 0.8, 0.3),
        make_colour(0.2, 0.4, 0.9),
        make_colour(0.9, 0.9, 0.9),
    ]
)
RANK_IN_SUPERCLASS = np.array([int((CIFAR100_COARSE[:k] == coarse).sum()) for k, coarse in enumerate(CIFAR100_COARSE)])
"""Which of the five classes of its superclass a class is."""


def cifar10(rng: Rng, labels: Indices, size: int) -> Array:
    """Ten families of pictures, bright on dark or dark on bright."""
    n = len(labels)
    light = rng.random((n, 1, 1, 1)) < 0.5
    bright, dark = draw_uniform(rng, 0.55, 1, n, 3), draw_uniform(rng, 0, 0.45, n, 3)
    return _draw_scene(rng, 2 * labels, np.where(light, bright, dark), np.where(light, dark, bright), size)


def cifar100(rng: Rng, labels: Indices, size: int) -> Array:
    """A superclass is a family of pictures, a class of it one of five colours."""
    n = len(labels)
    fore = COLOURS[RANK_IN_SUPERCLASS[labels]] + draw_uniform(rng, -0.1, 0.1, n, 3)
    return _draw_scene(rng, CIFAR100_COARSE[labels], fore, draw_uniform(rng, 0, 0.45, n, 3), size)


def _draw_scene(rng: Rng, families: Indices, fore: Array, back: Array, size: int) -> Array:
    n = len(families)
    scene = back + 0.5 * (draw_texture(rng, n, size, 4) - 0.5)
    covered = compute_coverage(draw_distances(rng, build_symbol_shapes(), families, size, POSE), 0.3, 1.5)
    return blend(covered, fore, scene) + 0.08 * draw_grain(rng, n, size)


STYLES = {style.__name__: style for style in (cifar10, cifar100)}
