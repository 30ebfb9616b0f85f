"""The network: one formula, in the theory's form (population covariance) and in the trained one (batch statistics)."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtrain.parameters import all_entries, batch_norm_entries
from theory import TwoLayerBN
from theory.kernels.autograd import get_trainable_parameters
from theory.network import HIDDEN_KEY, SCALE_KEY, ScaleNorm, compute_covariance_norms, draw_weights

TINY = torch.finfo(torch.float64).tiny  # torch refuses eps = 0 in training


def draw_normal(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def build_both_forms(x, width, outputs=1, seed=0):
    """The same weights, some γ negative, over batch statistics and over S = x'x/n."""
    v, gamma, c = (
        draw_normal(seed, width, x.shape[1]),
        draw_normal(seed + 1, width),
        draw_normal(seed + 2, outputs, width),
    )
    plain = TwoLayerBN(x.shape[1], width, outputs, eps=TINY, dtype=torch.float64)
    theory = TwoLayerBN(x.shape[1], width, outputs, covariance=x.T @ x / len(x))
    return [net.load_weights(v, gamma, c) for net in (plain, theory)]


def given_batches(test):
    given_shape = given(
        n=st.integers(3, 12), dim=st.integers(1, 6), width=st.integers(1, 9), outputs=st.integers(1, 3),
        seed=st.integers(0, 2**20),
    )  # fmt: skip
    return settings(max_examples=40)(given_shape(test))


def draw_centred(n, dim, seed):
    x = draw_normal(seed, n, dim)
    return x - x.mean(0)


def compute_steepness(net, x):
    """Largest derivative there can be: γ/|v|_S times the longest sample. Rounding is relative to it."""
    v, gamma = net.get_parameter(HIDDEN_KEY), net.get_parameter(SCALE_KEY)
    slope = (gamma / compute_covariance_norms(v, net.covariance)).abs().max().item()
    return max(1.0, slope) * (1 + x.norm().item()) * (1 + v.norm().item())


@given_batches
def test_both_forms_give_the_same_outputs_in_training(n, dim, width, outputs, seed):
    x = draw_centred(n, dim, seed + 10)
    plain, theory = build_both_forms(x, width, outputs, seed)
    assert plain.training
    assert (plain(x) - theory(x)).abs().max() <= 1e-12 * compute_steepness(theory, x)


@given_batches
def test_both_forms_give_the_same_gradients_in_training(n, dim, width, outputs, seed):
    """Through batch statistics and through |v|_S: the derivative of the normaliser is the same."""
    x, towards = draw_centred(n, dim, seed + 10), draw_normal(seed + 11, n, outputs)
    nets = build_both_forms(x, width, outputs, seed)
    for net in nets:
        (net(x) * towards).sum().backward()
    for name in (HIDDEN_KEY, SCALE_KEY):
        one, other = (net.get_parameter(name).grad for net in nets)
        assert (one - other).abs().max() <= 1e-12 * compute_steepness(nets[1], x) * (1 + other.abs().max())


@given_batches
def test_running_variance_of_v_s_v_makes_evaluation_agree(n, dim, width, outputs, seed):
    x, new = draw_centred(n, dim, seed + 10), draw_normal(seed + 12, 5, dim)
    plain, theory = build_both_forms(x, width, outputs, seed)
    plain.eval().features.norm.running_var.copy_(
        compute_covariance_norms(plain.get_parameter(HIDDEN_KEY), theory.covariance).detach() ** 2
    )
    assert (plain(new) - theory(new)).abs().max() <= 1e-12 * compute_steepness(theory, new)


def test_running_variance_is_what_a_batch_leaves_behind():
    """torch keeps the unbiased variance: v'Sv n/(n-1)."""
    x = draw_centred(20, 4, 0)
    plain, theory = build_both_forms(x, 6)
    plain.features.norm.momentum = 1.0
    plain(x)
    left = plain.features.norm.running_var * 19 / 20
    assert torch.allclose(
        left, compute_covariance_norms(theory.get_parameter(HIDDEN_KEY), theory.covariance) ** 2, rtol=1e-12
    )


