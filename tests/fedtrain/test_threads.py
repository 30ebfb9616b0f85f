"""Several clients at a time give what one after the other gives, bit by bit, and stop as one."""

import threading

import pytest
import torch

from fedtrain.bench import Halted
from fedtrain.errors import TrainingError
from fedtrain.fleets.local import LocalFleet
from fedtrain.fleets.threads import ThreadFleet
from fedtrain.methods import METHODS
from fedtrain.protocol import Failure, federate

PATIENCE = 20  # seconds until a test that waits for another thread gives up


def threaded(toy, method, benches=2, **options):
    first = toy.bench(method)
    return ThreadFleet([first, *(first.twin() for _ in range(benches - 1))], toy.clients(), **options)


@pytest.fixture
def two_cores():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("benches", [2, 3])
def test_the_same_bits_as_one_after_the_other(benches, toy, method, same):
    fleets = LocalFleet(toy.bench(method), toy.clients()), threaded(toy, method, benches)
    for one, other in zip(*(federate(fleet, fleet.opening(), 3, sample=0.7) for fleet in fleets), strict=True):
        assert same(one.message.shared, other.message.shared)
        assert [update.client for update in one.updates] == [update.client for update in other.updates]
        assert [update.loss for update in one.updates] == [update.loss for update in other.updates]
    scores = [fleet.evaluate(one.message, ("train", "test")) for fleet in fleets]
    assert scores[0] == scores[1]
    assert all(same(fleets[0].personal[name], fleets[1].personal[name]) for name in toy.names)


def test_clients_really_train_at_the_same_time(toy):
    met = threading.Barrier(2)
    fleet = threaded(toy, METHODS["fedavg"]())
    assert fleet.each(lambda bench, name: met.wait(PATIENCE) >= 0, ["a", "b"]) == [True, True]


def test_a_core_each_in_full_shifts_and_all_cores_for_the_rest(toy, two_cores):
    fleet = threaded(toy, METHODS["fedavg"]())
    found = dict(zip("abc", fleet.each(lambda bench, name: torch.get_num_threads(), list("abc")), strict=True))
    smallest = min(fleet.clients, key=lambda name: len(fleet.clients[name].train))
    assert found == {name: 2 if name == smallest else 1 for name in "abc"}
    assert torch.get_num_threads() == 2


def test_two_never_share_a_bench(toy):
    busy, lock, shared = set(), threading.Lock(), []

    def work(bench, name):
        with lock:
            shared.append(bench in busy)
            busy.add(bench)
        threading.Event().wait(0.01)
        with lock:
            busy.remove(bench)

    threaded(toy, METHODS["fedavg"]()).each(work, list("abc") * 4)
    assert not any(shared)


@pytest.mark.parametrize("reason", [KeyboardInterrupt, TrainingError])
def test_a_round_that_is_given_up_ends_for_everyone(reason, toy):
    fleet = threaded(toy, METHODS["fedavg"]())
    waiting, ended = threading.Event(), []

    def work(bench, name):
        if name == "b":  # the largest, hence the first
            waiting.wait(PATIENCE)
            raise reason("enough")
        waiting.set()
        ended.append(bench.halt.wait(PATIENCE))

    with pytest.raises(reason, match="enough"):
        fleet.each(work, ["a", "b"])
    assert ended == [True]
    assert not any(bench.halt.is_set() for bench in fleet.benches)


def test_a_halted_bench_stops_at_the_next_batch(toy):
    bench = toy.bench(METHODS["fedavg"]())
    client, message = toy.clients()[0], bench.opening(toy.names)
    bench.halt.set()
    with pytest.raises(Halted):
        bench.train(client, bench.start("b"), message)
    with pytest.raises(Halted):
        bench.evaluate(client, bench.start("b"), message, ["test"])


def test_a_client_that_fails_is_left_out_and_named(toy, monkeypatch):
    fleet = threaded(toy, METHODS["fedavg"](), skip_failures=True)
    healthy = fleet.benches[0].train
    for bench in fleet.benches:
        monkeypatch.setattr(bench, "train", lambda data, *rest: healthy(data, *rest) if data.name != "b" else 1 / 0)
    fleet.benches = fleet.benches[:1]  # one healthy bench serves them all
    answers = fleet.train(fleet.opening(), ["a", "b", "c"])
    assert [answer.client for answer in answers if isinstance(answer, Failure)] == ["b"]
    assert [answer.client for answer in answers] == ["a", "b", "c"]
