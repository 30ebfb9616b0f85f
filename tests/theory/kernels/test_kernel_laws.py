"""Laws that hold for all data: orderings of eigenvalues, symmetries, scalings. Each is tried on many drawn problems.

Rounding: a kernel errs by a few 1e-16 of its terms before they cancel (the fixture ``reach``), and an eigenvalue by
n times that, so every inequality gets ROOM times reach. A law that were false would miss by far more.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from theory import (
    Problem,
    Study,
    Weights,
    compute_infinite_width_limit,
    compute_kernel,
    draw_initial_weights,
    draw_synthetic_problem,
    keep_client_blocks,
)
from theory.training.descent import compute_outputs

ROOM = 1e-13


@dataclass(frozen=True)
class DrawnProblem:
    """A problem by the numbers it is drawn from."""

    sizes: tuple[int, ...]
    dim: int
    kind: str
    heterogeneity: float
    near: float | None
    """The second sample is the first one plus this much noise: all but parallel, maybe on another client."""
    seed: int

    @property
    def problem(self):
        known = self.kind if self.kind != "degenerate" else "anisotropic"
        p = draw_synthetic_problem(
            len(self.sizes), self.sizes, self.dim,
            covariance=known, heterogeneity=self.heterogeneity, seed=self.seed,
        )  # fmt: skip
        S, x = p.S, p.x.clone()
        if self.kind == "degenerate":  # eigenvalues from 1 to 1e6 along random axes
            axes = torch.linalg.qr(draw_normal(self.seed, len(self.sizes), self.dim, self.dim)).Q
            S = axes * torch.logspace(0, 6, self.dim, dtype=torch.float64) @ axes.mT
            S = (S + S.mT) / 2
            x = (torch.linalg.cholesky(S)[p.owner] @ draw_normal(self.seed + 1, len(x), self.dim, 1)).squeeze(-1)
        if self.near is not None and len(x) > 1:
            x[1] = 1.5 * x[0] + self.near * x[0].norm() * draw_normal(self.seed + 2, self.dim)
        return Problem(x, p.y, p.owner, S)


def draw_normal(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


problems = st.builds(
    DrawnProblem,
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple),
    dim=st.integers(1, 5),
    kind=st.sampled_from(["isotropic", "scaled", "anisotropic", "degenerate"]),
    heterogeneity=st.floats(0.05, 2),
    near=st.sampled_from([None, None, 1e-2, 1e-5, 1e-9]),
    seed=st.integers(0, 2**20),
)
widths = st.integers(1, 40)
MANY, SOME = settings(max_examples=50), settings(max_examples=12)


@pytest.fixture(scope="session")
def some_weights(trained):
    """At initialisation, or anywhere."""

    def build(problem, width, seed, at_init):
        return draw_initial_weights(problem, width, 0.7, seed) if at_init else trained(problem, width, seed=seed)

    return build


def compute_spectrum(K):
    return torch.linalg.eigvalsh((K + K.T) / 2)


def draw_psd(n, rank, seed):
    J = draw_normal(seed, n, rank)
    return J @ J.T


def assert_interlaced(whole, part, room):
    """λ_k(whole) <= λ_k(part) <= λ_{k+n-r}(whole), ascending, for a principal submatrix of r rows."""
    n, r = len(whole), len(part)
    assert (part >= whole[:r] - room).all()
    assert (part <= whole[n - r :] + room).all()


# ---- eigenvalues of the online and the offline kernel


@MANY
@given(drawn=problems, width=widths, at_init=st.booleans())
def test_every_clients_spectrum_interlaces_the_online_one(drawn, width, at_init, some_weights, reach):
    """Cauchy, for V, G and Λ; the client's own kernel is computed alone, not cut out of the large one."""
    problem = drawn.problem
    weights = some_weights(problem, width, drawn.seed, at_init)
    online, fedavg = compute_kernel(problem, weights), compute_kernel(problem, weights, share_gamma=True)
    offline, room = (
        compute_kernel(problem, weights.copy_per_client()),
        ROOM * reach(problem, weights) / weights.alpha**2,
    )
    for rows in problem.blocks:
        assert_interlaced(compute_spectrum(online.V), compute_spectrum(offline.V[rows, rows]), room)
        assert_interlaced(compute_spectrum(online.Lambda), compute_spectrum(offline.Lambda[rows, rows]), room)
        assert_interlaced(compute_spectrum(fedavg.G), compute_spectrum(offline.G[rows, rows]), room)


