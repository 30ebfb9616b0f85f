"""Balls enclose: every operation against exact rational arithmetic, on midpoints of any size and radii of any kind."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from theory.ball_arithmetic import Ball, bound_sum_error, multiply_matrices
from theory.errors import InputError

NUMBERS = st.floats(-1e6, 1e6, allow_subnormal=False).filter(lambda x: x == 0 or abs(x) > 1e-6)
RADII = st.sampled_from([0.0, 1e-12, 1e-3])


def ball(mid, rad):
    return Ball(np.array([mid]), np.array([rad * (1 + abs(mid))]))


def ends(one):
    """Both ends and the middle, as fractions."""
    mid, rad = Fraction(float(one.mid.flat[0])), Fraction(float(one.rad.flat[0]))
    return mid - rad, mid, mid + rad


def holds(one, exact):
    low, _, high = ends(one)
    return low <= exact <= high


@settings(max_examples=150, deadline=None)
@given(a=NUMBERS, b=NUMBERS, r=RADII, s=RADII)
def test_sums_and_products(a, b, r, s):
    left, right = ball(a, r), ball(b, s)
    for x in ends(left):
        for y in ends(right):
            assert holds(left + right, x + y)
            assert holds(left - right, x - y)
            assert holds(left * right, x * y)


@settings(max_examples=150, deadline=None)
@given(a=NUMBERS, b=NUMBERS.filter(lambda x: abs(x) > 0.1), r=RADII, s=RADII)
def test_quotients_and_roots(a, b, r, s):
    left, right = ball(a, r), ball(b, s)
    quotient, root = left / right, ball(abs(b), s).sqrt()
    for y in ends(right):
        for x in ends(left):
            assert holds(quotient, x / y)
    low, _, high = ends(root)
    for y in ends(ball(abs(b), s)):
        assert low**2 <= y <= high**2


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), k=st.integers(1, 30), scale=st.sampled_from([1e-100, 1.0, 1e100]))
def test_matrix_products(seed, k, scale):
    rng = np.random.default_rng(seed)
    parts = []
    for shape in ((2, k), (k, 3)):
        mid = scale * rng.standard_normal(shape)
        parts.append(Ball(mid, 1e-10 * scale * rng.random(shape) * rng.integers(0, 2)))
    found = multiply_matrices(*parts)
    signs = [rng.choice([-1, 0, 1], size=one.mid.shape) for one in parts]
    inside = [
        [
            [Fraction(float(m)) + int(t) * Fraction(float(r)) for m, r, t in zip(*rows, strict=True)]
            for rows in zip(one.mid, one.rad, sign, strict=True)
        ]
        for one, sign in zip(parts, signs, strict=True)
    ]
    for p in range(2):
        for q in range(3):
            exact = sum(inside[0][p][j] * inside[1][j][q] for j in range(k))
            assert abs(Fraction(float(found.mid[p, q])) - exact) <= Fraction(float(found.rad[p, q]))


def test_radii_are_not_much_larger_than_rounding():
    a = Ball.exact(np.array([0.1, 3.0]))
    assert ((a + a).rad <= 2.1 * 2**-53 * np.abs(a.mid * 2)).all()
    assert ((a * a).rad <= 1.1 * 2**-53 * np.abs(a.mid**2)).all()
    assert bound_sum_error(1000) == pytest.approx(1000 * 2**-53)


@pytest.mark.parametrize("mid", [0.0, 1e-9, np.nan])
def test_what_may_be_zero_divides_nothing(mid):
    doubtful = Ball(np.array([mid]), np.array([1e-8]))
    with pytest.raises(InputError, match="too ill-conditioned"):
        Ball.exact(np.ones(1)) / doubtful
    with pytest.raises(InputError, match="too ill-conditioned"):
        doubtful.sqrt()
