"""What is shared couples clients, what is personal does not, and what a real federated round does to the outputs."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtrain.parameters import all_entries, batch_norm_entries
from theory import (
    InputError,
    TwoLayerBN,
    compute_federated_kernel,
    compute_jacobian,
    compute_kernel,
    draw_initial_weights,
    draw_synthetic_problem,
    keep_client_blocks,
)
from theory.network import HIDDEN_KEY, SCALE_KEY

FEDAVG, FEDBN, SINGLESET = {HIDDEN_KEY, SCALE_KEY}, {HIDDEN_KEY}, set()
METHODS = pytest.mark.parametrize("shared", [FEDAVG, FEDBN, SINGLESET], ids=["FedAvg", "FedBN", "SingleSet"])


@pytest.fixture(scope="module")
def problem():
    return draw_synthetic_problem(3, [3, 2, 4], 4, seed=2)


@pytest.fixture(scope="module")
def nets(problem, modules):
    return modules(problem, draw_initial_weights(problem, 300, 0.5, seed=1))


@pytest.fixture(scope="module")
def rows(problem, nets):
    return compute_jacobian(nets, [problem.x[block] for block in problem.blocks])


# ---- pinching

symmetric = st.integers(1, 7).flatmap(
    lambda n: st.tuples(
        st.lists(st.floats(-9, 9), min_size=n * n, max_size=n * n), st.lists(st.integers(0, 3), min_size=n, max_size=n)
    )
)


@given(symmetric)
@settings(max_examples=50)
def test_pinching_keeps_exactly_what_lies_within_a_client(drawn):
    values, owner = torch.tensor(drawn[0], dtype=torch.float64), torch.tensor(drawn[1])
    K = values.reshape(len(owner), -1)
    found = keep_client_blocks(K, owner)
    for p in range(len(K)):
        for q in range(len(K)):
            assert found[p, q] == (K[p, q] if owner[p] == owner[q] else 0)


@given(symmetric)
@settings(max_examples=50)
def test_pinching_twice_is_pinching_once(drawn):
    owner = torch.tensor(drawn[1])
    once = keep_client_blocks(torch.tensor(drawn[0]).reshape(len(owner), -1), owner)
    assert torch.equal(keep_client_blocks(once, owner), once)


def test_pinching_is_the_mean_over_sign_flips_of_the_clients():
    """The identity behind its laws: pinch(K) averages D K D over all D = ±1 on each client."""
    owner, K = torch.tensor([0, 0, 1, 2, 2]), torch.randn(5, 5, generator=torch.Generator().manual_seed(0))
    signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 3)
    mean = torch.stack([K * torch.outer(s[owner], s[owner]) for s in signs]).mean(0)
    assert torch.allclose(mean, keep_client_blocks(K, owner), atol=1e-6)


# ---- the kernel of a method


@METHODS
def test_a_method_is_the_names_it_averages(shared, problem, rows):
    expected = sum(
        (J @ J.T if name in shared else keep_client_blocks(J @ J.T, problem.owner)) for name, J in rows.items()
    )
    assert torch.equal(compute_federated_kernel(rows, problem.owner, shared), expected)


def test_the_trainers_names_give_the_theorys_kernels(problem, nets, rows, apart):
    """FedAvg shares everything, FedBN all but batch norm, SingleSet nothing: by the trainer's own set algebra."""
    weights = draw_initial_weights(problem, 300, 0.5, seed=1)
    fedavg, fedbn = all_entries(nets[0]), all_entries(nets[0]) - batch_norm_entries(nets[0])
    for shared, expected in (
        (fedavg, compute_kernel(problem, weights, share_gamma=True)),
        (fedbn, compute_kernel(problem, weights)),
        (frozenset(), compute_kernel(problem, weights.copy_per_client())),
    ):
        assert apart(compute_federated_kernel(rows, problem.owner, shared), expected.Lambda) <= 1e-12


def test_pull_weighs_what_is_shared_and_nothing_else(problem, rows):
    whole, half = (compute_federated_kernel(rows, problem.owner, FEDBN, shared_weight=pull) for pull in (1.0, 0.5))
    gram = rows[HIDDEN_KEY] @ rows[HIDDEN_KEY].T
    assert torch.allclose(whole - half, 0.5 * gram, rtol=0, atol=1e-13 * gram.norm().item())
    assert torch.equal(
        compute_federated_kernel(rows, problem.owner, SINGLESET, shared_weight=0.5),
        compute_federated_kernel(rows, problem.owner, SINGLESET),
    )