@MANY
@given(drawn=problems, width=widths, at_init=st.booleans())
def test_the_offline_least_eigenvalue_is_the_least_of_the_clients_and_no_less_than_the_online_one(
    drawn, width, at_init, some_weights, reach
):
    """O2: λ_min(V_off) = min_i λ_min(V_i) >= λ_min(V_on)."""
    problem = drawn.problem
    weights = some_weights(problem, width, drawn.seed, at_init)
    on, off = compute_kernel(problem, weights).V, compute_kernel(problem, weights.copy_per_client()).V
    room, low = ROOM * reach(problem, weights), compute_spectrum(off)[0]
    assert abs(low - min(compute_spectrum(off[rows, rows])[0] for rows in problem.blocks)) <= room
    assert low >= compute_spectrum(on)[0] - room


@MANY
@given(drawn=problems, width=widths, at_init=st.booleans())
def test_the_mean_kernel_is_better_conditioned_than_the_online_one(drawn, width, at_init, some_weights, reach):
    """O3 and O4: λ_min of the mean >= mean of λ_min >= λ_min(V_on); λ_max of the mean <= λ_max(V_on)."""
    problem = drawn.problem
    weights = some_weights(problem, width, drawn.seed, at_init)
    on, off = compute_kernel(problem, weights).V, compute_kernel(problem, weights.copy_per_client()).V
    mean, room = compute_spectrum((on + off) / 2), ROOM * reach(problem, weights)
    on, off = compute_spectrum(on), compute_spectrum(off)
    assert mean[0] >= (on[0] + off[0]) / 2 - room
    assert (on[0] + off[0]) / 2 >= on[0] - room
    assert mean[-1] <= (on[-1] + off[-1]) / 2 + room
    assert (on[-1] + off[-1]) / 2 <= on[-1] + room


@MANY
@given(drawn=problems, width=widths, at_init=st.booleans())
def test_making_all_of_a_kernel_personal_never_lowers_its_least_eigenvalue(drawn, width, at_init, some_weights, reach):
    """The ladder FedBN <= Fed-CO2 <= SingleSet in λ_min(Λ), and FedAvg <= FedBN in λ_min(G)."""
    problem = drawn.problem
    weights = some_weights(problem, width, drawn.seed, at_init)
    fedavg, fedbn = (compute_kernel(problem, weights, share_gamma=share) for share in (True, False))
    alone, room = compute_kernel(problem, weights.copy_per_client()), ROOM * reach(problem, weights) / weights.alpha**2
    ladder = [compute_spectrum(k.Lambda)[0] for k in (fedbn, 0.5 * (fedbn + alone), alone)]
    assert all(above >= below - room for below, above in pairwise(ladder))
    assert compute_spectrum(fedbn.G)[0] >= compute_spectrum(fedavg.G)[0] - room


def test_making_a_part_of_a_kernel_personal_may_lower_it():
    """From FedAvg to FedBN only G is pinched, V is not: λ_min(Λ) falls in a draw as small as this one."""
    problem = draw_synthetic_problem(2, [2, 1], 2, covariance="isotropic", seed=125)
    weights = draw_initial_weights(problem, 50, 1.0, seed=125)
    fedavg, fedbn = (compute_kernel(problem, weights, share_gamma=share) for share in (True, False))
    assert compute_spectrum(fedbn.Lambda)[0] < 0.9 * compute_spectrum(fedavg.Lambda)[0]
    assert compute_spectrum(fedbn.G)[0] > compute_spectrum(fedavg.G)[0]


