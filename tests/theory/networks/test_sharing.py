"""How much to share: by eigenvalues, by samples left out, and by held-out outputs, each by a second road."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from theory.leave_one_out import choose_sharing
from theory.networks.forecast import compute_mean_ntk
from theory.networks.kernels import ClientSamples, FederatedKernel, compute_federated_ntk
from theory.networks.sharing import HeldOut, average_outputs, choose_fusion, examine_sharing

CLASSES = 3
SHARED = frozenset({"0.weight", "0.bias", "3.weight", "3.bias"})
"""All but batch norm."""


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def build_clients(count):
    nets = []
    for _ in range(count):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            net = nn.Sequential(nn.Linear(5, 30), nn.BatchNorm1d(30), nn.Tanh(), nn.Linear(30, CLASSES))
        nets.append(net.double().eval())
    return nets


SIZES = (3, 4, 3)
SAMPLES = ClientSamples(
    ("a", "b", "c"),
    tuple(draw(n, 5, seed=10 + i) for i, n in enumerate(SIZES)),
    tuple(torch.arange(n) % CLASSES for n in SIZES),
    (1 / 3, 1 / 3, 1 / 3),
)


@pytest.fixture(scope="module")
def online():
    return compute_federated_ntk(build_clients(3), SAMPLES, SHARED)


@pytest.fixture(scope="module")
def offline(online):
    return FederatedKernel(torch.zeros_like(online.whole), online.blocks, online.owner)


def test_by_eigenvalues_no_sharing_is_best_where_weights_are_equal_and_not_where_they_are_not(online, offline):
    found = examine_sharing(online, offline, SAMPLES)
    assert found.by_lambda_min == 0
    assert (found.held_out, found.split) == (None, None)
    weak = FederatedKernel(offline.shared, 0.01 * offline.personal, offline.owner)
    assert examine_sharing(online, weak, SAMPLES).by_lambda_min == 1
    nothing = FederatedKernel(offline.shared, torch.ones_like(offline.personal), offline.owner)
    assert examine_sharing(nothing, nothing, SAMPLES).by_lambda_min is None


def test_averaging_divides_what_is_shared_and_leaves_what_is_personal(online, offline):
    curve = examine_sharing(online, offline, SAMPLES).curve
    expected = torch.linalg.eigvalsh(online.shared / 3 + online.personal)[0].item()
    assert curve.federated_lambda_min[-1] == pytest.approx(expected, rel=1e-9)
    assert curve.federated_lambda_min[-1] > torch.linalg.eigvalsh(online.whole / 3)[0].item() * 1.0001
    assert curve.lambda_min[-1] == pytest.approx(torch.linalg.eigvalsh(online.whole)[0].item(), rel=1e-9)


def test_samples_are_left_out_with_all_their_outputs(online, offline):
    """The other road: kernels of one output at a time, averaged."""
    mean = compute_mean_ntk(build_clients(3), SAMPLES, SHARED)
    assert torch.allclose(average_outputs(online.whole, CLASSES), mean.whole, atol=1e-12)
    labels = torch.cat(list(SAMPLES.labels))
    targets = F.one_hot(labels, CLASSES).double() - 1 / CLASSES
    expected = choose_sharing(mean.whole, mean.owner, targets, mean.blocks)
    found = examine_sharing(online, offline, SAMPLES)
    assert found.left_out == pytest.approx({n: c.best_w for n, c in zip("abc", expected.clients, strict=True)})
    assert found.ridge == expected.ridge


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.2, 4))
def test_the_fusion_is_where_the_cross_entropy_is_least(seed, scale):
    on, off, y = scale * draw(7, CLASSES, seed=seed), draw(7, CLASSES, seed=seed + 1), torch.arange(7) % CLASSES
    grid = torch.linspace(0, 1, 401, dtype=torch.float64)
    losses = torch.stack([F.cross_entropy(2 * (w * on + (1 - w) * off), y) for w in grid])
    best = choose_fusion(on, off, y)
    assert best == pytest.approx(grid[losses.argmin()].item(), abs=1 / 400 + 1e-9)
    assert choose_fusion(off, on, y) == pytest.approx(1 - best, abs=1e-9)
    assert choose_fusion(on, on, y) is None


def test_held_out_data_prefer_the_model_that_is_right(online, offline):
    labels = [torch.arange(9) % CLASSES] * 3
    right, wrong = ([sign * F.one_hot(y, CLASSES).double() for y in labels] for sign in (1, -1))
    found = examine_sharing(online, offline, SAMPLES, HeldOut("val", {"online": right, "offline": wrong}, labels))
    assert found.held_out == {"a": 1.0, "b": 1.0, "c": 1.0}
    assert found.split == "val"
    told = found.to_dict()
    assert told["held_out"] == found.held_out
    assert told["w"][0] == 0
    assert len(told["w"]) == len(told["lambda_min"]) == len(told["federated_lambda_min"])
