"""The closed form of V, G and Λ against two roads that do not know it: autograd, and the formula written out."""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from theory import (
    Kernel,
    compute_federated_kernel,
    compute_jacobian,
    compute_kernel,
    draw_initial_weights,
    draw_synthetic_problem,
    keep_client_blocks,
)
from theory.kernels.closed_form import choose_chunk_size
from theory.network import HIDDEN_KEY, SCALE_KEY

METHODS = {"FedAvg": {HIDDEN_KEY, SCALE_KEY}, "FedBN": {HIDDEN_KEY}, "SingleSet": set()}
KINDS = ["isotropic", "scaled", "anisotropic"]


def given_shapes(test):
    """Unequal sizes, one client, one sample, one dimension, one unit, and any chunk."""
    drawn = given(
        sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
        dim=st.integers(1, 5),
        width=st.integers(1, 12),
        kind=st.sampled_from(KINDS),
        chunk=st.integers(1, 14),
        seed=st.integers(0, 2**20),
    )
    odd = example(sizes=[1], dim=1, width=1, kind="anisotropic", chunk=1, seed=0)
    return settings(max_examples=30)(odd(drawn(test)))


def build_problem(sizes, dim, kind, seed):
    return draw_synthetic_problem(len(sizes), sizes, dim, covariance=kind, seed=seed)


def split_inputs(problem):
    return [problem.x[rows] for rows in problem.blocks]


def perturb_weights(weights, seed):
    """Offline networks that have gone their own ways."""
    generator = torch.Generator().manual_seed(seed)
    mine = weights.copy_per_client()
    shake = (torch.randn(t.shape, generator=generator, dtype=torch.float64) for t in (mine.v, mine.c))
    return replace(mine, v=mine.v + next(shake), c=mine.c + next(shake))


def compute_dense_jacobians(problem, weights, projection="exact"):
    """Dense Jacobians by v and γ in numpy: for each unit, the projection as a matrix."""
    m = weights.width
    by_v = np.zeros((len(problem.x), m, problem.dim))
    by_gamma = np.zeros((len(problem.x), m))
    for p, i in enumerate(problem.owner.tolist()):
        (v, gamma, c), S = (t.numpy() for t in weights.get_client_weights(i)), problem.S[i].numpy()
        x = problem.x[p].numpy()
        for k in range(m):
            size = np.sqrt(v[k] @ S @ v[k])
            if projection == "exact":
                P = np.eye(problem.dim) - np.outer(S @ v[k], v[k]) / size**2
            else:
                P = np.eye(problem.dim) - np.outer(v[k], v[k]) / (v[k] @ v[k])
            gate = float(gamma[k] * (v[k] @ x) >= 0)
            by_v[p, k] = gate * c[k] * gamma[k] / size / np.sqrt(m) * (P @ x)
            by_gamma[p, k] = gate * c[k] * (v[k] @ x) / size / np.sqrt(m)
    return torch.from_numpy(by_v.reshape(len(by_v), -1)), torch.from_numpy(by_gamma)


# ---- the three roads agree


@pytest.fixture(scope="session")
def assert_same(reach):
    """To 1e-10 of the norm, or within rounding of what cancels (for d = 1, all of V)."""

    def check(problem, weights, found, expected):
        room = 1e-13 * reach(problem, weights) / weights.alpha**2
        assert (found - expected).norm() <= max(1e-10 * expected.norm(), room)

    return check


@given_shapes
def test_shared_weights_agree_with_autograd(sizes, dim, width, kind, chunk, seed, trained, modules, assert_same):
    """FedBN (γ personal) and FedAvg (γ shared), at weights that no formula expects."""
    problem = build_problem(sizes, dim, kind, seed)
    weights = trained(problem, width, seed=seed)
    rows = compute_jacobian(modules(problem, weights), split_inputs(problem))
    for method, share_gamma in (("FedBN", False), ("FedAvg", True)):
        closed = compute_kernel(problem, weights, share_gamma=share_gamma, chunk=chunk).Lambda
        assert_same(problem, weights, closed, compute_federated_kernel(rows, problem.owner, METHODS[method]))


@given_shapes
def test_personal_weights_agree_with_autograd(sizes, dim, width, kind, chunk, seed, trained, modules, assert_same):
    """SingleSet: each client at weights of its own."""
    problem = build_problem(sizes, dim, kind, seed)
    weights = perturb_weights(trained(problem, width, seed=seed), seed + 1)
    rows = compute_jacobian(modules(problem, weights), split_inputs(problem))
    closed = compute_kernel(problem, weights, chunk=chunk).Lambda
    assert_same(problem, weights, closed, compute_federated_kernel(rows, problem.owner, METHODS["SingleSet"]))


@given_shapes
def test_initial_weights_agree_with_autograd(sizes, dim, width, kind, chunk, seed, modules, assert_same):
    problem = build_problem(sizes, dim, kind, seed)
    weights = draw_initial_weights(problem, width, 0.3, seed)
    rows = compute_jacobian(modules(problem, weights), split_inputs(problem))
    expected = compute_federated_kernel(rows, problem.owner, METHODS["FedBN"])
    assert_same(problem, weights, compute_kernel(problem, weights, chunk=chunk).Lambda, expected)