def test_the_orderings_are_strict_for_ordinary_data():
    """They do not hold by being equalities: with three clients of ordinary data every margin is there to be seen."""
    study = Study.at_init(draw_synthetic_problem(3, 5, 5), width=400)
    on, off, mean = (compute_spectrum(k.V) for k in (study.online_kernel, study.offline_kernel, study.fused_kernel))
    assert off[0] > 1.2 * on[0] > 0
    assert mean[0] > 1.1 * on[0]
    assert mean[-1] < 0.9 * on[-1]


def test_for_one_client_online_and_offline_are_the_same(some_weights, reach):
    problem = draw_synthetic_problem(1, 5, 3)
    weights = some_weights(problem, 20, 0, False)
    on, off = compute_kernel(problem, weights), compute_kernel(problem, weights.copy_per_client())
    assert (on.V - off.V).norm() <= ROOM * reach(problem, weights)
    assert (on.G - off.G).norm() <= ROOM * reach(problem, weights)


# ---- averaging and pinching, for any positive semidefinite matrices

seeds, sides = st.integers(0, 2**20), st.integers(1, 9)


@MANY
@given(n=sides, rank=sides, seed=seeds)
def test_averaging_is_concave_below_and_convex_above(n, rank, seed):
    A, B = draw_psd(n, rank, seed), draw_psd(n, n, seed + 1)
    mean, room = compute_spectrum((A + B) / 2), ROOM * (A.norm() + B.norm())
    assert mean[0] >= (compute_spectrum(A)[0] + compute_spectrum(B)[0]) / 2 - room
    assert mean[-1] <= (compute_spectrum(A)[-1] + compute_spectrum(B)[-1]) / 2 + room


@MANY
@given(owner=st.lists(st.integers(0, 3), min_size=1, max_size=9), rank=sides, seed=seeds)
def test_pinching_never_widens_a_spectrum(owner, rank, seed):
    """λ_min does not fall, λ_max does not rise; nor does any sum of the largest ones (majorisation), at equal trace."""
    K = draw_psd(len(owner), rank, seed)
    before, after, room = (
        compute_spectrum(K),
        compute_spectrum(keep_client_blocks(K, torch.tensor(owner))),
        ROOM * K.trace(),
    )
    assert after[0] >= before[0] - room
    assert (after.flip(0).cumsum(0) <= before.flip(0).cumsum(0) + room).all()
    assert abs(after.sum() - before.sum()) <= room


@MANY
@given(owner=st.lists(st.integers(0, 3), min_size=1, max_size=9), rank=sides, seed=seeds)
def test_pinching_takes_away_no_more_than_a_factor_of_the_number_of_clients(owner, rank, seed):
    """K <= N pinch(K): so a federated step, with V/N + G, is never steeper than the clients' own kernels."""
    K = draw_psd(len(owner), rank, seed)
    gap = len(set(owner)) * keep_client_blocks(K, torch.tensor(owner)) - K
    assert compute_spectrum(gap)[0] >= -len(owner) * ROOM * K.trace()


@MANY
@given(drawn=problems, width=widths, at_init=st.booleans())
def test_pinching_never_widens_the_spectrum_of_our_kernels(drawn, width, at_init, some_weights, reach):
    problem = drawn.problem
    weights = some_weights(problem, width, drawn.seed, at_init)
    found, room = compute_kernel(problem, weights, share_gamma=True), ROOM * reach(problem, weights) / weights.alpha**2
    for K in (found.V, found.G, found.Lambda):
        before, after = compute_spectrum(K), compute_spectrum(keep_client_blocks(K, problem.owner))
        assert after[0] >= before[0] - room
        assert (after.flip(0).cumsum(0) <= before.flip(0).cumsum(0) + room).all()


# ---- positivity


