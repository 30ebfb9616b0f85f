"""Our own descent against torch.optim on real modules, and the descent that kernels predict against the real one."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from theory import Study, draw_initial_weights, draw_synthetic_problem
from theory.network import HIDDEN_KEY, SCALE_KEY
from theory.training.descent import compute_gradients, compute_outputs, descend
from theory.training.residuals import compute_stable_step, predict_gradient_flow, predict_residuals

READINGS = ["joint", "separate", "federated"]
STEPS = 15


@pytest.fixture(scope="module")
def problem():
    return draw_synthetic_problem(3, [3, 1, 4], 4, seed=1)


@pytest.fixture(scope="module")
def start(problem, trained):
    """Online weights, and offline ones that differ from them."""
    return trained(problem, 20, seed=1), replace(trained(problem, 20, seed=2).copy_per_client(), alpha=0.7)


def compute_torch_outputs(nets, problem):
    return torch.cat([net(problem.x[rows]).squeeze(1) for net, rows in zip(nets, problem.blocks, strict=True)])


def tie_hidden_weights(nets):
    """One v for all clients: the very same parameter."""
    for net in nets[1:]:
        net.features.hidden.weight = nets[0].features.hidden.weight
    return nets


def build_optimisers(online, offline, eta):
    """One for each branch, over all clients' parameters."""
    found = []
    for nets, rate in ((online, eta[0]), (offline, eta[1])):
        several = {id(p): p for net in nets for p in net.parameters() if p.requires_grad}
        found.append(torch.optim.SGD(several.values(), lr=rate))
    return found


def descend_with_torch(problem, online, offline, reading, steps, eta, modules):
    """Each reading as one would write it in torch: losses, backward, step."""
    on, off = modules(problem, online), modules(problem, offline)
    if reading != "federated":
        tie_hidden_weights(on)
    both, path = build_optimisers(on, off, eta), []
    for _ in range(steps):
        F_on, F_off = compute_torch_outputs(on, problem), compute_torch_outputs(off, problem)
        path.append((F_on.detach(), F_off.detach()))
        for optimiser in both:
            optimiser.zero_grad()
        if reading == "joint":
            ((F_on + F_off) / 2 - problem.y).square().mean().backward()
        elif reading == "separate":
            ((F_on - problem.y).square().mean() + (F_off - problem.y).square().mean()).backward()
        else:
            for F in (F_on, F_off):
                sum((F[rows] - problem.y[rows]).square().mean() for rows in problem.blocks).backward()
        for optimiser in both:
            optimiser.step()
        if reading == "federated":
            with torch.no_grad():
                mean = torch.stack([net.get_parameter(HIDDEN_KEY) for net in on]).mean(0)
                for net in on:
                    net.get_parameter(HIDDEN_KEY).copy_(mean)
    path.append((compute_torch_outputs(on, problem).detach(), compute_torch_outputs(off, problem).detach()))
    return [torch.stack(branch) for branch in zip(*path, strict=True)]


# ---- gradients


