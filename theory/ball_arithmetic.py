"""Arrays of real numbers known to within a radius: every operation encloses the exact result.

A ball is a float64 midpoint with a radius >= 0 for each entry. Radii are computed in ordinary floating point and then
enlarged by more than their own rounding can be, so that no rounding mode has to be switched. Underflow is covered by a
tiny constant in each radius. Products of matrices hold for every order of summation, as in ``theory.certify``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from theory.errors import InputError

Array = NDArray[np.float64]

UNIT_ROUNDOFF = 2.0**-53
ENLARGE = 1 + 2.0**-48
"""More than 16 roundings can take from a sum or product of numbers >= 0."""
TINY = 2.0**-1000
"""More than underflow can cost any operation here."""


@dataclass(frozen=True)
class Ball:
    """mid - rad <= x <= mid + rad, entry by entry."""

    mid: Array
    rad: Array

    @classmethod
    def exact(cls, values: Array | float) -> Ball:
        """Numbers that are what they are."""
        mid = np.asarray(values, dtype=np.float64)
        return cls(mid, np.zeros_like(mid))

    def __getitem__(self, index: Any) -> Ball:
        return Ball(self.mid[index], self.rad[index])

    def __add__(self, other: Ball) -> Ball:
        return self._round(self.mid + other.mid, self.rad + other.rad)

    def __sub__(self, other: Ball) -> Ball:
        return self._round(self.mid - other.mid, self.rad + other.rad)

    def __mul__(self, other: Ball) -> Ball:
        spread = np.abs(self.mid) * other.rad + self.rad * (np.abs(other.mid) + other.rad)
        return self._round(self.mid * other.mid, spread)

    def __truediv__(self, other: Ball) -> Ball:
        """Exact quotients differ from the one of the midpoints by (δa - (a/b) δb) / b', b' within the divisor."""
        least = (np.abs(other.mid) - other.rad) * (2 - ENLARGE) - TINY
        if not (least > 0).all():
            raise InputError("a divisor is not known to differ from 0: the data are too ill-conditioned for float64")
        mid = self.mid / other.mid
        return self._round(mid, (self.rad + ENLARGE * np.abs(mid) * other.rad + TINY) / least)

    def sqrt(self) -> Ball:
        """|√a' - √a| <= |a' - a| / √a."""
        if not (self.mid > self.rad).all():
            raise InputError("a square is not known to be positive: the data are too ill-conditioned for float64")
        mid = np.sqrt(self.mid)
        return self._round(mid, ENLARGE * self.rad / mid)

    @staticmethod
    def _round(mid: Array, spread: Array) -> Ball:
        return Ball(mid, ENLARGE * (spread + UNIT_ROUNDOFF * np.abs(mid)) + TINY)


def multiply_matrices(a: Ball, b: Ball) -> Ball:
    """The product of matrices; leading dimensions broadcast."""
    size_a, size_b = np.abs(a.mid), np.abs(b.mid)
    spread = bound_sum_error(a.mid.shape[-1]) * (size_a @ size_b)
    if a.rad.any():
        spread = spread + a.rad @ (size_b + b.rad)
    if b.rad.any():
        spread = spread + size_a @ b.rad
    # each product above errs by at most the same share of itself
    return Ball(a.mid @ b.mid, ENLARGE * (1 + 2 * bound_sum_error(a.mid.shape[-1])) * spread + TINY)


def bound_sum_error(terms: int) -> float:
    """γ_k = ku / (1 - ku), rounded up: the error of a sum of k products, relative to the sum of their sizes."""
    return ENLARGE * terms * UNIT_ROUNDOFF / (1 - ENLARGE * terms * UNIT_ROUNDOFF)