@pytest.mark.parametrize("projection", ["exact", "printed"])
@given_shapes
def test_v_and_g_are_what_the_written_out_jacobian_gives(
    projection, sizes, dim, width, kind, chunk, seed, trained, reach
):
    """V = α² J_v J_v' and G = J_γ J_γ' with the projection of the derivative, or the one the paper prints."""
    problem = build_problem(sizes, dim, kind, seed)
    weights = trained(problem, width, seed=seed)
    by_v, by_gamma = compute_dense_jacobians(problem, weights, projection)
    V, G = weights.alpha**2 * by_v @ by_v.T, by_gamma @ by_gamma.T
    found = compute_kernel(problem, weights, projection=projection, chunk=chunk)
    full = compute_kernel(problem, weights, projection=projection, chunk=chunk, share_gamma=True)
    room = 1e-13 * reach(problem, weights)
    assert (found.V - V).norm() <= room
    assert (found.G - keep_client_blocks(G, problem.owner)).norm() <= room
    assert (full.G - G).norm() <= room
    assert torch.equal(found.V, full.V)


# ---- the printed projection


@pytest.mark.parametrize("kind", KINDS)
def test_the_printed_projection_is_the_derivative_only_for_multiples_of_the_identity(kind, trained, apart):
    problem = draw_synthetic_problem(3, 4, 5, covariance=kind, seed=1)
    weights = trained(problem, 64)
    error = apart(compute_kernel(problem, weights, projection="printed").V, compute_kernel(problem, weights).V)
    if kind == "anisotropic":
        assert error > 0.05
    else:
        assert error <= 1e-13


# ---- how it is computed does not matter


@given_shapes
def test_the_chunk_does_not_matter(sizes, dim, width, kind, chunk, seed, trained, reach):
    """Hidden units by ones, by a few or all at once: only the order of a sum changes."""
    problem = build_problem(sizes, dim, kind, seed)
    weights = trained(problem, width, seed=seed)
    few, all_at_once = (compute_kernel(problem, weights, share_gamma=True, chunk=size) for size in (chunk, width))
    assert (few.V - all_at_once.V).norm() <= 1e-13 * reach(problem, weights)
    assert (few.G - all_at_once.G).norm() <= 1e-13 * reach(problem, weights)


def test_the_chunk_does_not_matter_offline(trained, apart):
    problem = draw_synthetic_problem(3, [2, 4, 1], 4)
    weights = perturb_weights(trained(problem, 50), 3)
    assert (
        apart(compute_kernel(problem, weights, chunk=7).Lambda, compute_kernel(problem, weights, chunk=50).Lambda)
        <= 1e-13
    )


def test_single_precision_agrees_to_four_digits(trained, apart):
    problem = draw_synthetic_problem(3, [3, 5, 1], 6)
    weights = trained(problem, 500)
    rough = replace(weights, **{name: getattr(weights, name).float() for name in ("v", "c", "gamma")})
    for fine_weights, rough_weights in ((weights, rough), (weights.copy_per_client(), rough.copy_per_client())):
        fine, single = compute_kernel(problem, fine_weights), compute_kernel(problem.to(torch.float32), rough_weights)
        assert single.V.dtype == single.G.dtype == torch.float32
        assert apart(single.V.double(), fine.V) <= 1e-4
        assert apart(single.G.double(), fine.G) <= 1e-4


def test_single_precision_starts_from_the_same_network():
    problem = draw_synthetic_problem(2, 3, 4)
    fine, single = draw_initial_weights(problem, 20, 0.5), draw_initial_weights(problem.to(torch.float32), 20, 0.5)
    assert torch.equal(single.v, fine.v.float())
    assert torch.equal(single.c, fine.c.float())
    assert single.gamma.dtype == torch.float32


