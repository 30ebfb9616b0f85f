"""The bounds are checked against exact arithmetic: fractions for small matrices, known spectra for large ones."""

import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from theory import certify
from theory.certify import Enclosure, Ordering, certify_orderings, enclose_least_eigenvalue, enclose_mean
from theory.errors import InputError

UNIT_ROUNDOFF = 2.0**-53


def iterate_pivots(A, shift):
    """The pivots of A - shift*I by exact elimination up to the first negative one; -1 stands for a zero pivot whose
    row is not zero, as no semidefinite matrix has it."""
    M = [[Fraction(v) for v in row] for row in np.asarray(A, dtype=object).tolist()]
    for i, row in enumerate(M):
        row[i] -= Fraction(shift)
    while M:
        head, *rest = M
        if head[0] == 0 and any(head[1:]):
            yield Fraction(-1)
            return
        yield head[0]
        if head[0] < 0:
            return
        if head[0] > 0:
            rest = [[v - row[0] * h / head[0] for v, h in zip(row, head, strict=True)] for row in rest]
        M = [row[1:] for row in rest]


def is_min_eigenvalue_at_least(A, bound):
    """Is λ_min(A) >= bound? Decided exactly."""
    return all(p >= 0 for p in iterate_pivots(A, bound))


def is_min_eigenvalue_at_most(A, bound):
    """Is λ_min(A) <= bound? Decided exactly."""
    return any(p <= 0 for p in iterate_pivots(A, bound))


def compute_error_scale(A):
    """What the error bounds are proportional to, and the grain of the smallest numbers."""
    least = np.linalg.eigvalsh(A)[0]
    return (
        len(A) * UNIT_ROUNDOFF * float(np.trace(A) - len(A) * least)
        + UNIT_ROUNDOFF * float(np.abs(A).max())
        + 2.0**-1074
    )


def assert_proven(A, tight=True):
    found = enclose_least_eigenvalue(A)
    assert found.low <= found.high
    assert is_min_eigenvalue_at_least(A, found.low)
    assert is_min_eigenvalue_at_most(A, found.high)
    if tight:
        assert found.width <= 8 * compute_error_scale(A)
    return found


def symmetrize(values):
    return np.tril(values) + np.tril(values, -1).T


def build_gram(X):
    return symmetrize(X @ X.T)


def build_near_singular(rng, n):
    """Gram matrices close to rank deficiency, each in a way of its own."""
    basis = rng.standard_normal((n, max(1, n - 1)))
    parallel = rng.standard_normal(n) + 1e-8 * rng.standard_normal((n, n))
    whole = rng.integers(-9, 10, (n, n - 1)).astype(float)
    ulp = build_gram(whole)
    ulp[0, 0] = np.nextafter(ulp[0, 0], rng.choice([-np.inf, np.inf]))
    hilbert = 1.0 / (np.add.outer(np.arange(n), np.arange(n)) + rng.integers(1, 9))
    return [build_gram(basis), build_gram(parallel), build_gram(whole), ulp, hilbert]


def build_hadamard(n):
    H = np.ones((1, 1))
    while len(H) < n:
        H = np.block([[H, H], [H, -H]])
    return H


# ---- the referee itself


def test_exact_referee_knows_two_by_two():
    A = np.array([[2.0, 1.0], [1.0, 2.0]])  # 1 and 3
    below, above = math.nextafter(1, 0), math.nextafter(1, 2)
    assert is_min_eigenvalue_at_least(A, 1.0)
    assert is_min_eigenvalue_at_most(A, 1.0)
    assert is_min_eigenvalue_at_least(A, below)
    assert not is_min_eigenvalue_at_most(A, below)
    assert is_min_eigenvalue_at_most(A, above)
    assert not is_min_eigenvalue_at_least(A, above)
    swap = np.array([[0.0, 1.0], [1.0, 0.0]])
    assert not is_min_eigenvalue_at_least(swap, 0.0)
    assert is_min_eigenvalue_at_most(swap, 0.0)


# ---- exactly known spectra


@pytest.mark.parametrize(
    "diagonal", [[0.0], [-3.5], [0.0, 0.0, 0.0], [3.0, -1e-300, 7e200], [5e-324, 1.0], [-0.1, 0.3]]
)
def test_diagonal_matrices_are_enclosed_exactly(diagonal):
    assert enclose_least_eigenvalue(np.diag(diagonal)) == Enclosure(min(diagonal), min(diagonal))


@pytest.mark.parametrize(
    ("A", "least"),
    [
        ([[2, 1], [1, 2]], 1),
        ([[0, 3], [3, 0]], -3),
        ([[5, 2], [2, 2]], 1),
        ([[1, 1], [1, 1]], 0),
        ([[-4, 6], [6, 5]], -7),
    ],
)
def test_integers_two_by_two(A, least):
    found = assert_proven(np.array(A, dtype=float))
    assert found.low <= least <= found.high


