"""Bytes: counted by hand, predicted from the network, and measured in a round."""

from __future__ import annotations

import pytest
import torch

from fedtrain.analysis.model_summary import summarise_model
from fedtrain.federated.communication import CommunicationCost, PayloadBytes, count_bytes, measure_exchange
from fedtrain.federated.messages import Broadcast, Update
from fedtrain.methods import METHODS
from fedtrain.methods.fedco2 import FedCO2

F32, F64, I64 = 4, 8, 8


def head(dtype=torch.float32):
    return {"weight": torch.zeros(3, 2, dtype=dtype), "bias": torch.zeros(3, dtype=dtype)}


def test_an_example_counted_by_hand():
    shared = {"conv": torch.zeros(5), "bn.weight": torch.zeros(2), "bn.count": torch.zeros((), dtype=torch.int64)}
    message = Broadcast(3, shared, {name: head() for name in "abc"})
    update = Update("b", {"conv": torch.zeros(5, dtype=torch.float64)}, head(), 7, 0.1)
    found = measure_exchange(message, update, frozenset({"bn.weight", "bn.count", "elsewhere.bn"}))
    assert found.down == PayloadBytes(
        shared=5 * F32, bn=2 * F32 + I64, head=2 * 9 * F32
    )  # those of a and c, not its own
    assert found.up == PayloadBytes(shared=5 * F64, bn=0, head=9 * F32)
    assert (found.down.total, found.up.total) == (20 + 16 + 72, 40 + 36)


def test_ledgers_add_up():
    one = CommunicationCost(PayloadBytes(1, 2, 3), PayloadBytes(4, 5, 6))
    assert one + one == CommunicationCost(PayloadBytes(2, 4, 6), PayloadBytes(8, 10, 12))
    assert sum([one, one], CommunicationCost()) == one + one
    assert (count_bytes({}), CommunicationCost().up.total) == (0, 0)


def test_nothing_travels_for_who_is_alone():
    update = Update("a", {}, {}, 7, 0.1)
    assert measure_exchange(Broadcast(0, {}, {}), update, frozenset()) == CommunicationCost()


def test_a_round_costs_what_was_foretold(method, toy):
    """Every method, every client, rounds with few and with all."""
    run = toy.train(method, 3, participation=0.7)
    predicted = summarise_model(method, toy.build_net, len(toy.names)).traffic
    before = run.backend.initial_broadcast()
    for round in run.history:
        for update in round.updates:
            assert measure_exchange(before, update, run.backend.trainer.batch_norm_names) == predicted
        before = round.message


@pytest.mark.parametrize("clients", [1, 2, 5])
def test_heads_come_from_all_others(clients, toy):
    parts = summarise_model(FedCO2(), toy.build_net, clients)
    one = (12 * 8 + 8 * 3 + 3) * F32 + 4 * 8 * F32 + I64  # two linears, batch norm of 8 with its counter
    assert (parts.traffic.up.head, parts.traffic.down.head) == (one, (clients - 1) * one)


def test_double_precision_costs_twice_but_for_counters(toy):
    single, double = (
        summarise_model(METHODS["fedbn"](), toy.build_net, 3, dtype).traffic for dtype in (torch.float32, torch.float64)
    )
    assert (double.up.shared, single.up.bn, double.up.bn) == (2 * single.up.shared, 0, 0)


@pytest.mark.parametrize(
    ("name", "shared", "personal", "published"),
    [
        ("singleset", (), ("features", "head"), ()),
        ("fedavg", ("features", "head"), (), ()),
        ("fedper", ("features",), ("head",), ()),
        ("copa", ("features",), ("head",), ("head",)),
        ("moon", ("model.features", "model.head"), ("previous.features", "previous.head"), ()),
        ("fedrod", ("generic.features", "generic.head"), ("personal",), ()),
        ("fedbn", ("features", "head"), ("features", "head"), ()),
        (
            "fedco2",
            ("online.features", "online.head"),
            ("offline.features", "offline.head", "online.features", "online.head"),
            ("offline.head",),
        ),
    ],
)
def test_what_is_shared_personal_and_published(name, shared, personal, published, toy):
    parts = summarise_model(METHODS[name](), toy.build_net, 3)
    assert (parts.shared.places, parts.personal.places, parts.published.places) == (shared, personal, published)
    total = sum(value.numel() for value in toy.build_client_trainer(METHODS[name]()).module.state_dict().values())
    assert parts.shared.numbers + parts.personal.numbers == total


def test_all_batch_norm_of_fedbn_is_personal(toy):
    parts = summarise_model(METHODS["fedbn"](), toy.build_net, 3)
    assert parts.shared.in_norm == 0
    assert parts.personal.numbers == parts.personal.in_norm == 4 * 12 + 1 + 4 * 8 + 1
