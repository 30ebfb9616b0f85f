"""X1 both ways: the orderings for deep networks."""

import copy
from dataclasses import replace

import pytest
import torch
from studies import assert_well_formed, check_claim, compute_eigenvalues, draw_normal
from torch import nn

from theory import InputError
from theory.claims import deep
from theory.claims.deep import check_deep_orderings, compute_deep_kernels

# X1: deep networks


def build_conv_net(seed, outputs=3):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 9, outputs),
        )  # fmt: skip
        for _ in range(3):
            net(torch.randn(16, 1, 6, 6))  # running statistics other than 0 and 1
    return net.double().eval()


IMAGES = [draw_normal(3, 1, 6, 6, seed=10), draw_normal(2, 1, 6, 6, seed=11)]


def train_with_sgd(nets, steps=4):
    """A few steps of each network on one client's images, batch norm in training mode, then back."""
    for net, x in zip(nets, IMAGES, strict=False):
        optimiser = torch.optim.SGD(net.train().parameters(), lr=0.1)
        for _ in range(steps):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(x), torch.arange(len(x)) % 3).backward()
            optimiser.step()
        net.eval()
    return nets


def test_x1_deep_kernels_agree_with_plain_autograd():
    net = build_conv_net(0)
    found = compute_deep_kernels(net, IMAGES)
    rows = []
    for x in torch.cat(IMAGES):
        for value in net(x[None])[0]:
            grads = torch.autograd.grad(value, list(net.parameters()), retain_graph=True)
            rows.append(torch.cat([g.flatten() for g in grads]))
    J = torch.stack(rows)
    assert found.owner.tolist() == [0] * 9 + [1] * 6
    assert torch.allclose(found.online, J @ J.T, rtol=1e-10)
    same = found.owner[:, None] == found.owner[None, :]
    assert torch.allclose(found.offline, J @ J.T * same, rtol=1e-10)
    assert torch.allclose(compute_deep_kernels(net, IMAGES, chunk=1).online, found.online, rtol=1e-10)


def test_x1_deep_kernels_keep_no_graph():
    """A graph would hold every Jacobian in memory, which taking one parameter at a time is meant to avoid."""
    found = compute_deep_kernels(build_conv_net(0), IMAGES)
    assert not found.online.requires_grad
    assert not found.offline.requires_grad


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("copies", [False, True])
def test_x1_holds_for_equal_weights(trained, copies):
    """At the start, and at a checkpoint from which the offline networks are copied."""
    net = build_conv_net(0)
    if trained:
        train_with_sgd([net])
    offline = [copy.deepcopy(net) for _ in IMAGES] if copies else None
    kernel = compute_deep_kernels(net, IMAGES, offline)
    found = assert_well_formed(check_deep_orderings(kernel))
    assert found.verdict == "holds"
    assert found.evidence["holds"] == {"O1": True, "O2": True, "O3": True}
    on, off, mean = (
        compute_eigenvalues(K)[0] for K in (kernel.online, kernel.offline, (kernel.online + kernel.offline) / 2)
    )
    assert found.evidence["lambda_min"] == pytest.approx({"off": off, "mean": mean, "on": on})
    assert (found.lhs, found.rhs) == pytest.approx((off, on))
    assert found.margin > 0


def test_x1_holds_in_single_precision():
    assert (
        assert_well_formed(
            check_deep_orderings(compute_deep_kernels(build_conv_net(0).float(), [x.float() for x in IMAGES]))
        ).verdict
        == "holds"
    )


def test_x1_fails_for_offline_networks_of_other_weights():
    found = assert_well_formed(
        check_deep_orderings(compute_deep_kernels(build_conv_net(0), IMAGES, [build_conv_net(1), build_conv_net(2)]))
    )
    assert found.verdict == "fails"
    assert found.evidence["holds"]["O1"] is False
    assert found.evidence["relative_difference_from_blocks"] > 0.01


def test_x1_fails_at_a_checkpoint_where_each_client_has_trained_alone():
    net = build_conv_net(0)
    own = train_with_sgd([copy.deepcopy(net) for _ in IMAGES])
    assert assert_well_formed(check_deep_orderings(compute_deep_kernels(net, IMAGES, own))).verdict == "fails"


def test_x1_judges_each_ordering():
    """Kernels by hand, as no two networks would give them."""
    kernel = compute_deep_kernels(build_conv_net(0), IMAGES)
    weaker = assert_well_formed(check_deep_orderings(replace(kernel, offline=0.01 * kernel.offline)))
    assert weaker.evidence["holds"] == {"O1": False, "O2": False, "O3": False}
    assert weaker.verdict == "fails"
    stronger = assert_well_formed(check_deep_orderings(replace(kernel, offline=2 * kernel.offline)))
    assert stronger.evidence["holds"] == {"O1": False, "O2": True, "O3": True}
    assert stronger.verdict == "fails"


def test_x1_refuses_batch_norm_in_training_mode():
    with pytest.raises(InputError, match=r"batch norm '1' is in training mode.*eval\(\)"):
        compute_deep_kernels(build_conv_net(0).train(), IMAGES)
    with pytest.raises(InputError, match="training mode"):
        compute_deep_kernels(build_conv_net(0), IMAGES, [build_conv_net(0), build_conv_net(0).train()])


def test_x1_fails_on_the_study_if_its_networks_differ(usual, monkeypatch):
    def with_other_weights(net, inputs):
        return compute_deep_kernels(
            net, inputs, [deep.build_small_conv_net(5, torch.Generator().manual_seed(9)) for _ in inputs]
        )

    monkeypatch.setattr(deep, "compute_deep_kernels", with_other_weights)
    assert check_claim("X1", usual).verdict == "fails"


def test_x1_on_the_study_is_the_same_each_time(usual):
    first, second = check_claim("X1", usual), check_claim("X1", usual)
    assert first == second
    assert first.verdict == "holds"
    assert first.margin > 0
    assert "O1 is an identity" in first.words