@pytest.mark.parametrize("n", [4, 16, 64, 256])
@pytest.mark.parametrize("least", [1.0, 0.0, -5.0, 2.0**-20])
def test_hadamard_spectrum(n, least):
    rng = np.random.default_rng(n)
    spectrum = rng.integers(8, 100, n).astype(float)
    spectrum[rng.integers(n)] = least
    H = build_hadamard(n)
    A = (H * spectrum) @ H / n  # sums of dyadic numbers: no rounding at all
    found = enclose_least_eigenvalue(A)
    assert found.low <= least <= found.high
    assert found.width <= 3 * n * UNIT_ROUNDOFF * float(np.sum(spectrum - least)) + 4 * UNIT_ROUNDOFF * 100


@pytest.mark.parametrize("n", [4, 64])
def test_householder_reflection(n):
    A = np.eye(n) - np.ones((n, n)) * (2 / n)
    found = enclose_least_eigenvalue(A)
    assert found.low <= -1 <= found.high
    assert found.width <= 4 * compute_error_scale(A)


@pytest.mark.parametrize("n", [2, 3, 10, 50, 200])
def test_second_difference_matrix(n):
    A = 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    least = 4 * math.sin(math.pi / (2 * (n + 1))) ** 2
    found = enclose_least_eigenvalue(A)
    assert found.low <= least * (1 + 8 * UNIT_ROUNDOFF)
    assert least * (1 - 8 * UNIT_ROUNDOFF) <= found.high
    assert found.width <= 4 * compute_error_scale(A)


# ---- exact arithmetic

entries = st.floats(-1e3, 1e3, allow_subnormal=True)


@st.composite
def draw_matrices(draw, elements=entries):
    n = draw(st.integers(1, 6))
    values = draw(st.lists(elements, min_size=n * n, max_size=n * n))
    return symmetrize(np.array(values).reshape(n, n))


@settings(max_examples=150, deadline=None)
@given(draw_matrices())
def test_any_matrix(A):
    assert_proven(A)


@settings(max_examples=100, deadline=None)
@given(draw_matrices(st.integers(-3, 3).map(float)))
def test_integer_gram_matrices(X):
    A = build_gram(X[:, : max(1, len(X) - 1)])
    found = assert_proven(A)
    if len(A) > 1:
        assert found.low <= 0 <= found.high


@settings(max_examples=100, deadline=None)
@given(draw_matrices(st.floats(allow_nan=False, min_value=-(2.0**1000), max_value=2.0**1000)))
def test_entries_of_all_magnitudes(A):
    assert_proven(A, tight=False)


@pytest.mark.parametrize("n", range(2, 7))
def test_near_singular(n):
    rng = np.random.default_rng(n)
    for _ in range(12):
        for A in build_near_singular(rng, n):
            assert_proven(A)
            assert_proven(A - float(rng.integers(1, 5)) * np.eye(n))


@pytest.mark.parametrize("power", [-1074, -1060, -1022, -1000, -500, 500, 1000, 1010])
def test_scales(power):
    for A in build_near_singular(np.random.default_rng(7), 4):
        unit = A / 2.0 ** np.frexp(np.abs(A).max())[1]
        scaled = np.ldexp(unit, power)  # rounds where it meets subnormal numbers: still a given matrix
        assert_proven(scaled)


def test_scaling_by_a_power_of_two_scales_the_enclosure():
    A = build_gram(np.random.default_rng(3).standard_normal((6, 6)))
    found = enclose_least_eigenvalue(A)
    for power in (-900, -3, 8, 900):
        moved = enclose_least_eigenvalue(np.ldexp(A, power))
        assert moved == Enclosure(math.ldexp(found.low, power), math.ldexp(found.high, power))


def test_zero_on_the_diagonal_bounds_from_above_exactly():
    A = np.array([[0.0, 1e-200], [1e-200, 1.0]])  # λ_min = -1e-400
    assert assert_proven(A).high == 0.0


# ---- each link of the proof


@given(draw_matrices(), entries)
def test_shift_rounds_the_diagonal_outwards(A, shift):
    below, above = certify._shift_diagonal(A, shift, -np.inf), certify._shift_diagonal(A, shift, np.inf)
    for i, entry in enumerate(A.diagonal().tolist()):
        assert Fraction(below[i, i]) <= Fraction(entry) - Fraction(shift) <= Fraction(above[i, i])
    off = ~np.eye(len(A), dtype=bool)
    assert np.array_equal(below[off], A[off])
    assert np.array_equal(above[off], A[off])


