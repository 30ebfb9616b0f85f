"""What every method must do, whatever it is: the suite that a new method passes by being in the list."""

import numpy as np
import pytest
import torch

from fedtrain.data.client_data import ClientData, Preprocessing, Samples
from fedtrain.federated.aggregate import aggregate
from fedtrain.federated.client import BRANCH_WEIGHTS
from fedtrain.methods.cooperation import Cooperation
from fedtrain.methods.moon import Moon
from fedtrain.methods.two_models import TwoModelMethod
from fedtrain.models import Net
from fedtrain.parameters import all_entries


def copied(state):
    return {name: copied(value) if isinstance(value, dict) else value.clone() for name, value in state.items()}


# ---- what is shared agrees, what is personal stays


def test_after_a_round_shared_entries_agree_and_personal_ones_do_not(method, toy):
    run = toy.train(method)
    trainer = run.backend.trainer
    states = [run.load_entries(client) for client in toy.names]
    assert states[0].keys() == all_entries(trainer.module) == trainer.shared_names | trainer.personal_names
    never_trained = isinstance(method, Moon) and method.previous == "initial"
    for name, value in states[0].items():
        if name in trainer.shared_names:
            assert all(torch.equal(value, other[name]) for other in states[1:]), name
        elif value.is_floating_point() and not never_trained and not name.startswith(BRANCH_WEIGHTS):
            assert not any(torch.equal(value, other[name]) for other in states[1:]), name


def test_training_goes_on_from_what_was_averaged_and_kept(method, toy, same):
    """What a client predicts with is the last message and its own last personal entries, nothing else."""
    run = toy.train(method)
    for client in toy.names:
        assert same(run.load_entries(client), {**run.backend.client_states[client], **run.message.shared})


def test_what_is_sent_is_what_the_method_names(method, toy):
    run = toy.train(method, 1)
    trainer = run.backend.trainer
    for update in run.history[0].updates:
        assert update.shared.keys() == trainer.shared_names
        assert run.backend.client_states[update.client].keys() == trainer.personal_names
        for name, value in update.published.items():
            assert torch.equal(value, run.backend.client_states[update.client][f"{method.published}.{name}"])


def test_absent_clients_keep_theirs_bit_by_bit(method, toy, same):
    backend = toy.train(method, 0).backend
    message = backend.initial_broadcast()
    for present in (["c"], ["a"], ["c", "a"]):
        before, peers = copied(backend.client_states), copied(dict(message.peers))
        message = aggregate(message, backend.train(message, present), "uniform")
        for client in toy.names:
            if client not in present:
                assert same(backend.client_states[client], before[client])
                assert not method.published or same(message.peers[client], peers[client])
    assert same(backend.client_states["b"], backend.trainer.initial_client_state("b"))


def test_batch_norm_goes_where_the_convention_says(method, toy):
    """Shared statistics are averaged like all else; of personal ones the server hears nothing."""
    run = toy.train(method, 1)
    prefixes = {"FedRoD": "generic.", **dict.fromkeys(("MOON", "SCAFFOLD", "FedProto"), "model.")}
    network = "generic." if isinstance(method, TwoModelMethod) else prefixes.get(method.title, "")
    if isinstance(method, Cooperation):
        network, method = "online.", method.parts["online"]
        network += prefixes.get(method.title, "")
    alone = method.title in ("SingleSet", "LG-FedAvg", "FedProto")
    keeps_norm = method.title == "FedBN"
    keeps_stats = keeps_norm and method.bn_stats == "local"
    kept = {"weight": keeps_norm, "bias": keeps_norm, "running_mean": keeps_stats, "running_var": keeps_stats}
    for entry in kept:
        name = f"{network}features.1.{entry}"
        sent = [update.shared.get(name) for update in run.history[0].updates]
        if kept[entry] or alone:
            assert name in run.backend.trainer.personal_names
            assert sent == [None] * 3
        else:
            assert not torch.equal(sent[0], sent[1])
            np.testing.assert_allclose(run.message.shared[name], np.mean(sent, 0), rtol=1e-5, atol=1e-6)


# ---- the average


