"""Proven two-sided bounds on the least eigenvalue of a symmetric float64 matrix, and the orderings that they prove.

LAPACK only makes guesses here; each guess is then turned into a proof. The lower bound is S. M. Rump's use of Cholesky
("Verification of positive definiteness", BIT 2006), the upper bound a Rayleigh quotient. Matrix work runs in floating
point under a-priori error bounds that hold for every order of summation, threads, blocks and fused multiply-adds
included (what they exclude is Strassen-like products); every scalar is an exact fraction, rounded once, outwards.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from theory.errors import InputError

Matrix = NDArray[np.float64]

UNIT_ROUNDOFF = Fraction(1, 2**53)  # u: the relative error of one rounding to nearest in float64


@dataclass(frozen=True)
class Enclosure:
    """A number proven to lie in [low, high]."""

    low: float
    high: float

    @property
    def width(self) -> float:
        """The distance from low to high, rounded up."""
        return _round_up(Fraction(self.high) - Fraction(self.low))


@dataclass(frozen=True)
class Ordering:
    """The statement left >= right about two enclosed numbers; left > right if it is ``strict``."""

    left: Enclosure
    right: Enclosure
    strict: bool = False

    @property
    def margin(self) -> float:
        """By how much left is proven to exceed right, rounded down; 0 proves no strict statement."""
        return _round_down(Fraction(self.left.low) - Fraction(self.right.high))

    @property
    def verdict(self) -> Literal["certified", "refuted", "not certifiable"]:
        """Proven true, proven false, or too close to tell in float64."""
        if self.margin > 0 or (self.margin == 0 and not self.strict):
            return "certified"
        below = self.left.high < self.right.low or (self.strict and self.left.high == self.right.low)
        return "refuted" if below else "not certifiable"


def enclose_least_eigenvalue(A: Matrix) -> Enclosure:
    """Enclose λ_min(A) for an exactly symmetric A; the width is about n·u·(trace(A) − n·λ_min) + u·max|A|."""
    _validate_matrix(A)
    least = float(A.diagonal().min())  # e_i'Ae_i is a Rayleigh quotient too, and an exact one
    if np.count_nonzero(A) == np.count_nonzero(A.diagonal()):
        return Enclosure(least, least)
    # A power of two brings the largest entry into [1/2, 1): nothing can overflow, and all underflow fits one tiny term.
    exponent = int(np.frexp(np.abs(A).max())[1])
    scaled = np.ldexp(A, -exponent)
    values, vectors = np.linalg.eigh(scaled)
    guess = float(np.clip(values[0], -len(A), len(A)))  # where λ_min of the scaled matrix must lie
    low = _bound_below_by_cholesky(scaled, guess) * Fraction(2) ** exponent
    high = _bound_above_by_rayleigh(scaled, guess, vectors[:, 0]) * Fraction(2) ** exponent
    return Enclosure(_round_down(low), min(_round_up(high), least))


def enclose_mean(*enclosures: Enclosure) -> Enclosure:
    """Enclose the mean of the enclosed numbers."""
    low, high = sum(Fraction(e.low) for e in enclosures), sum(Fraction(e.high) for e in enclosures)
    return Enclosure(_round_down(Fraction(low, len(enclosures))), _round_up(Fraction(high, len(enclosures))))


def widen(enclosure: Enclosure, error: float) -> Enclosure:
    """Enclose the same number where the matrix that gave it is only known to within ``error`` in norm (Weyl)."""
    low, high = Fraction(enclosure.low) - Fraction(error), Fraction(enclosure.high) + Fraction(error)
    return Enclosure(_round_down(low), _round_up(high))


def certify_orderings(V_on: Matrix, V_off: Matrix) -> dict[str, Ordering]:
    """Certify O2 and both halves of O3 for these two matrices and their exact mean."""
    on, off = enclose_least_eigenvalue(V_on), enclose_least_eigenvalue(V_off)
    if V_on.shape != V_off.shape:
        raise InputError(f"V_on and V_off must have one shape, not {V_on.shape} and {V_off.shape}")
    middle = enclose_mean(on, off)
    return {
        "O2": Ordering(off, on),
        "O3 (mean)": Ordering(_enclose_mean_matrix(V_on, V_off), middle),
        "O3 (strict)": Ordering(middle, on, strict=True),
    }


def _validate_matrix(A: Matrix) -> None:
    """Refuse a matrix that has no least eigenvalue, or one that float64 might not be able to hold."""
    if not isinstance(A, np.ndarray) or A.dtype != np.float64:
        raise InputError(f"the matrix must be a float64 numpy array, not {getattr(A, 'dtype', type(A).__name__)}")
    if A.ndim != 2 or A.shape[0] != A.shape[1] or not A.size:
        raise InputError(f"the matrix must be square and not empty; its shape is {A.shape}")
    largest = float(np.abs(A).max())  # |λ| <= n·largest; the 4 leaves room for bounds, differences and means
    if not math.isfinite(4.0 * len(A) * largest):
        raise InputError(f"the entries must be finite and below 1.7e308/4n; the largest is {largest}: rescale")
    if not np.array_equal(A, A.T):
        raise InputError("the matrix must be exactly symmetric: pass (A + A.T) / 2")


def _shift_diagonal(A: Matrix, shift: float, towards: float) -> Matrix:
    """A − shift·I, the diagonal rounded towards −inf or inf, so that it lies below or above the exact one (Loewner)."""
    B = A.copy()
    np.fill_diagonal(B, np.nextafter(A.diagonal() - shift, towards))
    return B


def _bound_below_by_cholesky(A: Matrix, guess: float) -> Fraction:
    """A lower bound on λ_min(A), |A_ij| <= 1, near the guess; the guess may be wrong, the bound may not."""
    n = len(A)
    # How far below the guess to begin is arbitrary: a fraction of the error bound that the proof subtracts anyway.
    step = float(UNIT_ROUNDOFF) * (1 + (n + 1) * abs(float(np.sum(A.diagonal() - guess)))) / 16
    for attempt in range(12):  # the first or second usually succeeds
        shift = guess - step * 2**attempt
        B = _shift_diagonal(A, shift, -np.inf)
        if _has_cholesky_factor(B):
            trace = sum(map(Fraction, B.diagonal().tolist()), Fraction(0))
            return Fraction(shift) - _bound_rounding_error(n + 1, trace)
    return Fraction(-n)  # no factor found: |A_ij| <= 1 still gives |λ| <= n


def _has_cholesky_factor(B: Matrix) -> bool:
    """If so, R'R = B + E with |E_ij| <= γ_{n+1}·(|R|'|R|)_ij, hence λ_min(B) >= −‖E‖ >= −bound.

    The bound is ``_bound_rounding_error(n + 1, trace(B))``: column j of R has square norm <= B_jj / (1 − γ), so |E| is
    below a rank-one matrix of that norm. The index n + 1 is due to the square roots; that LAPACK multiplies by 1/R_jj
    where textbooks divide stays within it.
    """
    try:
        return bool(np.isfinite(np.linalg.cholesky(B)).all())  # a NaN is not <= 0, so not every LAPACK stops at one
    except np.linalg.LinAlgError:
        return False


def _bound_above_by_rayleigh(A: Matrix, guess: float, x: Matrix) -> Fraction:
    """An upper bound on λ_min(A), |A_ij| <= 1: the Rayleigh quotient of x (any x will do), its errors added."""
    n = len(A)
    # Errors grow with the entries, and the shift removes most of a dominant diagonal.
    B = _shift_diagonal(A, guess, np.inf)
    x = np.clip(x, -1.0, 1.0)  # the underflow term counts on |x_i| <= 1
    size = np.abs(x)
    product, magnitude = float(x @ (B @ x)), float(size @ (np.abs(B) @ size))
    # Two dot products in a row: |product − x'Bx| <= γ_2n·|x|'|B||x|; the computed magnitude errs by no more.
    numerator = Fraction(product) + _bound_rounding_error(2 * n, Fraction(magnitude))
    # x'x is exact, so the bound holds whatever the sign of the numerator.
    return Fraction(guess) + numerator / sum(Fraction(v) ** 2 for v in x.tolist())


def _enclose_mean_matrix(P: Matrix, Q: Matrix) -> Enclosure:
    """Enclose λ_min of the exact (P + Q) / 2 through the rounded one."""
    mean = P / 2 + Q / 2  # halved first so that the sum cannot overflow; halving rounds subnormal numbers only
    largest = Fraction(float(np.abs(mean).max()))
    error = len(mean) * (UNIT_ROUNDOFF * largest + Fraction(1, 2**1074))  # ‖E‖ <= n·max|E_ij|
    found = enclose_least_eigenvalue(mean)
    return Enclosure(_round_down(Fraction(found.low) - error), _round_up(Fraction(found.high) + error))


def _bound_rounding_error(k: int, magnitude: Fraction) -> Fraction:
    """Bound the error of k roundings, relative to a computed magnitude with the same error, plus that of underflow.

    With γ = ku / (1 − ku) the first is γ / (1 − γ)·magnitude. Underflow costs some n² <= k² operations 2^-1074 each:
    far less than the 2^-1000 charged here, which is negligible next to entries of size one.
    """
    return k * UNIT_ROUNDOFF / (1 - 2 * k * UNIT_ROUNDOFF) * magnitude + Fraction((k + 1) ** 2, 2**1000)


def _round_down(exact: Fraction) -> float:
    """The largest float64 that is <= exact; Python divides and compares fractions without error."""
    nearest = float(exact)
    return nearest if nearest <= exact else math.nextafter(nearest, -math.inf)


def _round_up(exact: Fraction) -> float:
    """The smallest float64 that is >= exact."""
    return -_round_down(-exact)