@pytest.mark.parametrize("k", [1, 2, 100, 10**6])
def test_error_bound_formula(k):
    gamma = Fraction(k, 2**53) / (1 - Fraction(k, 2**53))
    underflow = certify._bound_rounding_error(k, Fraction(0))
    assert k**2 * Fraction(1, 2**1022) < underflow < Fraction(1, 2**900)
    assert certify._bound_rounding_error(k, Fraction(3)) == gamma / (1 - gamma) * 3 + underflow


def test_a_completed_factorisation_is_charged_in_full(monkeypatch):
    seen = []
    monkeypatch.setattr(certify, "_has_cholesky_factor", lambda B: seen.append(B) or True)
    A = build_gram(np.random.default_rng(2).standard_normal((6, 6))) / 64
    low = certify._bound_below_by_cholesky(A, -0.25)
    trace = sum(Fraction(b) for b in seen[0].diagonal().tolist())
    assert trace > 1
    assert Fraction(-0.25) - low > Fraction(7, 2**53) * trace


# ---- the proof does not lean on the eigensolver


def test_lower_bound_survives_where_cholesky_is_too_kind(monkeypatch):
    """Guesses off by a few roundings: Cholesky completes on some matrices that are not definite; the bound must pay."""
    solve, completes, misled = np.linalg.eigh, certify._has_cholesky_factor, 0

    def counted(B):
        nonlocal misled
        verdict = completes(B)
        misled += verdict and not is_min_eigenvalue_at_least(B, 0)
        return verdict

    def optimist(excess, A):
        values, vectors = solve(A)
        return values + excess * UNIT_ROUNDOFF * float(np.trace(A) - len(A) * values[0]), vectors

    monkeypatch.setattr(certify, "_has_cholesky_factor", counted)
    rng = np.random.default_rng(0)
    for excess in (0.0, 0.25, 0.5, 0.75):
        monkeypatch.setattr(np.linalg, "eigh", partial(optimist, excess))
        for n in (2, 3, 4) * 25:
            for A in build_near_singular(rng, n):
                assert_proven(A)
    assert misled >= 10  # else this test has shown nothing


def test_wrong_eigenpairs_cost_width_not_truth(monkeypatch):
    rng = np.random.default_rng(1)
    for wrong in (-1e9, -1.0, 0.4, 1e9):
        monkeypatch.setattr(np.linalg, "eigh", lambda A, w=wrong: (np.full(len(A), w), rng.standard_normal(A.shape)))
        for A in build_near_singular(rng, 4):
            assert_proven(A, tight=False)


def test_nan_factor_is_no_proof(monkeypatch):
    monkeypatch.setattr(np.linalg, "cholesky", lambda B: np.full(B.shape, np.nan))
    A = np.array([[2.0, 1.0], [1.0, 2.0]])
    found = enclose_least_eigenvalue(A)
    assert found.low == -8.0  # -n at the scale 2^2: what is known without a factor
    assert 1 <= found.high < 1.001


# ---- tightness


