"""K3, K4, K6 both ways: the kernel of infinite width, and the way to it."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from studies import (
    build_scaled_identities,
    build_study,
    build_two_clients,
    check_claim,
    compute_eigenvalues,
    draw_normal,
    override_study,
)

from theory import Problem, draw_synthetic_problem
from theory.claims import limits
from theory.claims.limits import fit_slope

# K3: V^inf is strictly positive definite


@pytest.mark.parametrize("name", ["usual", "isotropic"])
def test_k3_holds(name, request):
    study = request.getfixturevalue(name)
    found = check_claim("K3", study)
    assert found.verdict == "holds"
    e = found.evidence
    assert e["lambda_min"] == found.lhs == pytest.approx(compute_eigenvalues(study.limit_kernels["online"].V)[0])
    assert e["low"] < e["lambda_min"] < e["high"]
    low, value, high = e["quasi_monte_carlo"]
    assert low <= value <= high
    assert low - 1e-8 <= e["lambda_min"] <= high + 1e-8
    assert abs(e["lambda_min_with_two_parallel_samples"]) < 1e-6 * e["lambda_min"]


@pytest.mark.parametrize("kind", ["anisotropic", "scaled"])
def test_k3_fails_for_two_parallel_samples_on_one_client(kind):
    problem = draw_synthetic_problem(3, 5, 5, covariance=kind, seed=1)
    problem.x[1] = 3 * problem.x[0]
    found = check_claim("K3", build_study(problem))
    assert found.verdict == "fails"
    assert found.words.endswith(": 0 to rounding")
    assert abs(found.lhs) < 1e-10


@pytest.mark.parametrize("value", [0.1, 0.7, 0.8, 1.3, 1.6, 3.3])
def test_k3_does_not_take_rounding_for_an_eigenvalue(value):
    """d = 1: V = 0, but it is computed as a difference and comes out an ulp above or below."""
    x = torch.tensor([[value]], dtype=torch.float64)
    problem = Problem(x, torch.ones(1, dtype=torch.float64), torch.tensor([0]), build_scaled_identities(1, dim=1))
    assert check_claim("K3", build_study(problem, 8)).verdict == "fails"


def test_k3_fails_for_one_direction_on_two_isotropic_clients():
    first = draw_normal(3, 5)
    second = torch.cat([2 * first[:1], draw_normal(2, 5, seed=1)])
    assert (
        check_claim("K3", build_study(build_two_clients(first, second, build_scaled_identities(1, 4, dim=5)))).verdict
        == "fails"
    )


def test_k3_holds_for_opposite_samples():
    """Their gates are never open together, so nothing is lost."""
    first = draw_normal(3, 5)
    second = torch.cat([-first[:1], draw_normal(2, 5, seed=1)])
    assert (
        check_claim("K3", build_study(build_two_clients(first, second, build_scaled_identities(1, 4, dim=5)))).verdict
        == "holds"
    )


def test_k3_looks_closer_where_the_limit_is_too_rough(usual):
    """Fifteen rows: entries that err by a tenth of λ_min may move it by more than itself."""
    found = check_claim("K3", usual)
    rough = replace(usual.limit, error=usual.limit.error + 0.1 * found.lhs)
    assert check_claim("K3", override_study(usual, limit=rough)).verdict == "holds"


def test_k3_is_undecided_where_no_limit_is_fine_enough(usual, monkeypatch):
    rough = replace(usual.limit, error=0.1 * check_claim("K3", usual).lhs)
    monkeypatch.setattr(limits, "compute_infinite_width_limit", lambda *_, **__: rough)
    monkeypatch.setattr(
        limits, "_compute_limit_with_parallel_samples", lambda *_: replace(rough, kernel=0.0 * rough.kernel)
    )
    found = check_claim("K3", override_study(usual, limit=rough))
    assert found.verdict == "undecided"
    assert "too rough to tell" in found.words


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_k3_is_undecided_where_the_roads_do_not_meet(usual, factor):
    found = check_claim("K3", override_study(usual, limit=replace(usual.limit, kernel=factor * usual.limit.kernel)))
    assert found.verdict == "undecided"
    assert "do not meet" in found.words


def test_k3_is_undecided_where_parallel_samples_go_unseen(usual, monkeypatch):
    monkeypatch.setattr(limits, "_compute_limit_with_parallel_samples", lambda *_: usual.limit)
    found = check_claim("K3", usual)
    assert found.verdict == "undecided"
    assert "not 0 for two parallel samples" in found.words


# K4: V(0) → V^inf


@pytest.mark.parametrize("name", ["usual", "isotropic"])
def test_k4_holds(name, request):
    found = check_claim("K4", request.getfixturevalue(name))
    assert found.verdict == "holds"
    assert found.lhs == found.evidence["slope"] == pytest.approx(-0.5, abs=0.15)
    errors = found.evidence["relative_error"]
    assert list(errors) == ["8", "16", "32", "64", "128", "256", "512"]
    assert 4 < errors["8"] / errors["512"] < 16  # 8 = sqrt(64)


def test_k4_fails_for_the_printed_projection(printed):
    """It converges, but to another limit: the error stops falling."""
    found = check_claim("K4", printed)
    assert found.verdict == "fails"
    assert found.lhs > -0.35


def test_k4_fails_for_another_limit(usual):
    other = {"online": 1.2 * usual.limit_kernels["online"]}
    assert check_claim("K4", override_study(usual, limit_kernels=other)).verdict == "fails"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_k4_has_no_slope_where_nothing_is_left_to_fall(dtype):
    """d = 1: no slope is made up for it."""
    found = check_claim("K4", build_study(draw_synthetic_problem(2, 3, 1, seed=1).to(dtype), 64))
    assert found.verdict == "holds"
    assert found.words.startswith("V(0) and V^inf are both zero")
    assert found.evidence["slope"] is None
    assert found.lhs == pytest.approx(max(found.evidence["relative_error"].values()), rel=10)


def test_k4_measures_a_small_error_in_single_precision(usual):
    """Half a percent off at every width is no rounding, not even there."""
    study = build_study(usual.problem.to(torch.float32), steps=1)
    wrong = study.limit_kernels["online"]
    study.with_width = lambda width, seed: SimpleNamespace(online_kernel=SimpleNamespace(V=1.005 * wrong.V.float()))
    found = check_claim("K4", study)
    assert found.verdict == "fails"
    assert found.evidence["slope"] == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("width", [1, 8])
def test_k4_has_a_slope_at_every_width(width):
    """The claim is about m that grows; a narrow network of the user's own is no reason to refute it."""
    assert check_claim("K4", build_study(draw_synthetic_problem(2, 2, 5, seed=1), width, steps=1)).verdict == "holds"


