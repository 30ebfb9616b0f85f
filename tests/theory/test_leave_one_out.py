"""How much sharing predicts best: closed forms against samples that are really left out, and the law of agreement."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from theory import InputError, Study, draw_synthetic_problem
from theory.leave_one_out import LeaveOneOut, choose_sharing, expect_sharing


def leave_out(K_on, K_off, y, w, ridge):
    """Regression without the sample, once for each: no factor is shared, no formula for what is left out."""
    A = w * K_on + (1 - w) * K_off
    errors = []
    for p in range(len(y)):
        rest = np.arange(len(y)) != p
        weights = np.linalg.solve(A[np.ix_(rest, rest)] + ridge * np.eye(len(y) - 1), y[rest])
        errors.append(y[p] - A[p, rest] @ weights)
    return np.array(errors)


@pytest.fixture(scope="module")
def case():
    study = Study.at_init(draw_synthetic_problem(3, [4, 6, 5], 5, seed=4), 512, seed=4)
    return study.online_kernel.V, study.offline_kernel.V, study.problem.owner, study.problem.y


@pytest.mark.parametrize("w", [0.0, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_errors_are_those_of_samples_that_are_left_out(case, w, ridge):
    on, off, owner, y = case
    mixture = LeaveOneOut(on, owner, off, ridge=ridge)
    value, _ = mixture.measure_errors(y)(torch.tensor([w], dtype=torch.float64))
    expected = leave_out(on.numpy(), off.numpy(), y.numpy(), w, ridge) ** 2
    assert value[:, 0].numpy() == pytest.approx(expected, rel=1e-9)


def test_several_targets_are_added_up(case):
    on, off, owner, y = case
    mixture, w = LeaveOneOut(on, owner, off, ridge=0.1), torch.tensor([0.4], dtype=torch.float64)
    both = mixture.measure_errors(torch.stack([y, y.flip(0)], 1))(w)
    apart = [mixture.measure_errors(one)(w) for one in (y, y.flip(0))]
    for k in range(2):
        assert torch.allclose(both[k], apart[0][k] + apart[1][k])


@pytest.mark.parametrize("kind", ["measured", "expected"])
def test_slopes_are_derivatives(case, kind):
    on, off, owner, y = case
    mixture = LeaveOneOut(on, owner, off, ridge=0.1)
    compute = mixture.measure_errors(y) if kind == "measured" else mixture.expect_errors(0.3)
    w, h = torch.linspace(0.05, 0.95, 7, dtype=torch.float64), 1e-5
    numeric = (compute(w + h)[0] - compute(w - h)[0]) / (2 * h)
    assert torch.allclose(compute(w)[1], numeric, rtol=1e-6, atol=1e-7)


def test_expected_errors_are_means_over_drawn_targets(case):
    """Their covariance by brute force: e = y_p - weights'y_rest is linear in y."""
    on, off, owner, _ = case
    ridge, tau, w = 0.2, 0.7, 0.4
    C = tau * on.numpy() + (1 - tau) * off.numpy() + ridge * np.eye(len(owner))
    rows = np.stack([leave_out(on.numpy(), off.numpy(), one, w, ridge) for one in np.eye(len(owner))], 1)
    expected = np.einsum("pi,ij,pj->p", rows, C, rows)
    mixture = LeaveOneOut(on, owner, off, ridge=ridge)
    value, _ = mixture.expect_errors(tau)(torch.tensor([w], dtype=torch.float64))
    assert value[:, 0].numpy() == pytest.approx(expected, rel=1e-9)
    assert mixture.get_target_variances(tau).numpy() == pytest.approx(np.diag(C))


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    sizes=st.lists(st.integers(2, 5), min_size=2, max_size=4),
    agreement=st.floats(0, 1),
    ridge=st.floats(1e-3, 1),
)
def test_the_best_sharing_is_the_agreement_of_the_clients(seed, sizes, agreement, ridge):
    """For every client: regression with the covariance of the targets is the best linear predictor."""
    rng = np.random.default_rng(seed)
    owner = torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes))
    rows = rng.standard_normal((len(owner), 2 * len(owner)))
    found = expect_sharing(torch.from_numpy(rows @ rows.T), owner, agreement, ridge=ridge)
    assert found is not None
    for one in (*found.clients, found.together):
        assert one.best_w == pytest.approx(agreement, abs=1e-5)
        assert one.best <= min(one.singleset, one.fedco2, one.fedbn) * (1 + 1e-12)


