"""Kernels, spectra, orderings and the next round of small networks, each by a second road."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from theory import InputError
from theory.networks.kernels import ClientSamples, FederatedKernel, compute_federated_ntk
from theory.networks.network_study import (
    LocalSteps,
    NetworkCheckpoint,
    choose_models,
    compute_model_kernels,
    study_networks,
)
from theory.networks.next_round import compare_round, compare_tiny_round, forecast_round, make_round
from theory.networks.orderings import judge_orderings
from theory.networks.spectrum import encode_labels, measure_spectrum
from theory.networks.tangent_round import compare_real_round, foretell_round

CLASSES = 3


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def build_net(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Linear(5, 30), nn.BatchNorm1d(30), nn.Tanh(), nn.Linear(30, CLASSES))
    return net.double().eval()


def build_samples(sizes=(3, 2, 4)):
    inputs = tuple(draw(n, 5, seed=10 + i) for i, n in enumerate(sizes))
    labels = tuple(torch.arange(n) % CLASSES for n in sizes)
    weights = tuple(n / sum(sizes) for n in sizes)
    return ClientSamples(tuple("abcdef"[: len(sizes)]), inputs, labels, weights)


SAMPLES = build_samples()
SHARED = frozenset({"0.weight", "0.bias", "3.weight", "3.bias"})
"""All but batch norm."""


def build_clients(personal_seed=None):
    """Networks that agree in what is shared."""
    nets = [build_net() for _ in SAMPLES.names]
    if personal_seed is not None:
        for i, net in enumerate(nets):
            net[1].weight.data = 1 + 0.3 * draw(30, seed=personal_seed + i)
            net[1].running_mean.copy_(0.2 * draw(30, seed=90 + i))
    return nets


def stack_rows(nets, names):
    """The Jacobian of all samples and outputs by plain autograd, for the given entries."""
    rows = []
    for net, x in zip(nets, SAMPLES.inputs, strict=True):
        chosen = [p for name, p in net.named_parameters() if name in names]
        for value in net(x).flatten():
            gradients = torch.autograd.grad(value, chosen, retain_graph=True)
            rows.append(torch.cat([g.flatten() for g in gradients]))
    return torch.stack(rows)


def test_the_kernel_couples_clients_through_what_they_share_alone():
    nets = build_clients(personal_seed=40)
    found = compute_federated_ntk(nets, SAMPLES, SHARED)
    names = {name for name, _ in nets[0].named_parameters()}
    shared, personal = stack_rows(nets, SHARED), stack_rows(nets, names - SHARED)
    owner = torch.tensor([0] * 9 + [1] * 6 + [2] * 12)
    same = owner[:, None] == owner
    assert torch.equal(found.owner, owner)
    assert torch.allclose(found.shared, shared @ shared.T, atol=1e-12)
    assert torch.allclose(found.personal, personal @ personal.T * same, atol=1e-12)
    assert torch.equal(found.blocks, found.whole * same)
    assert found.couples_clients
    assert not compute_federated_ntk(nets, SAMPLES, frozenset()).couples_clients
    assert [rows.stop for rows in found.list_rows()] == [9, 15, 27]


# ---- spectrum


def test_the_spectrum_of_a_kernel_by_hand():
    labels = torch.tensor([0, 1])
    found = measure_spectrum(torch.diag(torch.tensor([1.0, 1.0, 4.0, 4.0], dtype=torch.float64)), labels, 2)
    assert (found.lambda_min, found.lambda_max, found.condition) == (1.0, 4.0, 4.0)
    shares = torch.tensor([0.1, 0.1, 0.4, 0.4], dtype=torch.float64)
    assert found.effective_rank == pytest.approx(torch.distributions.Categorical(shares).entropy().exp().item())
    assert found.alignment == pytest.approx((0.25 * 10) / (34**0.5 * 1.0))


def test_a_kernel_of_the_labels_is_aligned_and_has_rank_one():
    labels = torch.tensor([2, 0, 1, 1])
    y = encode_labels(labels, 3)
    found = measure_spectrum(torch.outer(y, y), labels, 3)
    assert found.alignment == pytest.approx(1)
    assert found.effective_rank == pytest.approx(1, rel=1e-6)
    assert found.condition is None
    assert y.view(4, 3).sum(1).abs().max() < 1e-15


# ---- orderings


def test_the_orderings_hold_where_the_models_are_equal():
    kernel = compute_federated_ntk(build_clients(), SAMPLES, SHARED)
    found = judge_orderings(kernel.whole, kernel.blocks, kernel.owner)
    assert {name: one.verdict for name, one in found.items()} == dict.fromkeys(["O1", "O2", "O3", "O4"], "holds")
    values = torch.linalg.eigvalsh(kernel.whole)
    assert found["O2"].rhs == pytest.approx(values[0].item())
    assert found["O4"].rhs == pytest.approx(values[-1].item())


def test_the_orderings_fail_where_they_fail():
    kernel = compute_federated_ntk(build_clients(), SAMPLES, SHARED)
    weak = judge_orderings(kernel.whole, 0.01 * kernel.blocks, kernel.owner)
    assert [weak[name].verdict for name in ("O1", "O2", "O3", "O4")] == ["fails", "fails", "fails", "holds"]
    strong = judge_orderings(kernel.whole, 9 * kernel.whole.diag().diag(), kernel.owner)
    assert strong["O1"].verdict == "fails"
    steep = judge_orderings(kernel.whole, 9 * kernel.blocks, kernel.owner)
    assert steep["O4"].verdict == "fails"
    singular = judge_orderings(torch.ones(4, 4).double(), 2 * torch.ones(4, 4).double(), torch.zeros(4).long())
    assert singular["O2"].verdict == "undecided"


# ---- the next round


def train_by_hand(nets, lr, steps, shared):
    """Literally, with torch's own optimiser and state dicts."""
    nets = copy.deepcopy(list(nets))
    for net, x, y, count in zip(nets, SAMPLES.inputs, SAMPLES.labels, steps, strict=True):
        optimiser = torch.optim.SGD(net.parameters(), lr=lr)
        for _ in range(count):
            optimiser.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimiser.step()
    states = [net.state_dict() for net in nets]
    for name in shared:
        mean = sum(w * state[name] for w, state in zip(SAMPLES.weights, states, strict=True))
        for state in states:
            state[name].copy_(mean)
    return [net(x).detach() for net, x in zip(nets, SAMPLES.inputs, strict=True)]


