"""Quasi-Monte Carlo over the sphere: its means, its errors, its intervals."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from theory import (
    compute_infinite_width_limit,
    compute_kernel,
    draw_synthetic_problem,
    estimate_sphere_average,
    keep_client_blocks,
)
from theory.kernels.sphere_qmc import SphereEstimate, _build_unit_weights, _draw_directions

SEEDS = range(10)


@pytest.fixture(scope="module")
def problem():
    return draw_synthetic_problem(3, [3, 2, 4], 4, seed=3)


@pytest.fixture(scope="module")
def exact(problem):
    return compute_infinite_width_limit(problem, 0.5).kernel


@pytest.fixture(scope="module")
def estimates(problem):
    return [estimate_sphere_average(problem, 0.5, points=256, seed=seed) for seed in SEEDS]


# ---- means and standard errors


@pytest.mark.parametrize("letter", ["V", "G"])
def test_the_mean_is_the_limit_within_its_standard_error(letter, estimates, exact):
    """Over ten seeds: the z-scores have mean 0 (no bias) and spread 1 (the errors are neither hidden nor inflated)."""
    z = torch.stack([
        (getattr(e.mean, letter) - getattr(exact, letter)) / getattr(e.standard_error, letter) for e in estimates
    ])  # fmt: skip
    assert z.mean().abs() <= 0.4
    assert 0.8 <= z.square().mean().sqrt() <= 1.5  # Student's t of 15 degrees has 1.07
    assert z.abs().max() < 7


@pytest.mark.parametrize("letter", ["V", "G"])
def test_seeds_average_out(letter, estimates, exact):
    """The mean of ten independent estimates is closer than they are: what is left is not a common bias."""
    single = [(getattr(e.mean, letter) - getattr(exact, letter)).norm().item() for e in estimates]
    mean = torch.stack([getattr(e.mean, letter) for e in estimates]).mean(0)
    assert (mean - getattr(exact, letter)).norm().item() <= 0.6 * np.mean(single)


def test_the_control_variate_lowers_the_standard_error(problem, exact):
    """The same directions without it, by calling the kernel directly."""
    controlled = estimate_sphere_average(problem, 0.5, points=256, seed=0)
    draws = [_draw_directions(4, 256, np.random.default_rng([0, r])) for r in range(16)]
    raw = [compute_kernel(problem, _build_unit_weights(problem, v, 0.5), share_gamma=True) for v in draws]
    for letter in ("V", "G"):
        plain = torch.stack([getattr(k, letter) for k in raw])
        before = (plain.std(0) / 4).norm()
        assert getattr(controlled.standard_error, letter).norm() <= 0.8 * before
        assert (plain.mean(0) - getattr(exact, letter)).norm() <= 5 * before


def test_for_isotropic_clients_the_control_variate_is_the_answer():
    """Nothing is left to estimate: every scrambling gives the arc-cosine form."""
    problem = draw_synthetic_problem(2, 3, 4, covariance="scaled")
    found = estimate_sphere_average(problem, 0.5, points=64, replicates=4)
    exact = compute_infinite_width_limit(problem, 0.5).kernel
    assert (found.V - exact.V).abs().max() <= 1e-12
    assert (found.G - exact.G).abs().max() <= 1e-12


def test_more_points_give_a_smaller_error(problem, exact):
    """Sixteen times as many: by better than the factor four of independent draws."""
    few, many = (estimate_sphere_average(problem, 0.5, points=points, seed=1) for points in (128, 2048))
    assert many.standard_error.V.norm() <= few.standard_error.V.norm() / 4
    assert (many.mean.V - exact.V).norm() <= (few.mean.V - exact.V).norm() / 2


def test_directions_come_in_opposite_pairs_and_cover_the_sphere():
    v = _draw_directions(3, 512, np.random.default_rng(0))
    assert torch.equal(v[:512], -v[512:])
    u = v / v.norm(dim=1, keepdim=True)
    assert torch.allclose(u.T @ u / len(u), torch.eye(3).double() / 3, atol=0.01)


def test_an_estimate_is_repeated_by_its_seed(problem):
    one, two, other = (estimate_sphere_average(problem, 0.5, points=32, replicates=4, seed=seed) for seed in (5, 5, 6))
    assert torch.equal(one.V, two.V)
    assert not torch.equal(one.V, other.V)
    assert len({float(V[0, 1]) for V in one.V}) == 4  # scramblings differ among themselves


# ---- intervals of λ_min


def build_readings(owner):
    return {
        "online": lambda k: k.V,
        "offline": lambda k: keep_client_blocks(k.V, owner),
        "mean": lambda k: (k.V + keep_client_blocks(k.V, owner)) / 2,
    }


@pytest.mark.parametrize("name", ["online", "offline", "mean"])
def test_intervals_hold_the_true_least_eigenvalue(name, problem, estimates, exact):
    of = build_readings(problem.owner)[name]
    truth = torch.linalg.eigvalsh(of(exact))[0].item()
    found = [e.estimate_least_eigenvalue(of) for e in estimates]
    assert sum(i.low <= truth <= i.high for i in found) >= 9
    assert all(i.low <= i.value <= i.high for i in found)
    assert all(i.high - i.low <= 0.5 * truth for i in found)  # or they would say nothing


def test_intervals_shrink_with_more_scramblings_and_points(problem):
    of = build_readings(problem.owner)["online"]
    wide = estimate_sphere_average(problem, 0.5, points=64, replicates=16).estimate_least_eigenvalue(of)
    narrow = estimate_sphere_average(problem, 0.5, points=1024, replicates=32).estimate_least_eigenvalue(of)
    assert narrow.high - narrow.low <= (wide.high - wide.low) / 4


def test_the_interval_of_a_singular_kernel_reaches_zero(problem):
    """Two parallel samples on one client: λ_min = 0, and no interval may lie above it."""
    x = problem.x.clone()
    x[1] = 2 * x[0]
    found = estimate_sphere_average(replace(problem, x=x), 0.5, points=128).estimate_least_eigenvalue(lambda k: k.V)
    assert found.low <= 1e-12


def test_jensen_puts_the_lower_end_below_and_rayleigh_the_upper_end_above():
    """Noisy copies of a matrix with λ_min = 1: single estimates are biased downwards, the interval is not fooled."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(64, 5, 5, generator=generator, dtype=torch.float64)
    several = torch.diag(torch.tensor([1.0, 1.0, 1.2, 2.0, 3.0], dtype=torch.float64)) + 0.1 * (noise + noise.mT)
    found = SphereEstimate(several, torch.zeros_like(several), 1.0).estimate_least_eigenvalue(lambda k: k.V)
    assert found.low <= 1.0 <= found.high
    assert found.high - found.low <= 0.5


