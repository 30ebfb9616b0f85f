"""Stand-ins for the five domains of Digits: the same printed digits, five ways to see them."""

from __future__ import annotations

import numpy as np

from fedtrain.data.skews.share import Indices
from fedtrain.data.standin.brush import Array, Pose, Rng, colour, enlarge, grain, ink, lay, numbers, paint, texture
from fedtrain.data.standin.glyphs import digits

HAND = Pose((0.45, 0.8), shift=0.2, turn=0.4, shear=0.4, wobble=0.2)
"""How written digits vary."""


def mnist(rng: Rng, labels: Indices, size: int) -> Array:
    """White on black, thin or fat, slanted."""
    n = len(labels)
    return paint(ink(_lay(rng, labels, size, HAND), numbers(rng, -0.4, 0.8, n)), numbers(rng, 0.7, 1, n), 0)


def svhn(rng: Rng, labels: Indices, size: int) -> Array:
    """House numbers: bluish plates of little contrast, out of focus, with the neighbouring digits in view."""
    n = len(labels)
    pose = Pose((0.5, 0.85), shift=0.15, turn=0.4, shear=0.3)
    back = colour(0.3, 0.4, 0.55) + numbers(rng, -0.1, 0.1, n) + numbers(rng, -0.05, 0.05, n, 3)
    soft = numbers(rng, 1.5, 3.5, n)
    covered = ink(_lay(rng, labels, size, pose), 0.0, soft)
    for aside in (-1.2, 1.2):
        covered = np.maximum(covered, ink(_lay(rng, rng.integers(0, 10, n), size, pose, aside), 0.0, soft))
    fore = back + numbers(rng, 0.1, 0.3, n) + numbers(rng, -0.03, 0.03, n, 3)
    return paint(covered, fore, back) + 0.1 * (texture(rng, n, size, 2) - 0.5) + 0.03 * grain(rng, n, size)


def usps(rng: Rng, labels: Indices, size: int) -> Array:
    """Scanned envelopes: 16 x 16 pixels, bold, filling the frame."""
    n = len(labels)
    pose = Pose((0.6, 0.95), shift=0.1, turn=0.4, shear=0.4, wobble=0.2)
    covered = ink(_lay(rng, labels, 16, pose), numbers(rng, 0, 0.9, n), 1.6)
    return enlarge(paint(covered, numbers(rng, 0.6, 1, n), 0), size)


def synthdigits(rng: Rng, labels: Indices, size: int) -> Array:
    """White print on paper of any bright colour, turned further, with pale stray shapes behind."""
    n = len(labels)
    pose = Pose((0.45, 0.85), shift=0.25, turn=0.5, shear=0.3)
    stray = ink(_lay(rng, rng.integers(0, 10, n), size, Pose((1.2, 2.0), shift=0.8, turn=3.0)))
    back = paint(stray, numbers(rng, 0.5, 0.8, n, 3), numbers(rng, 0.35, 0.85, n, 3))
    return paint(ink(_lay(rng, labels, size, pose), 0.0, numbers(rng, 1, 2.5, n)), numbers(rng, 0.9, 1, n, 3), back)


def mnist_m(rng: Rng, labels: Indices, size: int) -> Array:
    """The digit turns the colours of a busy background into their opposites."""
    n = len(labels)
    covered = ink(_lay(rng, labels, size, HAND), numbers(rng, -0.2, 0.8, n))
    back = numbers(rng, 0, 0.15, n, 3) + 0.35 * texture(rng, n, size, 9)
    return np.abs(back - 0.85 * covered)


STYLES = {style.__name__: style for style in (mnist, svhn, usps, synthdigits, mnist_m)}


def _lay(rng: Rng, labels: Indices, size: int, pose: Pose, aside: float = 0.0) -> Array:
    return lay(rng, digits(), labels, size, pose, aside)