@settings(max_examples=25)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    dim=st.integers(1, 5),
    width=st.integers(1, 12),
    personal=st.booleans(),
    seed=st.integers(0, 2**20),
)
def test_outputs_and_gradients_are_those_of_autograd(sizes, dim, width, personal, seed, trained, modules):
    problem = draw_synthetic_problem(len(sizes), sizes, dim, seed=seed)
    weights = trained(problem, width, seed=seed)
    weights = weights.copy_per_client() if personal else weights
    nets = modules(problem, weights)
    towards = torch.randn(len(problem.y), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    expected = compute_torch_outputs(nets, problem)
    (expected * towards).sum().backward()
    F, saved = compute_outputs(problem, weights)
    by_v, by_gamma = compute_gradients(problem, weights, saved, towards)
    assert (F - expected).abs().max() <= 1e-12 * (1 + expected.abs().max())
    for i, net in enumerate(nets):
        for found, name in ((by_v, HIDDEN_KEY), (by_gamma, SCALE_KEY)):
            grad = net.get_parameter(name).grad
            assert (found[i] - grad).abs().max() <= 1e-11 * (1 + by_v.abs().max())


# ---- descent


@pytest.mark.parametrize("reading", READINGS)
def test_descent_is_that_of_torch(reading, problem, start, modules):
    found = descend(problem, *start, reading, STEPS, 0.05)
    expected = descend_with_torch(problem, *start, reading, STEPS, (0.05, 0.05), modules)
    assert (found.online[-1] - found.online[0]).norm() > 0.1  # it has gone somewhere
    assert (found.offline[-1] - found.offline[0]).norm() > 0.1
    for branch, outputs_of_torch in zip((found.online, found.offline), expected, strict=True):
        assert (branch - outputs_of_torch).abs().max() <= 1e-12 * (1 + outputs_of_torch.abs().max())


@pytest.mark.parametrize("reading", READINGS)
def test_each_branch_may_have_a_step_of_its_own(reading, problem, start, modules):
    found = descend(problem, *start, reading, 5, (0.02, 0.1))
    expected = descend_with_torch(problem, *start, reading, 5, (0.02, 0.1), modules)
    for branch, outputs_of_torch in zip((found.online, found.offline), expected, strict=True):
        assert (branch - outputs_of_torch).abs().max() <= 1e-12 * (1 + outputs_of_torch.abs().max())


def test_the_readings_are_different_things(problem, start):
    ends = [descend(problem, *start, reading, 5, 0.05).online[-1] for reading in READINGS]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert (ends[one] - ends[other]).norm() > 1e-3


def test_separate_branches_do_not_see_each_other(problem, start):
    """Online alone is FedBN: another offline network changes nothing."""
    online, offline = start
    other = replace(offline, gamma=2 * offline.gamma)
    for reading, alike in (("separate", True), ("federated", True), ("joint", False)):
        ends = [descend(problem, online, mine, reading, 5, 0.05).online[-1] for mine in (offline, other)]
        assert torch.equal(*ends) is alike


def test_for_one_client_federated_is_separate():
    alone = draw_synthetic_problem(1, 6, 3)
    online = draw_initial_weights(alone, 30, 0.5)
    one, other = (descend(alone, online, online.copy_per_client(), r, 5, 0.05) for r in ("separate", "federated"))
    assert torch.allclose(one.online, other.online, rtol=0, atol=1e-13)
    assert torch.allclose(one.online, one.offline, rtol=0, atol=1e-13)  # same start, same loss, nothing to share


def test_descent_leaves_its_start_alone(problem, start):
    before = [t.clone() for w in start for t in (w.v, w.c, w.gamma)]
    descend(problem, *start, "joint", 3, 0.1)
    assert all(torch.equal(a, b) for a, b in zip(before, (t for w in start for t in (w.v, w.c, w.gamma)), strict=True))


@pytest.mark.parametrize(("keep", "times"), [(0, []), (1, [0]), (2, [0, 10]), (3, [0, 5, 10]), (11, list(range(11)))])
def test_snapshots_are_spread_evenly_and_are_the_networks_on_the_way(keep, times, problem, start):
    path = descend(problem, *start, "separate", 10, 0.05, snapshot_count=keep)
    assert [t for t, _, _ in path.snapshots] == times
    for t, online, offline in path.snapshots:
        assert torch.equal(compute_outputs(problem, online)[0], path.online[t])
        assert torch.equal(compute_outputs(problem, offline)[0], path.offline[t])


def test_every_step_ticks_once(problem, start):
    ticks = []
    descend(problem, *start, "separate", 7, 0.05, on_step=lambda: ticks.append(1))
    assert len(ticks) == 7


def test_residual_norms_are_of_the_outputs_and_of_their_mean(problem, start):
    path = descend(problem, *start, "joint", 4, 0.05)
    assert path.online.shape == (5, len(problem.y))
    for branch, F in (("online", path.online), ("offline", path.offline), ("fused", (path.online + path.offline) / 2)):
        assert torch.equal(path.compute_residual_norms(branch), (F - problem.y).norm(dim=1))


def test_single_precision_descends_alike(problem, start):
    rough = [replace(w, **{k: getattr(w, k).float() for k in ("v", "c", "gamma")}) for w in start]
    fine, single = (
        descend(p, *w, "separate", 5, 0.05) for p, w in ((problem, start), (problem.to(torch.float32), rough))
    )
    assert single.online.dtype == torch.float32
    assert torch.allclose(single.online.double(), fine.online, rtol=0, atol=1e-4)


# ---- what kernels predict


def draw_kernel(n, seed):
    J = torch.randn(n, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return J @ J.T / n, J[0]


@pytest.mark.parametrize("rate", [0.1, 0.9])  # with 0.9 some factors 1 - rate λ are negative
def test_predicted_residuals_are_powers_of_one_matrix(rate):
    K, r = draw_kernel(6, 0)
    found = predict_residuals(K, r, rate, 9)
    step = torch.eye(6).double() - rate * K
    assert (torch.linalg.eigvalsh(step)[0] < 0) == (rate == 0.9)
    assert found.shape == (10, 6)
    for t in range(10):
        expected = torch.linalg.matrix_power(step, t) @ r
        assert (found[t] - expected).norm() <= 1e-12 * (1 + expected.norm())


def test_predicted_flow_is_the_exponential():
    K, r = draw_kernel(6, 1)
    times = torch.tensor([0.0, 0.3, 1.0, 7.5], dtype=torch.float64)
    for t, found in zip(times, predict_gradient_flow(K, r, times), strict=True):
        assert (found - torch.linalg.matrix_exp(-K * t) @ r).norm() <= 1e-12 * r.norm()


def test_small_steps_approach_the_flow():
    K, r = draw_kernel(5, 2)
    flow = predict_gradient_flow(K, r, torch.tensor([2.0], dtype=torch.float64))[0]
    errors = [(predict_residuals(K, r, 2.0 / steps, steps)[-1] - flow).norm().item() for steps in (100, 1000)]
    assert errors[1] == pytest.approx(errors[0] / 10, rel=0.05)


def test_the_stable_step_is_the_largest_that_does_not_diverge():
    K, r = draw_kernel(6, 3)
    top = torch.linalg.eigh(K).eigenvectors[:, -1]
    assert compute_stable_step(K, share=1.0) == pytest.approx(2 / torch.linalg.eigvalsh(K)[-1].item(), rel=1e-14)
    below, above = (
        predict_residuals(K, r + top, compute_stable_step(K, share), 400).norm(dim=1) for share in (0.9, 1.05)
    )
    assert (below.diff() <= 0).all()
    assert above[-1] > 1e3 * above[0]


def test_the_stable_step_is_where_real_networks_stop_descending(problem):
    """At nine tenths the residual falls, at one and a half times it climbs: the wider, the longer."""
    study = Study.at_init(problem, width=8000)
    n = len(problem.y)
    slow, fast = (
        descend(
            problem,
            study.online,
            study.offline,
            "separate",
            60,
            n / 2 * compute_stable_step(study.online_kernel.Lambda, share),
        )
        for share in (0.9, 1.5)
    )
    assert slow.compute_residual_norms("online")[-1] < 0.5 * slow.compute_residual_norms("online")[0]
    assert fast.compute_residual_norms("online").max() > 2 * fast.compute_residual_norms("online")[0]


@pytest.mark.parametrize("reading", READINGS)
def test_wide_networks_follow_their_kernels(reading):
    """The gap to the predicted residual falls as about m^(-1/2): the kernel stays what it was at t = 0."""
    problem, steps = draw_synthetic_problem(2, [4, 3], 5, seed=1), 30
    n, sizes = len(problem.y), torch.tensor([4.0] * 4 + [3.0] * 3, dtype=torch.float64)
    gaps = []
    for width in (100, 1600, 25_600):
        study = Study.at_init(problem, width, seed=width)
        path = descend(problem, study.online, study.offline, reading, steps, n / 2 * study.rate)
        if reading == "joint":
            F, K = (path.online + path.offline) / 2, study.joint_kernel
            predicted = predict_residuals(K, F[0] - problem.y, study.rate, steps)
        elif reading == "separate":
            F = path.online
            predicted = predict_residuals(study.online_kernel.Lambda, F[0] - problem.y, study.rate, steps)
        else:  # V/N + G, each column over its own client's size; D^(-1/2) makes it symmetric
            F, root = path.online, (n / sizes).sqrt()
            K = study.online_kernel.V / study.alpha**2 / problem.clients + study.online_kernel.G
            symmetric = root[:, None] * K * root
            predicted = predict_residuals(symmetric, root * (F[0] - problem.y), study.rate, steps) / root
        gaps.append((F - problem.y - predicted).norm(dim=1).max().item() / (F[0] - problem.y).norm().item())
    slope = np.polyfit(np.log([100, 1600, 25_600]), np.log(gaps), 1)[0]
    assert gaps[-1] < 0.02
    assert slope == pytest.approx(-0.5, abs=0.2)