@given_batches
def test_outputs_are_the_papers_formula_unit_by_unit(n, dim, width, outputs, seed):
    x = draw_centred(n, dim, seed + 10)
    _, net = build_both_forms(x, width, outputs, seed)
    S, v, gamma = (
        t.detach().numpy() for t in (net.covariance, net.get_parameter(HIDDEN_KEY), net.get_parameter(SCALE_KEY))
    )
    c = draw_normal(seed + 2, outputs, width).numpy()
    for p, o in np.ndindex(n, outputs):
        total = 0.0
        for k in range(width):
            total += c[o, k] * max(0.0, gamma[k] * (v[k] @ x[p].numpy()) / math.sqrt(v[k] @ S @ v[k]))
        assert abs(net(x)[p, o].item() - total / math.sqrt(width)) <= 1e-12 * compute_steepness(net, x)


@given_batches
def test_the_length_of_v_does_not_matter(n, dim, width, outputs, seed):
    """Degree 0 in each v_k: outputs stay, and the gradient is orthogonal to v_k (Euler)."""
    x = draw_centred(n, dim, seed + 10)
    _, net = build_both_forms(x, width, outputs, seed)
    before = net(x)
    before.sum().backward()
    v = net.get_parameter(HIDDEN_KEY)
    room = 1e-12 * compute_steepness(net, x)
    assert ((v * v.grad).sum(1)).abs().max() <= room * (1 + v.grad.abs().max())
    with torch.no_grad():
        v *= torch.rand(width, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) + 0.5
    assert (net(x) - before).abs().max() <= room


# ---- initialisation


@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_initialisation_is_the_papers(alpha):
    """v ~ N(0, α² I), γ = |v|/α, c = ±1."""
    net = TwoLayerBN(10, 4000, alpha=alpha, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    v, gamma = (net.get_parameter(name).detach() for name in (HIDDEN_KEY, SCALE_KEY))
    c = net.head.weight * 4000**0.5
    assert torch.allclose(gamma, v.norm(dim=1) / alpha, rtol=1e-14)
    assert torch.allclose(c.abs(), torch.ones_like(c), rtol=1e-14)
    count = v.numel()  # six standard deviations of the mean, of the variance, of the coin
    assert abs(v.mean()) <= 6 * alpha / count**0.5
    assert abs(v.var() / alpha**2 - 1) <= 6 * (2 / count) ** 0.5
    assert abs(c.mean()) <= 6 / c.numel() ** 0.5


def test_online_and_offline_start_equal():
    """The same draw on every client: F_on = F_off at t = 0, whatever the covariances."""
    S = torch.diag(torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64))
    online, offline = (TwoLayerBN(3, 50, covariance=S, generator=torch.Generator().manual_seed(7)) for _ in range(2))
    x = draw_normal(0, 4, 3)
    assert torch.equal(online(x), offline(x))


def test_a_draw_is_repeated_by_its_seed_alone():
    one, two = (draw_weights(3, 8, 0.5, torch.Generator().manual_seed(3), outputs=2) for _ in range(2))
    other = draw_weights(3, 8, 0.5, torch.Generator().manual_seed(4), outputs=2)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert not torch.equal(one[0], other[0])
    assert [t.shape for t in one] == [(8, 3), (8,), (2, 8)]


# ---- what the trainer relies on


def test_the_scale_is_batch_norm_by_type_and_has_no_shift():
    net = TwoLayerBN(3, 5)
    assert isinstance(net.features.norm, ScaleNorm)
    assert batch_norm_entries(net, stats=False) == {SCALE_KEY}
    layer = SCALE_KEY.removesuffix(".weight")
    stats = {f"{layer}.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")}
    assert batch_norm_entries(net) == {SCALE_KEY} | stats