def test_several_outputs_give_several_rows_a_sample(problem):
    """Row p·K + o is output o of sample p; each has the kernel of its own network."""
    net = TwoLayerBN(4, 20, 3, covariance=problem.S[0], generator=torch.Generator().manual_seed(0))
    x = problem.x[:2]
    found = compute_jacobian([net], [x])
    assert found[HIDDEN_KEY].shape == (6, 80)
    for p in range(2):
        for o in range(3):
            net.zero_grad()
            net(x[p : p + 1])[0, o].backward()
            assert torch.allclose(
                found[HIDDEN_KEY][3 * p + o], net.get_parameter(HIDDEN_KEY).grad.flatten(), atol=1e-13
            )
            assert torch.allclose(found[SCALE_KEY][3 * p + o], net.get_parameter(SCALE_KEY).grad, atol=1e-13)


def test_the_jacobian_of_a_net_in_training_mode_is_refused(problem):
    net = TwoLayerBN(4, 5, dtype=torch.float64)
    with pytest.raises(InputError, match=r"features\.norm.*training mode"):
        compute_jacobian([net], [problem.x])
    assert compute_jacobian([net.eval()], [problem.x])[HIDDEN_KEY].shape == (9, 20)


def test_the_jacobian_by_chunks_and_by_names_is_the_same(problem, nets, rows):
    inputs = [problem.x[block] for block in problem.blocks]
    some = compute_jacobian(nets, inputs, [SCALE_KEY], chunk=2)
    assert set(some) == {SCALE_KEY}
    assert torch.allclose(some[SCALE_KEY], rows[SCALE_KEY], rtol=0, atol=1e-15)
    assert not some[SCALE_KEY].requires_grad  # or a graph would be kept for every parameter in turn


# ---- one real round


def compute_torch_outputs(nets, problem):
    with torch.no_grad():
        return torch.cat([net(problem.x[rows]).squeeze(1) for net, rows in zip(nets, problem.blocks, strict=True)])


def run_one_round(nets, problem, shared, step):
    """Literally: every client takes one SGD step on half its sum of squares, then the shared names are averaged."""
    nets = copy.deepcopy(nets)
    for net, rows in zip(nets, problem.blocks, strict=True):
        optimiser = torch.optim.SGD(net.parameters(), lr=step)
        (0.5 * (net(problem.x[rows]).squeeze(1) - problem.y[rows]).square().sum()).backward()
        optimiser.step()
    states = [net.state_dict() for net in nets]
    mean = {name: torch.stack([state[name] for state in states]).mean(0) for name in shared}
    for net in nets:
        net.load_state_dict(net.state_dict() | mean)
    return nets


def measure_prediction_errors(nets, problem, shared, K, steps):
    """|ΔF/step + K r| / |K r| for each step."""
    F = compute_torch_outputs(nets, problem)
    expected = K @ (F - problem.y)
    moves = [(compute_torch_outputs(run_one_round(nets, problem, shared, s), problem) - F) / s for s in steps]
    return [((move + expected).norm() / expected.norm()).item() for move in moves]


@METHODS
def test_a_round_moves_the_outputs_along_the_pulled_kernel(shared, problem, nets, rows):
    """With pull = 1/N what is left is of second order in the step: a tenth of the step, a tenth of the error."""
    K = compute_federated_kernel(rows, problem.owner, shared, shared_weight=1 / problem.clients)
    large, small = measure_prediction_errors(nets, problem, shared, K, (1e-5, 1e-6))
    assert small < 1e-4
    assert 0.08 <= small / large <= 0.12


@pytest.mark.parametrize("shared", [FEDAVG, FEDBN], ids=["FedAvg", "FedBN"])
def test_a_round_is_not_descent_on_the_pooled_loss(shared, problem, nets, rows):
    """With pull = 1 (the paper's kernel) an error of order one stays, however small the step."""
    K = compute_federated_kernel(rows, problem.owner, shared)
    large, small = measure_prediction_errors(nets, problem, shared, K, (1e-5, 1e-6))
    assert small > 0.3
    assert small == pytest.approx(large, rel=1e-2)


def test_for_one_client_a_round_is_descent(modules):
    alone = draw_synthetic_problem(1, 5, 4)
    nets = modules(alone, draw_initial_weights(alone, 300, 0.5))
    K = compute_federated_kernel(compute_jacobian(nets, [alone.x]), alone.owner, FEDBN)
    large, small = measure_prediction_errors(nets, alone, FEDBN, K, (1e-5, 1e-6))
    assert 0.08 <= small / large <= 0.12


def test_shared_names_that_are_no_parameters_at_all_are_refused():
    """Buffers among the names are fine, as a method shares them too; only wrong names would mean nothing is shared."""
    rows, owner = {"a": torch.eye(2)}, torch.tensor([0, 1])
    assert torch.equal(compute_federated_kernel(rows, owner, {"a", "running_mean"}), torch.eye(2))
    with pytest.raises(InputError, match="none of b is a parameter here; there are a"):
        compute_federated_kernel(rows, owner, {"b"})