@MANY
@given(drawn=problems, width=widths, at_init=st.booleans(), personal=st.booleans(), share_gamma=st.booleans())
def test_kernels_are_positive_semidefinite_and_lambda_is_above_its_parts(
    drawn, width, at_init, personal, share_gamma, some_weights, reach
):
    """K2: no negative eigenvalue; λ_k(Λ) >= max(λ_k(V)/α², λ_k(G)) for every k."""
    problem = drawn.problem
    weights = some_weights(problem, width, drawn.seed, at_init)
    found = compute_kernel(problem, weights.copy_per_client() if personal else weights, share_gamma=share_gamma)
    room = ROOM * reach(problem, weights) / weights.alpha**2
    V, G, whole = compute_spectrum(found.V), compute_spectrum(found.G), compute_spectrum(found.Lambda)
    assert min(V[0], G[0], whole[0]) >= -room
    assert (whole >= V / weights.alpha**2 - room).all()
    assert (whole >= G - room).all()


# ---- symmetries


def reorder_problem(problem, weights, clients, rows):
    """The same data with the clients in another order, or samples within a client."""
    S, gamma = problem.S[clients], weights.gamma[clients]
    owner = torch.argsort(clients)[problem.owner[rows]]
    return Problem(problem.x[rows], problem.y[rows], owner, S), replace(weights, gamma=gamma)


@MANY
@given(drawn=problems, width=widths, data=st.data())
def test_the_order_of_the_clients_does_not_matter(drawn, width, data, trained, reach):
    problem = drawn.problem
    weights = trained(problem, width, seed=drawn.seed)
    order = torch.tensor(data.draw(st.permutations(range(problem.clients))))
    rows = torch.cat([torch.arange(len(problem.x))[problem.blocks[i]] for i in order.tolist()])
    other, other_weights = reorder_problem(problem, weights, order, rows)
    for share_gamma in (False, True):
        before = compute_kernel(problem, weights, share_gamma=share_gamma)
        after = compute_kernel(other, other_weights, share_gamma=share_gamma)
        for letter in ("V", "G"):
            expected = getattr(before, letter)[rows][:, rows]
            assert (getattr(after, letter) - expected).norm() <= ROOM * reach(problem, weights)


@MANY
@given(drawn=problems, width=widths, data=st.data())
def test_the_order_of_samples_within_a_client_does_not_matter(drawn, width, data, trained, reach):
    problem = drawn.problem
    weights = trained(problem, width, seed=drawn.seed)
    rows = torch.cat([
        torch.tensor(data.draw(st.permutations(range(block.start, block.stop)))) for block in problem.blocks
    ])  # fmt: skip
    other, _ = reorder_problem(problem, weights, torch.arange(problem.clients), rows)
    before, after = compute_kernel(problem, weights), compute_kernel(other, weights)
    for letter in ("V", "G"):
        expected = getattr(before, letter)[rows][:, rows]
        assert (getattr(after, letter) - expected).norm() <= ROOM * reach(problem, weights)


@MANY
@given(drawn=problems, width=widths, seed=seeds)
def test_a_rotation_of_the_inputs_does_not_matter(drawn, width, seed, trained, reach):
    """x -> Qx, S -> QSQ', v -> Qv leave F, V and G."""
    problem = drawn.problem
    weights = trained(problem, width, seed=drawn.seed)
    Q = torch.linalg.qr(draw_normal(seed, problem.dim, problem.dim)).Q
    S = Q @ problem.S @ Q.T
    turned = replace(problem, x=problem.x @ Q.T, S=(S + S.mT) / 2)
    before, after = compute_kernel(problem, weights), compute_kernel(turned, replace(weights, v=weights.v @ Q.T))
    # a turned covariance errs by 1e-16 of its largest eigenvalue, and |v|_S is relative to its least one
    room = ROOM * reach(problem, weights) * max(torch.linalg.cond(one).item() for one in problem.S)
    assert (before.V - after.V).norm() <= room
    assert (before.G - after.G).norm() <= room


# ---- scalings


