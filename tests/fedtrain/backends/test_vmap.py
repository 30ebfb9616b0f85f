"""Clients that advance as one end where clients that take turns do."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedtrain.backends.serial import SerialBackend
from fedtrain.backends.vmap.backend import VmapBackend
from fedtrain.backends.vmap.client_module import StackedPeers
from fedtrain.backends.vmap.stacked_clients import StackedClients
from fedtrain.config.local import LocalSettings
from fedtrain.config.schema import Config, MachineSettings, ServerSettings
from fedtrain.data.client_data import ClientData, Preprocessing, Samples
from fedtrain.errors import TrainingError
from fedtrain.federated.client import ClientTrainer, Precision
from fedtrain.federated.messages import Failure
from fedtrain.federated.server import federate, sample_cohort
from fedtrain.federated.sgd import SGDStep
from fedtrain.methods import METHODS, Peers
from fedtrain.methods.cooperate import Cooperate
from fedtrain.methods.copa import Copa
from fedtrain.methods.fedavg import FedAvg
from fedtrain.methods.fedco2 import FedCO2
from fedtrain.methods.fedrod import FedRoD
from fedtrain.methods.singleset import SingleSet
from fedtrain.models import Net, build_two_layer_net
from fedtrain.runs.loop import run_rounds

CLOSE = 1e-9
"""Rounding is 1e-16, and steps through batch norm on few samples make up to 1e-12 of it."""
SIZES = {"d": 7, "b": 6, "c": 3, "a": 6}


def images(sizes=SIZES, side=6):
    chance = torch.Generator().manual_seed(0)

    def samples(n, shift):
        pixels = torch.randint(256 - 40 * shift, (n, 3, side, side), generator=chance).byte()
        return Samples(pixels + 40 * shift, torch.arange(n) % 3)

    return [ClientData(c, samples(n, i), samples(5, i), noise=10.0 * (i % 2)) for i, (c, n) in enumerate(sizes.items())]


def convolutional(norm=True):
    layers = [nn.Conv2d(3, 4, 3, stride=2), *([nn.BatchNorm2d(4)] if norm else []), nn.ReLU(), nn.Flatten()]
    hidden = [nn.Linear(16, 5), *([nn.BatchNorm1d(5)] if norm else []), nn.ReLU(), nn.Linear(5, 3)]
    return Net(nn.Sequential(*layers), nn.Sequential(*hidden))


def bare():
    return convolutional(norm=False)


def build_backend(kind, method, clients=None, make=convolutional, skip_failures=False, precision=None, **local):
    how = LocalSettings(**{"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-2, "epochs": 2, "batch_size": 3} | local)
    more = {"preprocessing": Preprocessing(augment=True), "precision": precision or Precision(torch.float64)}
    trainer = ClientTrainer(method, make, 3, local=how, fast_path=False, **more)
    return kind(trainer, clients or images(), skip_failures=skip_failures)


def both(*args, **options):
    return [build_backend(kind, *args, **options) for kind in (SerialBackend, VmapBackend)]


def close(one, other, tolerance=CLOSE):
    """Two nests of dicts with the same names in the same order; floating point numbers may be a rounding apart."""
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype
        scale = one.double().abs().max().item() if one.is_floating_point() else 0.0
        assert torch.allclose(one, other, rtol=0, atol=tolerance * scale)
        return
    assert list(one) == list(other)
    for name in one:
        close(one[name], other[name], tolerance)


def agree(serial, vmapped, rounds=3, participation=1.0, tolerance=CLOSE):
    """All that is answered, sent and kept, in every round, and the scores."""
    runs = (federate(each, each.initial_broadcast(), rounds, participation=participation) for each in (serial, vmapped))
    for one, other in zip(*runs, strict=True):
        for a, b in zip(one.updates, other.updates, strict=True):
            assert (a.client, a.num_examples) == (b.client, b.num_examples)
            assert a.loss == pytest.approx(b.loss, rel=tolerance)
            close(a.shared, b.shared, tolerance)
            close(a.published, b.published, tolerance)
        assert [failure.client for failure in one.failures] == [failure.client for failure in other.failures]
        close(one.message.peers, other.message.peers, tolerance)
        close(serial.client_states, vmapped.client_states, tolerance)
    scores = [each.evaluate(end.message, ("test",)) for each, end in ((serial, one), (vmapped, other))]
    for client in serial.client_names:
        for branch, score in scores[0][client]["test"].items():
            assert score.loss == pytest.approx(scores[1][client]["test"][branch].loss, rel=tolerance)


# ---- equality


def test_together_is_as_in_turn(method):
    """Unequal sizes, a rest of one that batch norm cannot use, some clients absent, momentum, weight decay, noise."""
    agree(*both(method), participation=0.75)


WITHOUT_BATCH_NORM = [kind() for kind in METHODS.values() if not kind.needs_batch_norm and kind is not Cooperate]


@pytest.mark.parametrize("method", [*WITHOUT_BATCH_NORM, Cooperate(online=FedAvg())], ids=lambda method: method.title)
def test_without_batch_norm_too(method):
    """Where a rest of one sample is a batch."""
    agree(*both(method, make=bare), rounds=2)


def test_a_personal_head_without_momentum_beside_weights_with_it():
    agree(*both(FedRoD(personal_sgd="plain"), make=bare))


@pytest.mark.parametrize("name", ["fedavg", "fedprox"])
def test_frozen_weights_stay_where_they_are(name):
    serial, vmapped = both(METHODS[name](), make=lambda: build_two_layer_net(108, 3, width=8))
    assert any(not weight.requires_grad for weight in vmapped.trainer.module.parameters())
    agree(serial, vmapped, rounds=2)


class Alternating(FedAvg):
    """The head alone, everything, the features alone, the head again."""

    def phases(self, round, epochs):
        return [self.head_only, self.loss, self.features_only, self.head_only]

    def head_only(self, module, batch, context):
        z = module.features(batch[0]).detach()
        return nn.functional.cross_entropy(module.head(z), batch[1])

    def features_only(self, module, batch, context):
        return module.features(batch[0]).square().mean()


def test_what_a_phase_does_not_touch_stays_in_spite_of_momentum():
    agree(*both(Alternating(), make=bare), rounds=2)


@given(
    sizes=st.lists(st.integers(0, 8), min_size=1, max_size=4),
    batch_size=st.integers(2, 6),
    momentum=st.sampled_from([0.0, 0.5]),
    weight_decay=st.sampled_from([0.0, 0.1]),
    last_batch=st.sampled_from(["keep", "drop"]),
    method=st.sampled_from([FedCO2(), Copa(), FedRoD(personal_sgd="plain"), FedCO2(intra="online", inter="offline")]),
    skip=st.booleans(),
)
@settings(max_examples=15, deadline=None, database=None, derandomize=True)
def test_whatever_the_sizes_both_end_alike_or_complain_alike(sizes, method, skip, **local):
    clients = images(dict(zip("cabd", sizes, strict=False)))
    backends = both(method, clients, skip_failures=skip, epochs=1, **local)
    said = []
    for each in backends:
        try:
            list(federate(each, each.initial_broadcast(), 1))
        except Exception as error:
            said.append((type(error), str(error)))
    if said:
        assert len(said) == 2
        assert said[0] == said[1]
    else:
        agree(*backends, rounds=1)


def test_shorter_numbers_where_they_are_wished():
    """The same bits of bfloat16 are not to be had: sums are made in another order."""
    serial, vmapped = both(Copa(), make=bare, precision=Precision(amp=True))
    agree(serial, vmapped, rounds=1, tolerance=0.02)
    exact, short = (
        build_backend(VmapBackend, Copa(), make=bare, precision=Precision(amp=amp)) for amp in (False, True)
    )
    losses = [[update.loss for update in each.train(each.initial_broadcast(), ["d"])] for each in (exact, short)]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)


# ---- peers


@pytest.mark.parametrize("make", [FedCO2, Copa])
def test_one_client_alone(make):
    agree(*both(make(), images({"a": 7})), rounds=2)


@pytest.mark.parametrize("make", [FedCO2, Copa])
def test_clients_that_published_nothing_hear_more_than_the_others(make):
    serial, vmapped = both(make())
    answers = []
    for each in (serial, vmapped):
        opening = each.initial_broadcast()
        message = replace(opening, peers={name: opening.peers[name] for name in ("a", "d")})
        answers.append(each.train(message, each.client_names))
    for one, other in zip(*answers, strict=True):
        close(one.shared, other.shared)
    close(serial.client_states, vmapped.client_states)


def test_others_are_chosen_from_heads_that_are_there_once():
    heads, z = [nn.Linear(4, 3) for _ in range(4)], torch.randn(5, 4)
    said = StackedPeers(heads, torch.tensor([3, 0]))
    assert len(said) == 2
    assert not StackedPeers(heads, torch.tensor([], dtype=torch.long))
    assert torch.equal(said(z), Peers([heads[3], heads[0]])(z))
    each = build_backend(VmapBackend, FedCO2())
    stack = StackedClients(
        each.trainer,
        list(each.clients.values()),
        each.client_states,
        dict.fromkeys(each.client_names, each.initial_broadcast()),
    )
    assert len(stack.heads) == 4
    assert [len(set(which.tolist())) for which in stack.peer_indices] == [3] * 4
    for client, which in zip(stack.clients, stack.peer_indices, strict=True):
        names = [name for name in "abcd" if name != client.name]
        published = each.initial_broadcast().peers
        for name, place in zip(names, which.tolist(), strict=True):
            close(dict(stack.heads[place].state_dict()), published[name])


# ---- failures


def spoilt(fault):
    """Client b has data that make no sense."""
    clients = images()
    n = len(clients[1].train)
    if fault == "nan":
        broken = Samples(torch.full((n, 3, 6, 6), torch.nan), clients[1].train.labels)
    else:
        broken = Samples(clients[1].train.inputs, torch.full((n,), 7))
    return [replace(client, train=broken) if client.name == "b" else client for client in clients]


FAULTS = {
    "nan": r"^client b, round 1: the loss is nan; lower local.lr",
    "label": r"^client b, round 1: IndexError: .*7",
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("make", [FedAvg, FedCO2])
def test_a_client_that_fails_is_named_and_nothing_has_changed(fault, make, same):
    vmapped = build_backend(VmapBackend, make(), spoilt(fault))
    before = deepcopy(vmapped.client_states)
    with pytest.raises(TrainingError, match=FAULTS[fault]):
        vmapped.train(vmapped.initial_broadcast(), vmapped.client_names)
    assert same(vmapped.client_states, before)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("make", [FedAvg, FedCO2])
def test_the_others_go_on_if_so_wished(fault, make):
    serial, vmapped = both(make(), spoilt(fault), skip_failures=True)
    answers = [each.train(each.initial_broadcast(), each.client_names) for each in (serial, vmapped)]
    assert [type(answer) is Failure for answer in answers[1]] == [False, True, False, False]
    assert answers[0][1] == answers[1][1]
    agree(serial, vmapped, rounds=1)


class Peeking(SingleSet):
    """It wants a number where all clients' numbers are one tensor."""

    def loss(self, module, batch, context):
        value = super().loss(module, batch, context)
        return value if value.item() > 0 else 2 * value