@pytest.mark.parametrize("shared", [SHARED, frozenset(), frozenset(name for name, _ in build_net().named_parameters())])
def test_a_round_is_what_sgd_and_averaging_make(shared):
    nets, steps = build_clients(), (2, 1, 3)
    found, expected = make_round(nets, SAMPLES, shared, 0.1, steps), train_by_hand(nets, 0.1, steps, shared)
    assert all(torch.allclose(a, b, atol=1e-14) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("shared", [SHARED, frozenset()])
def test_the_kernel_predicts_a_tiny_round_and_errs_by_the_square_of_the_step(shared):
    nets = build_clients(personal_seed=40)
    kernel = compute_federated_ntk(nets, SAMPLES, shared)
    assert compare_tiny_round(nets, kernel, SAMPLES, shared).error < 1e-4
    large, small = (compare_round(nets, kernel, SAMPLES, shared, lr, (2, 1, 3)).error for lr in (1e-3, 1e-4))
    assert small < 1e-2
    assert 0.08 < small / large < 0.12


def test_another_kernel_does_not_predict_the_round():
    nets = build_clients(personal_seed=40)
    kernel = compute_federated_ntk(nets, SAMPLES, SHARED)
    alone = FederatedKernel(torch.zeros_like(kernel.whole), kernel.blocks, kernel.owner)  # nothing shared
    assert compare_tiny_round(nets, alone, SAMPLES, SHARED).error > 0.1
    pooled = ClientSamples(SAMPLES.names, SAMPLES.inputs, SAMPLES.labels, (1.0, 1.0, 1.0))
    wrong = forecast_round(
        kernel, [net(x).detach() for net, x in zip(nets, SAMPLES.inputs, strict=True)], pooled, 1e-4, (1, 1, 1)
    )
    real = [
        b - net(x).detach()
        for net, x, b in zip(nets, SAMPLES.inputs, make_round(nets, SAMPLES, SHARED, 1e-4, (1, 1, 1)), strict=True)
    ]
    assert (torch.cat(wrong) - torch.cat(real)).norm() > 0.1 * torch.cat(real).norm()


def list_batches(size):
    """Each client's samples twice over, in batches."""
    found = []
    for x, y in zip(SAMPLES.inputs, SAMPLES.labels, strict=True):
        own = list(zip(x.split(size), y.split(size), strict=True))
        found.append(lambda own=own: own * 2)
    return found


@pytest.mark.parametrize("shared", [SHARED, frozenset()])
def test_the_tangent_round_is_what_the_kernel_foretells_of_full_batches(shared):
    """Two roads: steps on the networks' tangents, and the matrix over all samples."""
    nets = build_clients(personal_seed=40)
    kernel = compute_federated_ntk(nets, SAMPLES, shared)
    before = [net(x).detach() for net, x in zip(nets, SAMPLES.inputs, strict=True)]
    expected = forecast_round(kernel, before, SAMPLES, 0.3, (2, 2, 2))
    found = foretell_round(nets, list_batches(9), SAMPLES, shared, 0.3)
    assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(found, expected, strict=True))
    assert max(one.abs().max() for one in found) > 0.1