def test_fitted_slope_agrees_with_numpy():
    x, y = draw_normal(20).tolist(), draw_normal(20, seed=1).tolist()
    (slope, _), covariance = np.polyfit(x, y, 1, cov="unscaled")
    rest = np.array(y) - np.polyval(np.polyfit(x, y, 1), x)
    expected = math.sqrt(covariance[0, 0] * (rest @ rest) / 18)
    assert fit_slope(list(zip(x, y, strict=True))) == pytest.approx((slope, expected))


# K6: Definition 4.2 as printed


def test_k6_holds_only_with_gates_and_norms(usual):
    found = check_claim("K6", usual)
    assert found.verdict == "holds under: gates, γ and norms as in Eq. 16"
    assert found.evidence["printed"]["rank"] == usual.problem.dim < len(usual.problem.x)
    assert found.evidence["with_gates_and_norms"]["lambda_min"] > 0
    assert found.evidence["distance_of_printed_from_limit"] > 0.1
    from_printed, from_limit = found.evidence["distance_of_V(0)"].values()
    assert from_limit < 0.3 < from_printed * 2


def test_k6_is_the_definition_word_for_word(usual):
    """Eq. 14 by sampling v: the closed form α²(1 - 1/d) XX' is its mean."""
    x, alpha = usual.problem.x, usual.alpha
    v = alpha * draw_normal(40_000, x.shape[1], seed=1)
    unit = v / v.norm(dim=1, keepdim=True)
    along = x @ unit.T
    sampled = alpha**2 * (x @ x.T - along @ along.T / len(v))
    assert torch.allclose(
        sampled, limits.compute_printed_limit(usual.problem, alpha), atol=0.02 * float(x.square().sum(1).max())
    )


def test_k6_holds_for_one_sample_at_the_right_scale():
    """One isotropic sample is half the time behind a closed gate: α² = 1/2 makes up for it, and rank 1 is enough."""
    problem = draw_synthetic_problem(1, 1, 5, covariance="isotropic", seed=1)
    assert check_claim("K6", build_study(problem, alpha=0.5**0.5)).verdict == "holds"
    assert check_claim("K6", build_study(problem, alpha=0.5)).verdict.startswith("holds under")


def test_k6_fails_where_the_limit_is_singular_too():
    assert check_claim("K6", build_study(draw_synthetic_problem(2, 2, 1, seed=1))).verdict == "fails"


def test_k6_is_not_saved_by_few_samples():
    """With no more samples than dimensions the printed matrix is definite, but still not the limit."""
    found = check_claim("K6", build_study(draw_synthetic_problem(2, 2, 6, seed=1)))
    assert found.evidence["printed"]["rank"] == 4
    assert found.lhs > 0
    assert found.verdict.startswith("holds under")