def test_what_cannot_be_done_together_is_said_with_the_way_out(same):
    vmapped = build_backend(VmapBackend, Peeking())
    before = deepcopy(vmapped.client_states)
    with pytest.raises(
        TrainingError, match=r"^the clients cannot train together: .*: set machine.backend = serial$"
    ) as said:
        vmapped.train(vmapped.initial_broadcast(), vmapped.client_names)
    assert "\n" not in str(said.value)
    assert same(vmapped.client_states, before)


# ---- the option


@pytest.mark.usefixtures("no_figures")
def test_a_run_has_the_same_cohorts_and_the_same_bytes(begin, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "fedtrain.federated.server.sample_cohort", lambda *about: seen.append(sample_cohort(*about)) or seen[-1]
    )
    ends = []
    for name, kind in (("serial", SerialBackend), ("vmap", VmapBackend)):
        machine = MachineSettings(dtype="float64", backend=name)
        work, folder = begin(
            Config(
                local=LocalSettings(batch_size=8), server=ServerSettings(rounds=3, participation=0.7), machine=machine
            )
        )
        assert type(work.build_backend()) is kind
        assert (work.build_backend().trainer.step_class is SGDStep) == (name == "vmap")  # without the fast path
        run_rounds(work, folder)
        ends.append(folder.load_checkpoint())
    assert seen[:3] == seen[3:]
    assert len(seen) == 6
    assert ends[0].communication == ends[1].communication
    close(ends[0].client_states, ends[1].client_states)
    close(ends[0].message.shared, ends[1].message.shared)