@pytest.mark.parametrize("weights", ["uniform", "size"])
def test_the_average_is_the_hand_worked_one(method, toy, weights):
    run = toy.train(method, 1, weights=weights)
    share = np.array([1, 1, 1]) / 3 if weights == "uniform" else np.array([14, 11, 12]) / 37
    updates = {update.client: update for update in run.history[0].updates}
    assert [updates[client].num_examples for client in "bac"] == [14, 11, 12]
    for name, value in run.message.shared.items():
        if value.is_floating_point():
            sent = np.stack([updates[client].shared[name].double().numpy() for client in "bac"], axis=-1)
            np.testing.assert_allclose(value.numpy(), sent @ share, rtol=1e-5, atol=1e-6)


def test_the_order_of_replies_does_not_matter(method, toy, same):
    backend = toy.train(method, 0).backend
    message = backend.initial_broadcast()
    updates = backend.train(message, backend.client_names)
    expected = aggregate(message, updates, "size")
    for arrival in ([0, 2, 1], [1, 0, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]):
        found = aggregate(message, [updates[i] for i in arrival], "size")
        assert same(found.shared, expected.shared)
        assert same(found.peers, expected.peers)
        assert list(found.peers) == list(expected.peers)


@pytest.mark.parametrize("weights", ["uniform", "size"])
def test_for_one_client_averaging_is_the_identity(method, toy, same, weights):
    run = toy.train(method, clients=toy.build_clients()[:1], weights=weights)
    for each in run.history:
        assert same(each.message.shared, each.updates[0].shared)


# ---- chance


def test_a_run_depends_on_its_seeds_only(method, toy, same_run):
    torch.manual_seed(1)
    one = toy.train(method, participation=0.7)
    torch.manual_seed(2)
    torch.rand(7)
    two = toy.train(method, participation=0.7)
    assert same_run(one, two)
    assert one.evaluate() == two.evaluate()
    assert not same_run(one, toy.train(method, participation=0.7, seed=1))


def test_the_global_generator_is_neither_read_nor_moved(method, toy):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    toy.train(method, 1, participation=0.7).evaluate()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("participation", [1.0, 0.7])
def test_the_order_of_the_clients_does_not_matter(method, toy, same_run, participation):
    one, other = (
        toy.train(method, clients=clients, participation=participation)
        for clients in (toy.build_clients(), toy.build_clients()[::-1])
    )
    assert same_run(one, other)
    assert one.evaluate() == other.evaluate()
    assert one.backend.client_names == other.backend.client_names[::-1]


def test_what_a_client_learns_does_not_depend_on_who_trained_before(method, toy, same):
    """The trainer is shared by all; nothing of one client may stay on it."""
    backend = toy.train(method, 1).backend
    message, personal = (
        backend.initial_broadcast(),
        {name: backend.trainer.initial_client_state(name) for name in toy.names},
    )
    fresh = toy.build_client_trainer(method).train(backend.clients["a"], personal["a"], message)
    backend.trainer.train(backend.clients["c"], personal["c"], message)
    again = backend.trainer.train(backend.clients["a"], personal["a"], message)
    assert same(again[0].shared, fresh[0].shared)
    assert same(again[1], fresh[1])
    assert again[0].loss == fresh[0].loss


def test_images_that_are_augmented_and_noisy_depend_on_seeds_only_too(method, toy, same_run):
    torch.manual_seed(1)
    one = toy.train(method, clients=noisy_images(), make=convolutional, preprocessing=Preprocessing(augment=True))
    torch.manual_seed(2)
    clients = noisy_images()[::-1]
    other = toy.train(method, clients=clients, make=convolutional, preprocessing=Preprocessing(augment=True))
    assert same_run(one, other)
    assert one.evaluate() == other.evaluate()


def noisy_images():
    chance = torch.Generator().manual_seed(0)

    def samples(n):
        return Samples(torch.randint(256, (n, 3, 8, 8), generator=chance).byte(), torch.arange(n) % 3)

    return [ClientData(name, samples(9), samples(6), noise=noise) for name, noise in (("v", 0.0), ("u", 20.0))]


def convolutional():
    features = [torch.nn.Conv2d(3, 4, 3, stride=2, bias=False), torch.nn.BatchNorm2d(4), torch.nn.ReLU()]
    return Net(torch.nn.Sequential(*features, torch.nn.Flatten()), torch.nn.Linear(36, 3))


# ---- it learns


def test_it_learns(method, toy):
    """Chance is a third."""
    run = toy.train(method, 6, epochs=3, batch_size=20)
    assert min(score["test"]["fused"].accuracy for score in run.evaluate().values()) > 0.8
    first, last = (sum(update.loss for update in run.history[i].updates) for i in (0, -1))
    assert last < first