# ---- small dimensions


def test_in_one_dimension_v_vanishes():
    assert (
        estimate_sphere_average(draw_synthetic_problem(2, [2, 3], 1, seed=1), 0.5, points=16).mean.V.abs().max()
        <= 1e-13
    )


def test_in_one_dimension_g_is_exact():
    problem = draw_synthetic_problem(2, [2, 3], 1, seed=1)
    found, exact = estimate_sphere_average(problem, 0.5, points=16), compute_infinite_width_limit(problem, 0.5).kernel
    assert (found.mean.G - exact.G).abs().max() <= 1e-13


def test_two_dimensions_work():
    problem = draw_synthetic_problem(2, [2, 3], 2, seed=1, heterogeneity=0.5)
    found, exact = estimate_sphere_average(problem, 0.5, points=512), compute_infinite_width_limit(problem, 0.5)
    for letter in ("V", "G"):
        error = getattr(found.mean, letter) - getattr(exact.kernel, letter)
        assert (error.abs() <= 6 * getattr(found.standard_error, letter) + 1e-9).all()


def test_alpha_is_carried():
    problem = draw_synthetic_problem(2, 2, 3)
    small, large = (estimate_sphere_average(problem, alpha, points=16, replicates=2) for alpha in (0.1, 1.0))
    assert math.isclose(small.mean.alpha, 0.1)
    assert torch.allclose(small.V, large.V, rtol=1e-10, atol=1e-12)
