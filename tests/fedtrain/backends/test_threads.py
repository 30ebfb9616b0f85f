"""Several clients at a time give what one after the other gives, bit by bit, and stop as one."""

import threading

import pytest
import torch

from fedtrain.backends.serial import SerialBackend
from fedtrain.backends.threads import ThreadsBackend
from fedtrain.errors import TrainingError
from fedtrain.federated.client import TrainingStopped
from fedtrain.federated.messages import Failure
from fedtrain.federated.server import federate
from fedtrain.methods import METHODS

PATIENCE = 20  # seconds until a test that waits for another thread gives up


def threaded(toy, method, trainers=2, **options):
    first = toy.build_client_trainer(method)
    return ThreadsBackend([first, *(first.clone() for _ in range(trainers - 1))], toy.build_clients(), **options)


@pytest.fixture
def two_cores():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("trainers", [2, 3])
def test_the_same_bits_as_one_after_the_other_on_one_core(trainers, toy, method, same, two_cores):
    backends = SerialBackend(toy.build_client_trainer(method), toy.build_clients()), threaded(toy, method, trainers)
    found = []
    for backend, cores in zip(backends, (1, 2), strict=True):
        torch.set_num_threads(cores)
        rounds = list(federate(backend, backend.initial_broadcast(), 3, participation=0.7))
        found.append((rounds, backend.evaluate(rounds[-1].message, ("train", "test"))))
    (one_by_one, scores), (at_once, other_scores) = found
    for one, other in zip(one_by_one, at_once, strict=True):
        assert same(one.message.shared, other.message.shared)
        assert [(update.client, update.loss) for update in one.updates] == [(u.client, u.loss) for u in other.updates]
    assert scores == other_scores
    assert all(same(backends[0].client_states[name], backends[1].client_states[name]) for name in toy.names)


def test_clients_really_train_at_the_same_time(toy, two_cores):
    met = threading.Barrier(2)
    backend = threaded(toy, METHODS["fedavg"]())
    assert backend.map_clients(lambda trainer, name: met.wait(PATIENCE) >= 0, ["a", "b"]) == [True, True]


def test_one_over_a_multiple_of_the_cores_comes_along_and_one_alone_has_them_all(toy, two_cores):
    met, backend = threading.Barrier(3), threaded(toy, METHODS["fedavg"](), trainers=3)

    def work(trainer, name):
        met.wait(PATIENCE)
        return torch.get_num_threads()

    assert backend.map_clients(work, list("abc")) == [1, 1, 1]
    assert backend.map_clients(lambda trainer, name: torch.get_num_threads(), ["a"]) == [2]
    assert torch.get_num_threads() == 2


def test_two_never_share_a_trainer(toy, two_cores):
    busy, lock, shared = set(), threading.Lock(), []

    def work(trainer, name):
        with lock:
            shared.append(trainer in busy)
            busy.add(trainer)
        threading.Event().wait(0.01)
        with lock:
            busy.remove(trainer)

    threaded(toy, METHODS["fedavg"]()).map_clients(work, list("abc") * 4)
    assert not any(shared)


def test_no_more_at_a_time_than_are_worth_it(toy, two_cores):
    """Of four on two cores, two; a third trainer is for five."""
    used, backend = set(), threaded(toy, METHODS["fedavg"](), trainers=3)
    backend.clients |= {"d": backend.clients["a"]}
    backend.map_clients(lambda trainer, name: used.add(trainer) or threading.Event().wait(0.01), list("abcd"))
    assert len(used) <= 2


@pytest.mark.parametrize("reason", [KeyboardInterrupt, TrainingError])
def test_a_round_that_is_given_up_ends_for_everyone(reason, toy, two_cores):
    backend = threaded(toy, METHODS["fedavg"]())
    waiting, ended = threading.Event(), []

    def work(trainer, name):
        if name == "b":  # the largest, hence the first
            waiting.wait(PATIENCE)
            raise reason("enough")
        waiting.set()
        ended.append(trainer.stop_requested.wait(PATIENCE))

    with pytest.raises(reason, match="enough"):
        backend.map_clients(work, ["a", "b"])
    assert ended == [True]
    assert not any(trainer.stop_requested.is_set() for trainer in backend.trainers)


def test_a_backend_that_is_stopped_stops_all_of_its_trainers(toy, two_cores):
    backend = threaded(toy, METHODS["fedavg"]())
    assert len(backend.trainers) > 1
    backend.request_stop()
    assert all(trainer.stop_requested.is_set() for trainer in backend.trainers)


def test_a_stopped_trainer_stops_at_the_next_batch(toy):
    trainer = toy.build_client_trainer(METHODS["fedavg"]())
    client, message = toy.build_clients()[0], trainer.initial_broadcast(toy.names)
    trainer.stop_requested.set()
    with pytest.raises(TrainingStopped):
        trainer.train(client, trainer.initial_client_state("b"), message)
    with pytest.raises(TrainingStopped):
        trainer.evaluate(client, trainer.initial_client_state("b"), message, ["test"])


def test_a_client_that_fails_is_left_out_and_named(toy, monkeypatch):
    backend = threaded(toy, METHODS["fedavg"](), skip_failures=True)
    healthy = backend.trainers[0].train
    for trainer in backend.trainers:
        monkeypatch.setattr(trainer, "train", lambda data, *rest: healthy(data, *rest) if data.name != "b" else 1 / 0)
    backend.trainers = backend.trainers[:1]  # one healthy trainer serves them all
    answers = backend.train(backend.initial_broadcast(), ["a", "b", "c"])
    assert [answer.client for answer in answers if isinstance(answer, Failure)] == ["b"]
    assert [answer.client for answer in answers] == ["a", "b", "c"]