def test_v_and_gamma_are_where_their_names_say():
    net = TwoLayerBN(3, 5, covariance=torch.eye(3, dtype=torch.float64))
    v, gamma, c = draw_normal(0, 5, 3), draw_normal(1, 5), draw_normal(2, 5)
    assert net.load_weights(v, gamma, c) is net
    state = net.state_dict()
    assert torch.equal(state[HIDDEN_KEY], v)
    assert torch.equal(state[SCALE_KEY], gamma)
    assert torch.allclose(state["head.weight"], c[None] / 5**0.5)


def test_the_covariance_is_not_saved_so_both_forms_exchange_weights():
    """A checkpoint of the trainer can be read by the theory, and the other way round."""
    theory = TwoLayerBN(3, 5, covariance=torch.eye(3, dtype=torch.float64))
    plain = TwoLayerBN(3, 5, dtype=torch.float64)
    assert all_entries(theory) == all_entries(plain)
    theory.load_state_dict(plain.state_dict())
    plain.load_state_dict(theory.state_dict())


def test_loading_copies():
    net, v = TwoLayerBN(3, 5), torch.ones(5, 3)
    net.load_weights(v, torch.ones(5), torch.ones(5))
    v.zero_()
    assert net.get_parameter(HIDDEN_KEY).min() == 1


def test_the_head_is_frozen():
    net = TwoLayerBN(3, 5, generator=torch.Generator().manual_seed(0))
    assert set(get_trainable_parameters(net)) == {HIDDEN_KEY, SCALE_KEY}
    before = copy.deepcopy(net.state_dict())
    optimiser = torch.optim.SGD(net.parameters(), lr=1.0)
    net(torch.randn(6, 3, generator=torch.Generator().manual_seed(0))).sum().backward()
    optimiser.step()
    after = net.state_dict()
    assert torch.equal(after["head.weight"], before["head.weight"])
    assert not torch.equal(after[HIDDEN_KEY], before[HIDDEN_KEY])
    assert not torch.equal(after[SCALE_KEY], before[SCALE_KEY])


# ---- outputs and precisions


def test_each_of_several_outputs_is_a_network_of_its_own():
    S, x = torch.eye(4, dtype=torch.float64), draw_normal(0, 7, 4)
    v, gamma, c = draw_weights(4, 30, 0.5, torch.Generator().manual_seed(0), outputs=3)
    together = TwoLayerBN(4, 30, 3, covariance=S).load_weights(v, gamma, c)(x)
    alone = [TwoLayerBN(4, 30, covariance=S).load_weights(v, gamma, one)(x) for one in c]
    assert together.shape == (7, 3)
    assert torch.allclose(together, torch.cat(alone, 1), rtol=0, atol=1e-13)


def test_single_precision_is_the_same_network_rounded():
    S, x = torch.diag(torch.tensor([1.0, 2.0, 5.0])), draw_normal(0, 6, 3)
    single, double = (
        TwoLayerBN(3, 200, covariance=S.to(dtype), alpha=0.3, generator=torch.Generator().manual_seed(5))
        for dtype in (torch.float32, torch.float64)
    )
    found = single(x.float())
    assert {p.dtype for p in single.parameters()} == {found.dtype} == {torch.float32}
    assert torch.equal(single.get_parameter(HIDDEN_KEY), double.get_parameter(HIDDEN_KEY).float())
    assert torch.allclose(found.double(), double(x), rtol=0, atol=1e-5)


def test_norms_broadcast_over_clients():
    v, roots = draw_normal(0, 6, 3), draw_normal(1, 4, 3, 3)
    S = roots @ roots.mT
    expected = torch.stack([torch.stack([(u @ one @ u).sqrt() for u in v]) for one in S])
    assert torch.allclose(compute_covariance_norms(v, S), expected, rtol=1e-13)