class LargestResult(TorchDispatchMode):
    """Remembers the largest tensor that an operation made anew (a view of the weights is not new)."""

    def __init__(self, *given_tensors):
        super().__init__()
        self.known = {t.untyped_storage().data_ptr() for t in given_tensors}
        self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for t in tree_leaves(result):
            if isinstance(t, torch.Tensor) and t.untyped_storage().data_ptr() not in self.known:
                self.largest = max(self.largest, t.untyped_storage().nbytes() // t.element_size())
        return result


@contextmanager
def record_largest_result(problem, weights):
    mode = LargestResult(weights.v, weights.c, weights.gamma, problem.x, problem.S)
    with mode:
        yield mode


@pytest.mark.parametrize("personal", [False, True])
def test_memory_does_not_grow_with_the_width(personal, trained):
    problem = draw_synthetic_problem(3, 5, 4)
    largest = {}
    for width in (256, 2048):
        weights = trained(problem, width)
        weights = weights.copy_per_client() if personal else weights
        with record_largest_result(problem, weights) as mode:
            compute_kernel(problem, weights, chunk=64)
        largest[width] = mode.largest
    assert largest[256] == largest[2048]
    assert largest[256] <= 64 * max(len(problem.x), problem.clients * problem.dim)


def test_the_width_is_seen_by_the_meter(trained):
    """The meter itself: with one chunk for all units the largest tensor does grow."""
    problem = draw_synthetic_problem(3, 5, 4)
    largest = []
    for width in (256, 2048):
        weights = trained(problem, width)
        with record_largest_result(problem, weights) as mode:
            compute_kernel(problem, weights, chunk=width)
        largest.append(mode.largest)
    assert largest[1] == 8 * largest[0]


def test_the_default_chunk_bounds_the_work_space():
    assert choose_chunk_size(1, 1, 1) == 1024
    assert choose_chunk_size(6000, 2, 2) * 6000 <= 2**21
    assert choose_chunk_size(200_000, 2, 1) == 64
    assert choose_chunk_size(100, 100, 100) * 100 * 100 <= 2**21  # S_i v of every client


# ---- the objects


def test_lambda_is_v_over_alpha_squared_plus_g(trained):
    problem = draw_synthetic_problem(2, 3, 4)
    found = compute_kernel(problem, trained(problem, 9, alpha=0.25))
    assert found.alpha == 0.25
    assert torch.equal(found.Lambda, 16 * found.V + found.G)


def test_kernels_form_means():
    one, two = (Kernel(torch.full((2, 2), a), torch.full((2, 2), 10 * a), 0.5) for a in (1.0, 3.0))
    mean = 0.5 * (one + two)
    assert mean.V.unique().tolist() == [2.0]
    assert mean.G.unique().tolist() == [20.0]
    assert mean.Lambda.unique().tolist() == [28.0]


def test_pinched_keeps_the_client_blocks_of_both_parts():
    owner = torch.tensor([0, 0, 1])
    found = Kernel(torch.ones(3, 3), 2 * torch.ones(3, 3), 1.0).keep_client_blocks(owner)
    assert found.V.tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    assert torch.equal(found.G, 2 * found.V)


@given_shapes
def test_offline_starts_as_the_client_blocks_of_online(sizes, dim, width, kind, chunk, seed, trained, reach):
    """O1: made personal, the same weights give the pinching of the shared kernel."""
    problem = build_problem(sizes, dim, kind, seed)
    weights = trained(problem, width, seed=seed)
    on, off = compute_kernel(problem, weights), compute_kernel(problem, weights.copy_per_client(), chunk=chunk)
    assert (off.G - on.G).norm() <= 1e-13 * reach(problem, weights)
    assert (off.V - keep_client_blocks(on.V, problem.owner)).norm() <= 1e-13 * reach(problem, weights)


def test_made_personal_gives_each_client_copies(trained):
    problem = draw_synthetic_problem(3, 2, 4)
    weights = trained(problem, 5)
    mine = weights.copy_per_client()
    assert (weights.is_personal, mine.is_personal) == (False, True)
    assert mine.v.shape == (3, 5, 4)
    assert mine.c.shape == (3, 5)
    assert weights.width == mine.width == 5
    for i in range(3):
        pairs = zip(weights.get_client_weights(i), mine.get_client_weights(i), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
    mine.v[0].zero_()
    mine.c[0].zero_()
    assert weights.v.count_nonzero() == weights.v.numel()
    assert mine.v[1].count_nonzero() == weights.v.numel()
    assert mine.c[1].count_nonzero() == weights.c.numel()


def test_initial_weights_are_shared_and_follow_the_paper():
    problem = draw_synthetic_problem(3, 2, 4)
    weights = draw_initial_weights(problem, 50, 0.2, seed=9)
    assert not weights.is_personal
    assert weights.gamma.shape == (3, 50)
    assert torch.allclose(weights.gamma, weights.v.norm(dim=1).expand(3, -1) / 0.2, rtol=1e-14)
    assert weights.c.abs().unique().tolist() == [1.0]
    again, other = draw_initial_weights(problem, 50, 0.2, seed=9), draw_initial_weights(problem, 50, 0.2, seed=10)
    assert torch.equal(weights.v, again.v)
    assert not torch.equal(weights.v, other.v)


@given_shapes
def test_kernels_are_symmetric_and_leave_the_weights_alone(sizes, dim, width, kind, chunk, seed, trained, reach):
    problem = build_problem(sizes, dim, kind, seed)
    weights = trained(problem, width, seed=seed)
    before = [t.clone() for t in (weights.v, weights.c, weights.gamma, problem.x)]
    found = compute_kernel(problem, weights, chunk=chunk)
    assert (found.V - found.V.T).abs().max() <= 1e-13 * reach(problem, weights)
    assert torch.equal(found.G, found.G.T)
    assert all(torch.equal(a, b) for a, b in zip(before, (weights.v, weights.c, weights.gamma, problem.x), strict=True))
