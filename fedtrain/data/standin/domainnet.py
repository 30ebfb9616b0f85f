"""Stand-ins for the six domains of DomainNet: the same things drawn, printed, painted and seen."""

from __future__ import annotations

import numpy as np

from fedtrain.data.skews.share import Indices
from fedtrain.data.standin.brush import Array, Pose, Rng, colour, grain, ink, lay, line, numbers, paint, texture
from fedtrain.data.standin.glyphs import digits, pictures

FAMILY = 10
"""Class k is the k-th family of pictures from here on."""


def clipart(rng: Rng, labels: Indices, size: int) -> Array:
    """Flat bright colours, thick black outlines, white paper."""
    n = len(labels)
    thing = _lay(rng, labels, size, Pose((0.6, 0.9), turn=0.3))
    return paint(line(thing, 2.5), 0, paint(ink(thing), numbers(rng, 0, 0.8, n, 3), numbers(rng, 0.9, 1, n)))


def infograph(rng: Rng, labels: Indices, size: int) -> Array:
    """A small black sign on a coloured panel, among figures."""
    n = len(labels)
    panel = numbers(rng, 0.4, 0.9, n, 3)
    for aside in (-0.7, 0.0, 0.7):
        figure = lay(rng, digits(), rng.integers(0, 10, n), size, Pose((0.12, 0.2), shift=0.9, turn=0.0), aside)
        panel = paint(ink(figure), numbers(rng, 0.3, 0.9, n, 3), panel)
    return paint(ink(_lay(rng, labels, size, Pose((0.5, 0.75), shift=0.2, turn=0.1)), 0.5), 0.05, panel)


def painting(rng: Rng, labels: Indices, size: int) -> Array:
    """Warm colours in strokes, nothing with a clear edge."""
    n = len(labels)
    thing = _lay(rng, labels, size, Pose((0.6, 0.9), shift=0.15, turn=0.3, wobble=0.15))
    warm = colour(1.0, 0.75, 0.45)
    ground = numbers(rng, 0.35, 0.6, n) + 0.3 * (texture(rng, n, size, 4) - 0.5)
    return warm * paint(ink(thing, 0.5, 3.0), numbers(rng, 0.0, 0.3, n, 3), ground) + 0.15 * (
        texture(rng, n, size, 20) - 0.5
    )


def quickdraw(rng: Rng, labels: Indices, size: int) -> Array:
    """A few black lines on white, in a hurry."""
    thing = _lay(rng, labels, size, Pose((0.7, 0.95), shift=0.05, turn=0.25, shear=0.3, wobble=0.25))
    return paint(line(thing, numbers(rng, 1.5, 3, len(labels))), 0, 1)


def real(rng: Rng, labels: Indices, size: int) -> Array:
    """Photographs: rough things before sky and meadow."""
    n = len(labels)
    thing = _lay(rng, labels, size, Pose((0.5, 0.85), shift=0.2, turn=0.3))
    height = np.linspace(0, 1, size, dtype=np.float32)[:, None]
    sky, meadow = colour(0.4, 0.5, 0.7), colour(0.4, 0.5, 0.2)
    scene = paint(ink(12 * (numbers(rng, 0.3, 0.7, n) - height)), meadow, sky) + 0.2 * (texture(rng, n, size, 8) - 0.5)
    rough = numbers(rng, 0, 0.35, n, 3) * (0.6 + 0.4 * ink(thing, -2.0, 4.0))
    return paint(ink(thing, 0.7), rough, scene) + 0.06 * grain(rng, n, size)


def sketch(rng: Rng, labels: Indices, size: int) -> Array:
    """Grey pencil, hatched, on grainy paper."""
    n = len(labels)
    thing = _lay(rng, labels, size, Pose((0.6, 0.9), turn=0.3, wobble=0.1))
    y, x = np.ogrid[:size, :size]
    hatching = np.float32((x + y) % 6 < 3) * ink(thing)
    covered = np.maximum(0.7 * hatching, line(thing, numbers(rng, 1.5, 2.5, n)))
    return paint(covered * numbers(rng, 0.6, 0.9, n), 0.25, 0.82) + 0.06 * grain(rng, n, size, 1)


STYLES = {style.__name__: style for style in (clipart, infograph, painting, quickdraw, real, sketch)}


def _lay(rng: Rng, labels: Indices, size: int, pose: Pose) -> Array:
    return lay(rng, pictures(), labels + FAMILY, size, pose)