@pytest.mark.parametrize("n", [10, 100, 300])
def test_width_is_the_price_of_cholesky(n):
    X = np.random.default_rng(n).standard_normal((n, 2 * n))
    for A in (build_gram(X), build_gram(X[:, : n // 2]), symmetrize(X[:, :n])):
        found = enclose_least_eigenvalue(A)
        guess = np.linalg.eigvalsh(A)[0]
        assert found.width <= 2 * compute_error_scale(A)
        assert abs(found.low - guess) <= 2 * compute_error_scale(A)
        assert abs(found.high - guess) <= 2 * compute_error_scale(A)


def test_dominant_diagonal_is_mostly_a_shift():
    n = 100
    A = np.eye(n) + 1e-15 * build_gram(np.random.default_rng(0).standard_normal((n, n)))
    assert enclose_least_eigenvalue(A).width <= 32 * UNIT_ROUNDOFF


# ---- numbers and statements

finite = st.floats(-1e300, 1e300)


@given(st.lists(st.tuples(finite, finite).map(sorted), min_size=1, max_size=4))
def test_mean_is_the_tightest_enclosure(pairs):
    found = enclose_mean(*(Enclosure(*pair) for pair in pairs))
    low, high = (sum(map(Fraction, side)) / len(pairs) for side in zip(*pairs, strict=True))
    assert Fraction(found.low) <= low < Fraction(math.nextafter(found.low, math.inf))
    assert Fraction(math.nextafter(found.high, -math.inf)) < high <= Fraction(found.high)


@given(st.tuples(finite, finite).map(sorted), st.tuples(finite, finite).map(sorted))
def test_margin_and_width_round_outwards(first, second):
    left, right = Enclosure(*first), Enclosure(*second)
    assert Fraction(left.width) >= Fraction(left.high) - Fraction(left.low)
    statement = Ordering(left, right)
    assert Fraction(statement.margin) <= Fraction(left.low) - Fraction(right.high)
    if left.low >= right.high:
        assert statement.verdict == "certified"
    elif left.high < right.low:
        assert statement.verdict == "refuted"
    else:
        assert statement.verdict == "not certifiable"
    strict = Ordering(left, right, strict=True)
    if left.low > right.high:
        assert strict.verdict == "certified"
    elif left.high <= right.low:
        assert strict.verdict == "refuted"
    else:
        assert strict.verdict == "not certifiable"


def test_equality_is_not_strict():
    """One client with one sample: each side is known exactly, and they are the same number."""
    V = np.array([[0.375]])
    verdicts = {key: statement.verdict for key, statement in certify_orderings(V, V.copy()).items()}
    assert verdicts["O2"] == "certified"
    assert verdicts["O3 (strict)"] == "refuted"


def keep_client_blocks(V, blocks):
    owner = np.arange(len(V)) * blocks // len(V)
    return np.where(owner[:, None] == owner, V, 0.0)


@pytest.mark.parametrize("n", [6, 40, 120])
def test_orderings_of_a_matrix_and_its_pinching(n):
    V_on = build_gram(np.random.default_rng(n).standard_normal((n, n + 3)))
    V_off = keep_client_blocks(V_on, 3)
    right = certify_orderings(V_on, V_off)
    assert list(right) == ["O2", "O3 (mean)", "O3 (strict)"]
    assert {statement.verdict for statement in right.values()} == {"certified"}
    assert all(statement.margin > 0 for statement in right.values())
    wrong = certify_orderings(V_off, V_on)
    assert {key: statement.verdict for key, statement in wrong.items()} == {
        "O2": "refuted",
        "O3 (mean)": "certified",  # concavity: true of any two matrices
        "O3 (strict)": "refuted",
    }


@pytest.mark.parametrize("n", [2, 5, 60])
def test_identical_matrices_are_not_certifiable(n):
    V = build_gram(np.random.default_rng(n).standard_normal((n, n)))
    assert {statement.verdict for statement in certify_orderings(V, V.copy()).values()} == {"not certifiable"}


@pytest.mark.parametrize("power", [0, -1030, 1015])
def test_mean_matrix_is_the_exact_one(power):
    rng = np.random.default_rng(5)
    for n in range(1, 6):
        for _ in range(10):
            P, Q = (np.ldexp(symmetrize(rng.uniform(-1, 1, (n, n))), power) for _ in range(2))
            found = certify_orderings(P, Q)["O3 (mean)"].left
            exact = [
                [(Fraction(p) + Fraction(q)) / 2 for p, q in zip(*rows, strict=True)] for rows in zip(P, Q, strict=True)
            ]
            assert is_min_eigenvalue_at_least(exact, found.low)
            assert is_min_eigenvalue_at_most(exact, found.high)


def test_mean_matrix_owns_its_rounding():
    """1 + 2^-60 is not a float64: the mean of these two diagonals has the least eigenvalue 1/2 + 2^-61 exactly."""
    found = certify_orderings(np.diag([1.0, 2.0]), np.diag([2.0**-60, 2.0]))["O3 (mean)"].left
    assert Fraction(found.low) <= Fraction(1, 2) + Fraction(1, 2**61) <= Fraction(found.high)
    assert found.width <= 16 * UNIT_ROUNDOFF


# ---- bad input


@pytest.mark.parametrize(
    "A",
    [
        np.array([[1.0, 2.0], [math.nextafter(2, 3), 1.0]]),
        np.array([[1.0, np.nan], [np.nan, 1.0]]),
        np.array([[np.inf, 0.0], [0.0, 1.0]]),
        np.full((2, 2), 1e308),
        np.ones((2, 3)),
        np.ones(4),
        np.ones((1, 1, 1)),
        np.float64(1.0),
        np.empty((0, 0)),
        np.eye(2, dtype=np.float32),
        np.eye(2, dtype=int),
        np.eye(2, dtype=complex),
        [[1.0, 0.0], [0.0, 1.0]],
        None,
    ],
    ids=lambda A: f"{type(A).__name__}{getattr(A, 'shape', '')}{getattr(A, 'dtype', '')}",
)
def test_bad_matrices_are_refused(A):
    with pytest.raises(InputError) as caught:
        enclose_least_eigenvalue(A)
    assert "\n" not in str(caught.value)


def test_orderings_need_one_shape():
    with pytest.raises(InputError, match="one shape"):
        certify_orderings(np.eye(2), np.eye(3))


def test_the_given_matrix_is_left_alone():
    A = build_gram(np.random.default_rng(0).standard_normal((5, 5)))
    A.setflags(write=False)
    copy = A.copy()
    certify_orderings(A, A)
    assert np.array_equal(A, copy)
