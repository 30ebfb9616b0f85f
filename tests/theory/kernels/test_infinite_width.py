"""The kernels at infinite width: quadrature against the arc-cosine form, brute force, Monte Carlo and wide networks."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.integrate import quad

from theory import (
    InputError,
    Problem,
    Study,
    compute_infinite_width_limit,
    draw_synthetic_problem,
    estimate_sphere_average,
    keep_client_blocks,
)
from theory.kernels.infinite_width import _compute_angles, _integrate


def build_problem(x, S, owner):
    x = torch.as_tensor(np.asarray(x), dtype=torch.float64)
    return Problem(x, torch.zeros(len(x), dtype=torch.float64), torch.tensor(owner), torch.stack(list(S)))


def build_covariance(dim, condition, seed):
    """Eigenvalues from 1 to ``condition``, evenly spread in the logarithm, along random axes."""
    generator = torch.Generator().manual_seed(seed)
    axes = torch.linalg.qr(torch.randn(dim, dim, generator=generator, dtype=torch.float64)).Q
    S = axes * torch.logspace(0, math.log10(condition), dim, dtype=torch.float64) @ axes.T
    return (S + S.T) / 2


def build_ill_conditioned(sizes, dim, condition, seed=0):
    plain = draw_synthetic_problem(len(sizes), sizes, dim, covariance="isotropic", seed=seed)
    S = torch.stack([build_covariance(dim, condition, seed + i) for i in range(len(sizes))])
    x = (torch.linalg.cholesky(S)[plain.owner] @ plain.x.unsqueeze(-1)).squeeze(-1)
    return Problem(x, plain.y, plain.owner, S)


def find_largest_entry(K):
    return K.abs().max().item()


def compute_at_direction(problem, u):
    """V and G at hidden directions u (k, d), literally: γ_i γ_j <P_i x_p, P_j x_q> 1 1 / |u|_i |u|_j with α = 1."""
    x, owner = problem.x.numpy(), problem.owner.numpy()
    by_v, by_gamma = [], []
    for p in range(len(x)):
        S = problem.S[owner[p]].numpy()
        size2 = np.einsum("kd,de,ke->k", u, S, u)
        h = u @ x[p]
        P_x = x[p] - (u @ S) * (h / size2)[:, None]
        slope = np.linalg.norm(u, axis=1) / np.sqrt(size2) * (h >= 0)
        by_v.append(slope[:, None] * P_x)
        by_gamma.append(np.maximum(h, 0) / np.sqrt(size2))
    by_v, by_gamma = np.stack(by_v), np.stack(by_gamma)
    return np.einsum("pkd,qkd->pqk", by_v, by_v), np.einsum("pk,qk->pqk", by_gamma, by_gamma)


# ---- known answers


@pytest.mark.parametrize("dim", [2, 3, 5, 10])
def test_quadrature_agrees_with_the_arc_cosine_form_for_multiples_of_the_identity(dim):
    problem = draw_synthetic_problem(3, [3, 1, 4], dim, covariance="scaled", seed=dim)
    closed = compute_infinite_width_limit(problem, 0.5)
    assert (closed.error, closed.nodes) == (0.0, 0)
    for nodes in (48, 96):
        V, G = _integrate(problem, nodes)
        assert find_largest_entry(V - closed.kernel.V) <= 1e-10 * find_largest_entry(V)
        assert find_largest_entry(G - closed.kernel.G) <= 1e-10 * find_largest_entry(G)


def test_two_samples_at_a_known_angle():
    """d = 3, S = I, angle π/3: V = cos θ (π-θ)/2π - J/6π, G = J/6π, J = sin θ + (π-θ) cos θ."""
    theta = math.pi / 3
    x = [[1.0, 0.0, 0.0], [2 * math.cos(theta), 2 * math.sin(theta), 0.0]]
    found = compute_infinite_width_limit(build_problem(x, [torch.eye(3).double()], [0, 0]), 1.0).kernel
    J = math.sin(theta) + (math.pi - theta) * math.cos(theta)
    assert found.G[0, 1].item() == pytest.approx(2 * J / (6 * math.pi), rel=1e-14)
    expected = 2 * (math.cos(theta) * (math.pi - theta) / (2 * math.pi) - J / (6 * math.pi))
    assert found.V[0, 1].item() == pytest.approx(expected, rel=1e-14)
    assert found.V[0, 0].item() == pytest.approx(1 / 2 - 1 / 6, rel=1e-14)


def test_in_one_dimension_v_vanishes_and_g_sees_the_sign_alone():
    problem = build_problem([[2.0], [-1.0], [3.0]], torch.tensor([[[4.0]], [[0.25]]]).double(), [0, 0, 1])
    expected = torch.tensor([[4 / 8, 0, 6 / 2], [0, 1 / 8, 0], [6 / 2, 0, 9 / 0.5]]).double()
    found = compute_infinite_width_limit(problem, 1.0)
    assert find_largest_entry(found.kernel.V) <= 1e-15
    assert torch.allclose(found.kernel.G, expected, rtol=0, atol=1e-14)
    V, G = _integrate(problem, 3)
    assert find_largest_entry(V) == 0
    assert torch.allclose(G, expected, rtol=0, atol=1e-14)


def test_in_two_dimensions_arcs_agree_with_integration_over_the_whole_circle():
    """scipy's adaptive quadrature of the literal integrand, told where the gates are, from 0 to 2π."""
    problem = draw_synthetic_problem(2, [3, 2], 2, heterogeneity=0.7, seed=3)
    found = compute_infinite_width_limit(problem, 1.0)
    assert found.error <= 1e-8 * find_largest_entry(found.kernel.V)
    angles = torch.atan2(problem.x[:, 1], problem.x[:, 0]).numpy()
    for p in range(5):
        for q in range(p + 1):
            kinks = sorted((angles[k] + side * np.pi / 2) % (2 * np.pi) for k in (p, q) for side in (1, 3))
            for which, entry in ((0, found.kernel.V[p, q]), (1, found.kernel.G[p, q])):

                def integrand(f, which=which, p=p, q=q):
                    return compute_at_direction(problem, np.array([[np.cos(f), np.sin(f)]]))[which][p, q, 0] / (
                        2 * np.pi
                    )

                ends = [0.0, *kinks, 2 * np.pi]
                value = sum(quad(integrand, a, b, limit=60)[0] for a, b in pairwise(ends) if a < b)
                assert entry.item() == pytest.approx(value, abs=1e-9 * find_largest_entry(found.kernel.V))


