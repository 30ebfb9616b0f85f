"""Stand-ins for the four domains of Office-Caltech10: photographs of the same things in four places."""

from __future__ import annotations

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
from fedtrain.data.standin.shapes import build_symbol_shapes

WOOD = make_colour(0.42, 0.28, 0.16)


def amazon(rng: Rng, labels: Indices, size: int) -> Array:
    """Of a shop: coloured, upright, alone on white with a soft shadow."""
    n = len(labels)
    thing = draw_distances(rng, build_symbol_shapes(), labels, size, Pose((0.65, 0.9), shift=0.08, rotation=0.15))
    paper = blend(compute_coverage(thing, 3.0, 10.0), 0.75, 0.98)
    return blend(compute_coverage(thing, 0.5), _shade(thing, draw_uniform(rng, 0, 0.7, n, 3)), paper)


def caltech(rng: Rng, labels: Indices, size: int) -> Array:
    """Of the web: any colour in front of anything."""
    n = len(labels)
    thing = draw_distances(rng, build_symbol_shapes(), labels, size, Pose((0.5, 0.85), shift=0.2, rotation=0.3))
    scene = 0.5 * draw_texture(rng, n, size, 3) + 0.3 * draw_texture(rng, n, size, 10)
    return blend(
        compute_coverage(thing, 0.5), _shade(thing, draw_uniform(rng, 0.55, 1, n, 3)), scene
    ) + 0.05 * draw_grain(rng, n, size)


def dslr(rng: Rng, labels: Indices, size: int) -> Array:
    """Of a good camera: sharp, bright things on a dark desk, lit from one side."""
    return _draw_desk(rng, labels, size) * (0.55 + 0.6 * draw_texture(rng, len(labels), size, 1, 1))


def webcam(rng: Rng, labels: Indices, size: int) -> Array:
    """Of a poor camera: the same desk, few pixels, washed out, greenish, noisy."""
    n, few = len(labels), size // 2
    faded = make_colour(0.42, 0.52, 0.45) + 0.28 * (_draw_desk(rng, labels, few).mean(1, keepdims=True) - 0.4)
    return enlarge(faded + 0.03 * draw_grain(rng, n, few), size)


STYLES = {style.__name__: style for style in (amazon, caltech, dslr, webcam)}
TRAIN_COUNTS = {"amazon": 766, "caltech": 898, "dslr": 125, "webcam": 236}
"""As many as the real domains have."""


def _draw_desk(rng: Rng, labels: Indices, size: int) -> Array:
    n = len(labels)
    thing = draw_distances(rng, build_symbol_shapes(), labels, size, Pose((0.55, 0.85), shift=0.15, rotation=0.4))
    desk = WOOD * (0.5 + 0.6 * draw_texture(rng, n, size, 6, 1))
    return blend(compute_coverage(thing, 0.5), _shade(thing, draw_uniform(rng, 0.6, 1, n, 3)), desk)


def _shade(thing: Array, tone: Array) -> Array:
    """Darker towards the edges, as if round."""
    return tone * (0.75 + 0.25 * compute_coverage(thing, -1.5, 3.0))