@MANY
@given(drawn=problems, width=widths)
def test_alpha_does_not_matter_at_the_start(drawn, width, reach):
    """v = α z and γ = |z|: V = α² J_v J_v' and G depend on the directions z alone, so Λ grows as V/α²."""
    problem = drawn.problem
    small, large = (draw_initial_weights(problem, width, alpha, drawn.seed) for alpha in (0.1, 1.0))
    one, other = compute_kernel(problem, small), compute_kernel(problem, large)
    room = ROOM * reach(problem, large)
    assert (one.V - other.V).norm() <= room
    assert (one.G - other.G).norm() <= room
    assert (compute_outputs(problem, small)[0] - compute_outputs(problem, large)[0]).norm() <= ROOM * (
        1 + reach(problem, large)
    )


factors = st.floats(0.01, 100)


@MANY
@given(drawn=problems, width=widths, t=factors)
def test_units_of_the_inputs_do_not_matter(drawn, width, t, trained, reach):
    """x -> t x with S -> t² S: v.x/|v|_S is the same function of v and γ, so F, V and G stay as they are."""
    problem = drawn.problem
    weights = trained(problem, width, seed=drawn.seed)
    scaled = replace(problem, x=t * problem.x, S=t**2 * problem.S)
    before, after, size = compute_kernel(problem, weights), compute_kernel(scaled, weights), reach(problem, weights)
    assert (compute_outputs(problem, weights)[0] - compute_outputs(scaled, weights)[0]).norm() <= 1e-12 * (1 + size)
    assert (before.V - after.V).norm() <= ROOM * size
    assert (before.G - after.G).norm() <= ROOM * size


@MANY
@given(drawn=problems, width=widths, data=st.data())
def test_longer_inputs_of_a_client_scale_its_rows(drawn, width, data, trained, reach):
    """x -> t_i x on client i with S kept: F -> t_i F, V_pq -> t_i t_j V_pq, and G alike (t > 0 keeps the gates)."""
    problem = drawn.problem
    weights = trained(problem, width, seed=drawn.seed)
    t = torch.tensor(data.draw(st.lists(factors, min_size=problem.clients, max_size=problem.clients))).double()
    row = t[problem.owner]
    scaled = replace(problem, x=row[:, None] * problem.x)
    before, after, room = (
        compute_kernel(problem, weights),
        compute_kernel(scaled, weights),
        ROOM * reach(scaled, weights),
    )
    assert (row * compute_outputs(problem, weights)[0] - compute_outputs(scaled, weights)[0]).norm() <= 1e-12 * (
        1 + room / ROOM
    )
    assert (torch.outer(row, row) * before.V - after.V).norm() <= room
    assert (torch.outer(row, row) * before.G - after.G).norm() <= room


@MANY
@given(drawn=problems, width=widths, t=factors)
def test_longer_hidden_weights_only_slow_v_down(drawn, width, t, trained, reach):
    """v -> t v with γ kept: F and G stay (degree 0), V = α² J_v J_v' is divided by t² (degree -1 of a gradient)."""
    problem = drawn.problem
    weights = trained(problem, width, seed=drawn.seed)
    before, after = compute_kernel(problem, weights), compute_kernel(problem, replace(weights, v=t * weights.v))
    assert (before.V - t**2 * after.V).norm() <= ROOM * reach(problem, weights)
    assert (before.G - after.G).norm() <= ROOM * reach(problem, weights)


@MANY
@given(drawn=problems, width=widths, t=factors)
def test_larger_scales_speed_v_up(drawn, width, t, trained, reach):
    """γ -> t γ: F is linear in it, so V -> t² V and G stays."""
    problem = drawn.problem
    weights = trained(problem, width, seed=drawn.seed)
    before, after = compute_kernel(problem, weights), compute_kernel(problem, replace(weights, gamma=t * weights.gamma))
    assert (t**2 * before.V - after.V).norm() <= ROOM * t**2 * reach(problem, weights)
    assert (before.G - after.G).norm() <= ROOM * reach(problem, weights)