# ---- other roads, for any covariance


@pytest.mark.parametrize(("sizes", "dim", "heterogeneity"), [([3, 5, 2], 3, 1.0), ([4, 2], 5, 1.5), ([3, 3], 8, 0.5)])
def test_quadrature_agrees_with_quasi_monte_carlo_within_its_errors(sizes, dim, heterogeneity):
    problem = draw_synthetic_problem(len(sizes), sizes, dim, heterogeneity=heterogeneity, seed=4)
    exact, rough = (
        compute_infinite_width_limit(problem, 1.0).kernel,
        estimate_sphere_average(problem, 1.0, replicates=32, seed=1),
    )
    for letter in ("V", "G"):
        error = getattr(rough.mean, letter) - getattr(exact, letter)
        z = error / getattr(rough.standard_error, letter)
        assert 0.6 <= z.square().mean().sqrt() <= 1.6  # entries share their draws, so the spread is not that of n² ones
        assert z.abs().max() < 6


@pytest.mark.parametrize("dim", [2, 3, 6])
def test_quadrature_agrees_with_plain_monte_carlo_of_the_literal_formula(dim):
    problem = draw_synthetic_problem(2, [2, 3], dim, heterogeneity=1.0, seed=dim)
    exact, rng = compute_infinite_width_limit(problem, 1.0).kernel, np.random.default_rng(0)
    draws = [compute_at_direction(problem, rng.standard_normal((20_000, dim))) for _ in range(10)]
    for which, K in ((0, exact.V), (1, exact.G)):
        values = np.concatenate([d[which] for d in draws], axis=2)
        error = values.std(2) / values.shape[2] ** 0.5
        assert (np.abs(values.mean(2) - K.numpy()) <= 5 * error).all()
        assert error.max() <= 0.01 * find_largest_entry(K)  # or the comparison would say nothing


