"""How many training samples a Digits client has."""

from __future__ import annotations

from itertools import pairwise

from theory.errors import InputError

RATIO_PARTS = 10
DIGITS_POOL_SIZE = 7438
"""Training samples of USPS, the smallest of the five; the parts of all five are cut to its length."""


def compute_part_sizes(size: int) -> list[int]:
    """Ten parts with bounds ⌊i · size / 10⌋."""
    if size < RATIO_PARTS:
        raise InputError(f"size is {size}; ten parts need at least {RATIO_PARTS} samples")
    bounds = [i * size // RATIO_PARTS for i in range(RATIO_PARTS + 1)]
    return [after - before for before, after in pairwise(bounds)]


def count_train_samples(size: int, percent: float) -> int:
    """How many samples from the start are trained on: the first ⌊10 · percent⌋ parts, below 0.1 a share of part 0.

    ``percent`` is a share (0.1 is ten per cent), as in the option of that name in the published code.
    """
    if not 0 < percent <= 1:
        raise InputError(f"percent is {percent}; it is a share of the samples: choose it in (0, 1]")
    parts = compute_part_sizes(size)
    tenths = round(percent * RATIO_PARTS, 9)
    amount = sum(parts[: int(tenths)]) if tenths >= 1 else int(parts[0] * tenths)
    if amount == 0:
        raise InputError(f"percent {percent} of {size} samples leaves none; raise percent")
    return amount