@MANY
@given(drawn=problems, width=widths, cut=st.floats(0, 1))
def test_kernels_are_means_over_hidden_units(drawn, width, cut, trained, reach):
    """m K = m_1 K_1 + m_2 K_2 when the units are split in two networks."""
    problem = drawn.problem
    weights = trained(problem, width + 1, seed=drawn.seed)
    first = 1 + int(cut * (width - 1))

    def part(units):
        return Weights(weights.v[units], weights.c[units], weights.gamma[:, units], weights.alpha)

    whole, one, two = (
        m * compute_kernel(problem, part(units))
        for units, m in (
            (slice(None), width + 1),
            (slice(0, first), first),
            (slice(first, None), width + 1 - first),
        )
    )
    room = ROOM * (width + 1) * reach(problem, weights)
    assert (whole.V - one.V - two.V).norm() <= room
    assert (whole.G - one.G - two.G).norm() <= room


# ---- infinite width

tame = st.builds(
    DrawnProblem,
    sizes=st.lists(st.integers(2, 4), min_size=2, max_size=3).map(tuple),
    dim=st.integers(2, 4),
    kind=st.sampled_from(["isotropic", "scaled", "anisotropic", "anisotropic"]),
    heterogeneity=st.floats(0.05, 1),
    near=st.sampled_from([None, 1e-2, 1e-5]),
    seed=st.integers(0, 2**20),
)


@SOME
@given(drawn=tame)
def test_the_orderings_hold_at_infinite_width(drawn):
    """O2-O4, positivity and interlacing, up to n times the error that the quadrature reports."""
    problem = drawn.problem
    found = compute_infinite_width_limit(problem, 0.7)
    on = found.build_online_kernel(problem.owner)
    off = on.keep_client_blocks(problem.owner)
    room = len(problem.x) * (found.error + ROOM * (on.V.trace() + on.G.trace()).item())
    assert compute_spectrum(on.V)[0] >= -room
    assert compute_spectrum(found.kernel.G)[0] >= -room
    mean = compute_spectrum((on.V + off.V) / 2)
    on_V, off_V = compute_spectrum(on.V), compute_spectrum(off.V)
    assert off_V[0] >= on_V[0] - room
    assert mean[0] >= (on_V[0] + off_V[0]) / 2 - room
    assert mean[-1] <= on_V[-1] + room
    assert compute_spectrum(on.G)[0] >= compute_spectrum(found.kernel.G)[0] - room
    assert compute_spectrum(on.Lambda)[0] >= max(on_V[0] / 0.49, compute_spectrum(on.G)[0]) - room / 0.49
    for rows in problem.blocks:
        assert_interlaced(on_V, compute_spectrum(on.V[rows, rows]), room)


@SOME
@given(drawn=tame)
def test_a_client_alone_has_the_same_limit(drawn):
    """The offline limit of client i, computed without the others, is its block of the online one."""
    problem = drawn.problem
    together = compute_infinite_width_limit(problem, 0.7)
    for i, rows in enumerate(problem.blocks):
        alone = Problem(problem.x[rows], problem.y[rows], problem.owner[rows] * 0, problem.S[i : i + 1])
        found = compute_infinite_width_limit(alone, 0.7)
        room = found.error + together.error + 1e-12 * together.kernel.V.abs().max().item()
        assert (found.kernel.V - together.kernel.V[rows, rows]).abs().max() <= room
        assert (found.kernel.G - together.kernel.G[rows, rows]).abs().max() <= room


@SOME
@given(drawn=tame, t=factors)
def test_units_of_the_inputs_do_not_matter_at_infinite_width(drawn, t):
    problem = drawn.problem
    before, after = (
        compute_infinite_width_limit(p, 1.0) for p in (problem, replace(problem, x=t * problem.x, S=t**2 * problem.S))
    )
    room = before.error + after.error + 1e-12 * before.kernel.V.abs().max().item()
    assert (before.kernel.V - after.kernel.V).abs().max() <= room
    assert (before.kernel.G - after.kernel.G).abs().max() <= room