def test_networks_approach_the_limit_as_one_over_the_root_of_the_width():
    problem = draw_synthetic_problem(3, [3, 4, 2], 5, seed=1)
    exact = compute_infinite_width_limit(problem, 0.5).build_online_kernel(problem.owner)
    widths, draws = [64, 256, 1024, 4096], 12
    for letter in ("V", "G"):
        errors = []
        for width in widths:
            found = [
                getattr(Study.at_init(problem, width, seed=100 * width + k).online_kernel, letter) for k in range(draws)
            ]
            errors.append(np.mean([(K - getattr(exact, letter)).norm().item() for K in found]))
        slope = np.polyfit(np.log(widths), np.log(errors), 1)[0]
        assert slope == pytest.approx(-0.5, abs=0.1)


def test_the_mean_of_many_networks_is_the_limit():
    """V(0) and G(0) are unbiased at any width."""
    problem = draw_synthetic_problem(2, [2, 3], 4, seed=1)
    exact = compute_infinite_width_limit(problem, 0.5).build_online_kernel(problem.owner)
    found = [Study.at_init(problem, 8, seed=k).online_kernel for k in range(600)]
    for letter in ("V", "G"):
        K = torch.stack([getattr(k, letter) for k in found])
        error = K.std(0) / len(K) ** 0.5
        assert ((K.mean(0) - getattr(exact, letter)).abs() <= 5 * error + 1e-14).all()


# ---- accuracy


@pytest.mark.parametrize("dim", [2, 3, 4, 7])
@pytest.mark.parametrize("heterogeneity", [0.3, 1.0, 1.5])
def test_the_reported_error_is_not_exceeded(dim, heterogeneity):
    """Against twice the nodes; rounding, 1e-13 of the largest entry, comes on top."""
    problem = draw_synthetic_problem(2, [2, 3], dim, heterogeneity=heterogeneity, seed=dim)
    found = compute_infinite_width_limit(problem, 1.0)
    V, G = _integrate(problem, 2 * found.nodes)
    size = max(find_largest_entry(V), find_largest_entry(G))
    true = max(find_largest_entry(found.kernel.V - V), find_largest_entry(found.kernel.G - G))
    assert true <= found.error + 1e-13 * size
    assert found.error <= 1e-8 * size or found.nodes == 192


@pytest.mark.parametrize("dim", [2, 3, 5])
def test_a_condition_number_of_a_thousand_is_reached_or_owned_up_to(dim):
    problem = build_ill_conditioned([2, 2], dim, 1e3)
    found = compute_infinite_width_limit(problem, 1.0)
    V, G = _integrate(problem, 2 * found.nodes)
    size = max(find_largest_entry(V), find_largest_entry(G))
    true = max(find_largest_entry(found.kernel.V - V), find_largest_entry(found.kernel.G - G))
    assert true <= max(found.error, 1e-8 * size)
    if dim > 2:
        assert found.error <= 1e-8 * size


def test_a_tighter_tolerance_takes_more_nodes():
    problem = draw_synthetic_problem(2, 2, 3, heterogeneity=2.0, seed=0)
    rough, fine = (compute_infinite_width_limit(problem, 1.0, tolerance=t) for t in (1e-3, 1e-12))
    assert rough.nodes < fine.nodes
    assert fine.error < rough.error


