"""Proofs about the formula: its value to fifty digits lies in the enclosure, and what is proved is what is true."""

from dataclasses import replace
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from studies import compute_eigenvalues

from theory import InputError, Problem, Study, draw_initial_weights, draw_synthetic_problem, formula_certificates
from theory.ball_arithmetic import Ball
from theory.collect_results import certify_study_formula
from theory.config import TheoryConfig
from theory.formula_certificates import certify_formula, enclose_kernel

mpmath.mp.dps = 50


def evaluate(problem, weights, projection="exact"):
    """V of the formula, entry by entry and unit by unit, to fifty digits."""
    exact = [[mpmath.mpf(value) for value in row] for row in problem.x.tolist()]
    n, d, m = len(exact), problem.dim, weights.width
    V = mpmath.zeros(n, n)
    features = []
    for p in range(n):
        i = int(problem.owner[p])
        v_all, gamma, c = (one.tolist() for one in weights.get_client_weights(i))
        S = [[mpmath.mpf(value) for value in row] for row in problem.S[i].tolist()]
        row = []
        for k in range(m):
            v, g = [mpmath.mpf(value) for value in v_all[k]], mpmath.mpf(gamma[k])
            Sv = [mpmath.fsum(S[a][b] * v[b] for b in range(d)) for a in range(d)]
            q, h = mpmath.fdot(v, Sv), mpmath.fdot(v, exact[p])
            gate = 1 if g * h > 0 else 0
            unit = gate * mpmath.mpf(weights.alpha) * c[k] * g / mpmath.sqrt(q * m)
            direction, size = (v, mpmath.fdot(v, v)) if projection == "printed" else (Sv, q)
            row += [unit * (exact[p][a] - direction[a] * h / size) for a in range(d)]
        features.append(row)
    for p in range(n):
        for r in range(n):
            if not weights.is_personal or problem.owner[p] == problem.owner[r]:
                V[p, r] = mpmath.fdot(features[p], features[r])
    return V


@pytest.fixture(scope="module")
def small():
    problem = draw_synthetic_problem(2, [2, 3], 3, seed=5)
    return problem, draw_initial_weights(problem, 12, 0.5, seed=5)


def measure_excess(found, exact):
    """The largest |V - V̂| over its bound; between clients with networks of their own both are 0."""
    ratios = []
    for (p, q), radius in np.ndenumerate(found.radius):
        error = abs(exact[p, q] - mpmath.mpf(float(found.mid[p, q])))
        ratios.append(error / mpmath.mpf(float(radius)) if radius else mpmath.mpf(0 if error == 0 else 2))
    return max(ratios)


@pytest.mark.parametrize("projection", ["exact", "printed"])
@pytest.mark.parametrize("kind", ["initial", "trained", "personal"])
def test_the_formula_lies_in_its_enclosure(small, trained, kind, projection):
    problem, weights = small
    if kind == "trained":
        weights = trained(problem, 12)
    if kind == "personal":
        weights = replace(weights.copy_per_client(), v=torch.stack([weights.v, 2 * weights.v.flip(0)]))
    found = enclose_kernel(problem, weights, projection)
    excess = measure_excess(found, evaluate(problem, weights, projection))
    assert excess <= 1
    assert excess > 1e-4  # and the bound is not idle
    moved = replace(found, mid=found.mid + 2 * found.radius)
    assert measure_excess(moved, evaluate(problem, weights, projection)) > 1


def test_gates_in_doubt_are_decided_exactly():
    """v.x = 2^-60 and 0 in exact numbers; in float64 both sums may round to anything near 0."""
    tiny = 2.0**-60
    x = torch.tensor([[1.0, 1.0, tiny], [1.0, 1.0, 0.0], [1.0, 1.0, -tiny]], dtype=torch.float64)
    problem = Problem(
        x, torch.ones(3, dtype=torch.float64), torch.tensor([0, 0, 0]), torch.eye(3, dtype=torch.float64)[None]
    )
    weights = replace(draw_initial_weights(problem, 1, 0.5), v=torch.tensor([[1.0, -1.0, 1.0]], dtype=torch.float64))
    found = enclose_kernel(problem, weights)
    assert found.exact_gates >= 1
    assert found.mid[0, 0] > 0
    assert found.mid[1, 1] == found.mid[2, 2] == 0
    assert measure_excess(found, evaluate(problem, weights)) <= 1