def test_the_law_needs_the_right_kernel():
    """With another offline kernel than the targets have, the best w is another one."""
    study = Study.at_init(draw_synthetic_problem(3, 5, 5, seed=2), 512, seed=2)
    mixture = LeaveOneOut(study.online_kernel.V, study.problem.owner, ridge=0.5)
    compute, true = mixture.expect_errors(0.5), LeaveOneOut(study.online_kernel.V, study.problem.owner, ridge=0.05)
    found = mixture.minimise(compute, mixture.get_target_variances(0.5), 0.5)
    assert found.together.best_w == pytest.approx(0.5)
    w = torch.linspace(0, 1, 201, dtype=torch.float64)
    # the same targets, of noise 0.5, regressed with a ridge of 0.05
    C = mixture.base + 0.5 * mixture.difference
    root = torch.linalg.cholesky(C)
    errors = true.measure_errors(root)(w)[0].mean(0)
    assert abs(w[errors.argmin()].item() - 0.5) > 0.02


def test_the_least_error_is_the_least_on_a_fine_grid(case):
    on, off, owner, y = case
    found = choose_sharing(on, owner, y, off)
    assert found is not None
    mixture = LeaveOneOut(on, owner, off, ridge=found.ridge * off.diagonal().mean().item())
    w = torch.linspace(0, 1, 20_001, dtype=torch.float64)
    squares = mixture.measure_errors(y)(w)[0]
    for i, one in enumerate(found.clients):
        error = squares[owner == i].sum(0) / y[owner == i].square().sum()
        assert one.best <= error.min().item() * (1 + 1e-12)
        assert one.best == pytest.approx(error.min().item(), rel=1e-6)
        assert one.best_w == pytest.approx(w[error.argmin()].item(), abs=1e-4)
        assert (one.singleset, one.fedbn) == pytest.approx((error[0].item(), error[-1].item()))
        assert one.fedco2 == pytest.approx(error[10_000].item())
        assert found.errors[i][0] == pytest.approx(one.singleset)


def test_sharing_helps_where_clients_have_one_task():
    """Targets of one teacher for all clients: λ_min says w = 0 and left-out samples say otherwise."""
    study = Study.at_init(draw_synthetic_problem(6, 6, 4, seed=3), 1024, seed=3)
    V = study.online_kernel.V
    root = torch.linalg.cholesky(V)
    draws = torch.randn(len(V), 200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    shared = choose_sharing(V, study.problem.owner, root @ draws, study.offline_kernel.V)
    own = torch.linalg.cholesky(study.offline_kernel.V) @ draws
    personal = choose_sharing(V, study.problem.owner, own, study.offline_kernel.V)
    assert shared is not None
    assert personal is not None
    assert all(one.best_w > 0.7 for one in shared.clients)
    assert all(one.best_w < 0.3 for one in personal.clients)
    assert all(one.slope_at_zero < 0 for one in shared.clients)


def test_kernels_that_are_singular_get_a_larger_ridge():
    K, owner = torch.ones(4, 4, dtype=torch.float64), torch.tensor([0, 0, 1, 1])
    with pytest.raises(InputError, match="larger ridge"):
        LeaveOneOut(K, owner)
    found = choose_sharing(K, owner, torch.tensor([1.0, 1.0, 1.0, 1.0]))
    assert found is not None
    assert found.together.best_w == pytest.approx(1)
    assert choose_sharing(0 * K, owner, torch.ones(4)) is None
    assert expect_sharing(0 * K, owner, 0.5) is None
    with pytest.raises(InputError, match="agreement is 2"):
        expect_sharing(K, owner, 2)