@pytest.mark.parametrize("exponent", range(1, 16, 2))
def test_small_angles_keep_their_digits(exponent):
    """The angle of rows 10^-k apart, where the arc cosine would lose half the digits."""
    tilt = 10.0**-exponent
    a, b = torch.tensor([[[1.0, 0.0]], [[math.cos(tilt), math.sin(tilt)]]], dtype=torch.float64)
    assert _compute_angles(a, 3 * b).item() == pytest.approx(tilt, rel=1e-14)
    assert math.pi - _compute_angles(a, -b).item() == pytest.approx(tilt, abs=1e-15)


# ---- when V^inf is singular

S_ONE, S_TWO = build_covariance(3, 4, 0), build_covariance(3, 4, 1)
X = [[1.0, 0.3, -0.2], [-0.4, 0.9, 0.5], [0.2, -0.8, 1.1]]


def compute_inverse_condition(x, S, owner):
    """λ_min(V^inf) / λ_max."""
    values = torch.linalg.eigvalsh(compute_infinite_width_limit(build_problem(x, S, owner), 1.0).kernel.V)
    return (values[0] / values[-1]).item()


@pytest.mark.parametrize("factor", [1.0, 2.0, 0.3])
@pytest.mark.parametrize("shape", ["isotropic", "anisotropic"])
def test_parallel_samples_make_it_singular(factor, shape):
    """V^inf of x and t x has rank one: their gradients are parallel at every direction."""
    S = torch.eye(3).double() if shape == "isotropic" else S_ONE
    x = [*X, [factor * value for value in X[0]]]
    assert abs(compute_inverse_condition([*x, *X[1:]], [S, S_TWO], [0] * 4 + [1, 1])) < 1e-12


def test_opposite_samples_do_not():
    """Their gates are never open together, so they cannot cancel."""
    x = [*X, [-2 * value for value in X[0]]]
    assert compute_inverse_condition([*x, *X[1:]], [S_ONE, S_TWO], [0] * 4 + [1, 1]) > 1e-3


def test_the_same_sample_on_clients_that_differ_does_not():
    assert compute_inverse_condition([*X, X[0], X[1]], [S_ONE, S_TWO], [0, 0, 0, 1, 1]) > 1e-4


def test_the_same_sample_on_clients_that_are_alike_does():
    assert abs(compute_inverse_condition([*X, X[0], X[1]], [S_ONE, S_ONE], [0, 0, 0, 1, 1])) < 1e-12


@pytest.mark.parametrize(("pairs", "singular"), [(1, False), (3, False), (4, True)])
def test_opposite_samples_make_it_singular_only_if_they_are_linearly_dependent(pairs, singular):
    """No gate is open to x and -x, so V is zero between them; but f(x) - f(-x) is linear in x, without any gate."""
    half = draw_synthetic_problem(1, pairs, 3, seed=1)
    x = torch.cat([half.x, -half.x])
    V = compute_infinite_width_limit(Problem(x, x[:, 0], torch.zeros(2 * pairs).long(), half.S), 1.0).kernel.V
    assert V[:pairs, pairs:].diagonal().abs().max() < 1e-12 * V.max()
    assert (torch.linalg.eigvalsh(V)[0] < 1e-12 * V.max()) == singular


@pytest.mark.parametrize("tilt", [1e-2, 1e-4, 1e-6])
def test_nearly_parallel_samples_make_it_small_but_positive(tilt):
    """λ_min falls in proportion to the angle: the gates differ on a lune of that width."""
    x = [*X, [X[0][0], X[0][1] + tilt, X[0][2]], *X[1:]]
    assert 1e-3 * tilt < compute_inverse_condition(x, [S_ONE, S_TWO], [0] * 4 + [1, 1]) < tilt