def test_a_gate_that_float64_gets_wrong_is_right():
    """1 beside 2^54: the sum is 0 in float64, whatever the other gates say."""
    large = 2.0**54
    x = torch.tensor([[large, 1.0, -large], [large, -1.0, -large]], dtype=torch.float64)
    S = torch.eye(3, dtype=torch.float64)[None]
    problem = Problem(x, torch.ones(2, dtype=torch.float64), torch.tensor([0, 0]), S)
    weights = replace(draw_initial_weights(problem, 1, 0.5), v=torch.ones(1, 3, dtype=torch.float64))
    found = enclose_kernel(problem, weights)
    assert found.exact_gates == 2
    assert found.mid[0, 0] > 0
    assert found.mid[1, 1] == 0


def test_the_rounding_of_sums_is_covered_alone(monkeypatch):
    """With features known exactly, nothing but the sums over hidden units and dimensions rounds."""
    rng = np.random.default_rng(0)
    rows = [rng.standard_normal((size, 64 * 3)) for size in (2, 2)]
    pieces = iter(rows)
    monkeypatch.setattr(formula_certificates, "_enclose_features", lambda *_: (Ball.exact(next(pieces)), 0))
    problem = draw_synthetic_problem(2, 2, 3, seed=1)
    found = enclose_kernel(problem, draw_initial_weights(problem, 64, 0.5))
    exact = [[Fraction(value) for value in row] for row in np.concatenate(rows).tolist()]
    errors = [
        abs(sum(a * b for a, b in zip(exact[p], exact[q], strict=True)) - Fraction(float(found.mid[p, q])))
        for p in range(4)
        for q in range(4)
    ]
    assert max(errors) > 0
    assert all(error <= Fraction(float(bound)) for error, bound in zip(errors, found.radius.flat, strict=True))


def test_orderings_are_certified_and_enclose_what_lapack_finds():
    study = Study.at_init(draw_synthetic_problem(3, 5, 5, seed=1), 512, seed=1)
    found = certify_formula(study.problem, study.online, study.offline)
    assert found.pinched
    assert {proof.verdict for proof in found.orderings.values()} == {"certified"}
    values = {
        name: compute_eigenvalues(k.V)[0]
        for name, k in (("on", study.online_kernel), ("off", study.offline_kernel), ("half", study.fused_kernel))
    }
    sides = {
        "off": found.orderings["O2"].left,
        "on": found.orderings["O2"].right,
        "half": found.orderings["O3 (mean)"].left,
    }
    for name, side in sides.items():
        assert side.low <= values[name] <= side.high
        assert side.width < 1e-9
    assert max(found.rounding.values()) < 1e-10


def test_chunks_change_nothing_but_rounding(small, monkeypatch):
    problem, weights = small
    whole = enclose_kernel(problem, weights)
    monkeypatch.setattr("theory.formula_certificates.MAX_CHUNK_ENTRIES", 5 * 3 * 5)
    parts = enclose_kernel(problem, weights)
    assert np.abs(whole.mid - parts.mid).max() < 1e-15
    assert measure_excess(parts, evaluate(problem, weights)) <= 1


def test_other_offline_weights_are_no_pinched_kernel():
    study = Study.at_init(draw_synthetic_problem(3, 4, 4, seed=1), 256, seed=1)
    weak = replace(study.offline, gamma=0.1 * study.offline.gamma)
    found = certify_formula(study.problem, study.online, weak)
    assert not found.pinched
    assert found.orderings["O2"].verdict == "refuted"
    assert found.orderings["O5 (w = 0 over 1/8)"].verdict == "refuted"
    assert found.orderings["O3 (mean)"].verdict == "certified"


def test_one_client_certifies_no_strict_fall():
    study = Study.at_init(draw_synthetic_problem(1, 4, 4, seed=1), 64, seed=1)
    found = certify_formula(study.problem, study.online, study.offline)
    assert found.orderings["O5 (w = 0 over 1/2)"].verdict == "not certifiable"


def test_data_too_extreme_for_float64_are_said_to_be():
    study = TheoryConfig(clients=2, samples=2, dim=3, width=8).build_study()
    flat = replace(study.problem, S=study.problem.S * 1e-310)
    with pytest.raises(InputError, match="too ill-conditioned"):
        certify_formula(flat, study.online, study.offline)
    proofs, note = certify_study_formula(Study(flat, study.online))
    assert proofs is None
    assert note is not None
    assert "only about the matrices as computed" in note


def test_the_package_names_the_function():
    """Also after the module that defines it was loaded."""
    import theory

    assert theory.certify_formula is theory.certify_formula is certify_formula