def test_the_tangent_round_errs_on_real_batches_by_the_square_of_the_step():
    nets, batches, errors = build_clients(personal_seed=40), list_batches(2), []
    for lr in (1e-3, 1e-4):
        trained = copy.deepcopy(nets)
        for net, own in zip(trained, batches, strict=True):
            optimiser = torch.optim.SGD(net.parameters(), lr=lr)
            for x, y in own():
                optimiser.zero_grad()
                F.cross_entropy(net(x), y).backward()
                optimiser.step()
        states = [net.state_dict() for net in trained]
        for name in SHARED:
            mean = sum(w * state[name] for w, state in zip(SAMPLES.weights, states, strict=True))
            for state in states:
                state[name].copy_(mean)
        after = [net(x).detach() for net, x in zip(trained, SAMPLES.inputs, strict=True)]
        made = compare_real_round(nets, after, batches, SAMPLES, SHARED, lr)
        assert (made.lr, made.steps) == (lr, 4)
        errors.append(made.error)
    assert errors[1] < 1e-2
    assert 0.08 < errors[1] / errors[0] < 0.12
    assert compare_real_round(nets, after, batches, SAMPLES, frozenset(), 1e-4).error > 0.1  # had nothing been shared


# ---- all of it


class Both(nn.Module):
    def __init__(self, online, offline):
        super().__init__()
        self.online, self.offline, self.which = online, offline, "both"

    def forward(self, x):
        models = {"online": [self.online], "offline": [self.offline], "both": [self.online, self.offline]}
        return sum(model(x) for model in models[self.which])


def build_pairs(which, offline_seed=0):
    nets = [Both(build_net(), build_net(offline_seed + i if offline_seed else 0)) for i in range(len(SAMPLES.names))]
    for net in nets:
        net.which = which
        net.eval()
    return nets


PAIR_SHARED = frozenset(f"online.{name}" for name in SHARED)


def build_checkpoint(round, offline_seed=0, is_sum=True):
    models = {name: build_pairs(name, offline_seed) for name in ("online", "offline")}
    fused = () if is_sum else build_pairs("both", offline_seed)
    return NetworkCheckpoint(round, models, PAIR_SHARED, is_sum, fused)


def test_the_kernel_of_summed_logits_is_the_sum_of_the_kernels():
    by_sum, direct = (compute_model_kernels(build_checkpoint(0, 5, is_sum), SAMPLES) for is_sum in (True, False))
    for part in ("shared", "personal"):
        assert torch.allclose(getattr(by_sum["fused"], part), getattr(direct["fused"], part), atol=1e-11)
    online, offline, words = choose_models(by_sum)
    assert torch.equal(online.whole, by_sum["online"].whole)
    assert torch.equal(offline.whole, by_sum["offline"].whole)
    assert "online model, V_off of the offline model" in words


def test_a_study_of_two_checkpoints():
    study = study_networks(
        iter([build_checkpoint(0), build_checkpoint(3, offline_seed=7)]), SAMPLES, local=LocalSteps(0.1, (2, 2, 2))
    )
    first, second = study.checkpoints
    assert (first.round, second.round) == (0, 3)
    assert all(one.verdict == "holds" for one in first.orderings.values())
    assert second.orderings["O1"].verdict == "fails"
    assert study.holds
    assert (study.outputs, study.samples, study.dtype) == (3, [3, 2, 4], "float64")
    assert set(first.models) == {"online", "offline", "fused"}
    assert first.models["online"].drift == 0
    assert second.models["online"].drift == 0
    assert second.models["offline"].drift > 0.01
    for name in ("online", "offline"):
        assert first.models[name].tiny_round.error < 1e-4
        assert first.models[name].own_round.steps == 2
    assert first.models["fused"].tiny_round is None
    assert list(first.models["online"].clients) == ["a", "b", "c"]
    assert any("Batch norm in training mode" in note for note in study.notes)
    told = study.to_dict()
    assert told["checkpoints"][1]["orderings"]["O1"]["verdict"] == "fails"


def test_nothing_to_look_at_is_refused():
    with pytest.raises(InputError, match="no checkpoint"):
        study_networks([], SAMPLES)
    with pytest.raises(InputError, match="a name, inputs, labels and a weight"):
        ClientSamples(("a",), (), (), ())
    training = NetworkCheckpoint(0, {"model": [net.train() for net in build_clients()]}, SHARED)
    with pytest.raises(InputError, match=r"training mode.*\.eval\(\)"):
        study_networks([training], SAMPLES)


def test_kernels_that_do_not_fit_together_are_refused_before_the_work(monkeypatch):
    """One of them would: all models' kernels are held at once."""
    monkeypatch.setattr("theory.networks.network_study.compute_model_kernels", lambda *args: pytest.fail("started"))
    with pytest.raises(InputError, match="9 samples with 3 outputs needs about"):
        study_networks([build_checkpoint(0)], SAMPLES, memory=10 * 27**2 * 8)