@pytest.mark.parametrize("tilt", [1e-10, 1e-12, 1e-13])
def test_the_reported_error_covers_samples_that_are_all_but_parallel(tilt):
    """|∂f(x)/∂v - ∂f(x')/∂v|² is proportional to the angle, so it is known where no digits are left to compute it."""

    def gap(tilt):
        x = [*X, [X[0][0], X[0][1] + tilt, X[0][2]], *X[1:]]
        found = compute_infinite_width_limit(build_problem(x, [S_ONE, S_TWO], [0] * 4 + [1, 1]), 1.0)
        V = found.kernel.V
        return (V[0, 0] + V[3, 3] - 2 * V[0, 3]).item(), found.error + 1e-15 * find_largest_entry(V)

    truth = gap(1e-5)[0] * tilt / 1e-5
    value, error = gap(tilt)
    assert abs(value - truth) <= 4 * error  # four entries


# ---- symmetries and shapes


@pytest.mark.parametrize("dim", [2, 4])
def test_a_rotation_does_not_matter(dim):
    problem = draw_synthetic_problem(2, [3, 2], dim, seed=5)
    Q = torch.linalg.qr(torch.randn(dim, dim, generator=torch.Generator().manual_seed(0)).double()).Q
    S = Q @ problem.S @ Q.T
    turned = replace(problem, x=problem.x @ Q.T, S=(S + S.mT) / 2)
    one, other = compute_infinite_width_limit(problem, 1.0), compute_infinite_width_limit(turned, 1.0)
    room = one.error + other.error + 1e-12 * find_largest_entry(one.kernel.V)
    assert find_largest_entry(one.kernel.V - other.kernel.V) <= room
    assert find_largest_entry(one.kernel.G - other.kernel.G) <= room


@pytest.mark.parametrize("dim", [2, 4])
@pytest.mark.parametrize("sizes", [[5], [1], [4, 1], [1, 4], [1, 1, 3], [2, 2, 2]])
def test_any_sizes_of_clients_will_do(sizes, dim):
    """An entry depends on its two samples and their covariances, not on who else is there."""
    problem = draw_synthetic_problem(len(sizes), sizes, dim, heterogeneity=0.5, seed=6)
    found = compute_infinite_width_limit(problem, 1.0)
    some = [rows.stop - 1 for rows in problem.blocks]
    part = compute_infinite_width_limit(
        Problem(problem.x[some], problem.y[some], torch.arange(len(sizes)), problem.S), 1.0
    )
    room = found.error + part.error + 1e-12 * find_largest_entry(found.kernel.V)
    assert find_largest_entry(found.kernel.V[some][:, some] - part.kernel.V) <= room
    assert find_largest_entry(found.kernel.G[some][:, some] - part.kernel.G) <= room


def test_alpha_is_carried_but_does_not_matter():
    problem = draw_synthetic_problem(2, 3, 3, seed=5)
    one, other = (compute_infinite_width_limit(problem, alpha).kernel for alpha in (0.1, 1.0))
    assert torch.equal(one.V, other.V)
    assert torch.equal(one.Lambda, one.V / 0.1**2 + one.G)


def test_online_pinches_g_and_keeps_v():
    problem = draw_synthetic_problem(2, 3, 3, seed=5)
    found = compute_infinite_width_limit(problem, 1.0)
    online = found.build_online_kernel(problem.owner)
    assert torch.equal(online.V, found.kernel.V)
    assert torch.equal(online.G, keep_client_blocks(found.kernel.G, problem.owner))
    assert find_largest_entry(found.kernel.G[:3, 3:]) > 0


def test_single_precision_problems_have_a_double_precision_limit():
    problem = draw_synthetic_problem(2, 3, 3, seed=5)
    rounded = compute_infinite_width_limit(problem.to(torch.float32), 1.0).kernel
    assert rounded.V.dtype == torch.float64
    assert torch.allclose(rounded.V, compute_infinite_width_limit(problem, 1.0).kernel.V, rtol=0, atol=1e-5)


def test_a_problem_that_makes_no_sense_never_reaches_the_limit():
    with pytest.raises(InputError):
        build_problem(X, [torch.zeros(3, 3).double()], [0, 0, 0])
