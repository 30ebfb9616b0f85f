"""The trainer: what it refuses, what it says of a client, and what it predicts."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedtrain.config.local import LocalSettings
from fedtrain.data.client_data import Preprocessing, Samples
from fedtrain.errors import TrainingError
from fedtrain.federated.client import EVAL_BATCH_SIZE, Precision
from fedtrain.federated.server import federate
from fedtrain.methods import METHODS, ModelFactory
from fedtrain.methods.fedavg import FedAvg
from fedtrain.methods.fedbn import FedBN
from fedtrain.models import Net
from theory.errors import InputError


def only(client, samples):
    return replace(client, train=Samples(client.train.inputs[:samples], client.train.labels[:samples]))


# ---- bad input


@pytest.mark.parametrize(
    ("samples", "local", "message"),
    [
        (0, {}, "client a: it has no training samples; lower the number of clients or raise alpha"),
        (0, {"last_batch": "drop"}, "client a: it has no training samples; lower the number of clients"),
        (1, {}, "client a: 1 training samples in batches of 8: batch norm cannot train on a batch of one; raise"),
        (5, {"batch_size": 1}, "client a: 5 training samples in batches of 1: batch norm cannot train on a batch of"),
        (5, {"last_batch": "drop"}, "client a: 5 training samples leave no batch of 8; lower local.batch_size or set"),
    ],
    ids=["empty", "empty, drop", "one sample", "batches of one", "too few to fill a batch"],
)
@pytest.mark.parametrize("name", ["fedavg", "fedco2"])
def test_a_client_that_cannot_train_is_named_with_the_way_out(name, samples, local, message, toy):
    b, a, c = toy.build_clients()
    with pytest.raises(InputError) as caught:
        toy.train(METHODS[name](), 1, clients=[only(a, samples), b, c], **local)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_without_batch_norm_one_sample_is_enough(toy):
    a = only(toy.build_clients()[1], 1)
    run = toy.train(FedAvg(), 1, clients=[a], make=lambda: Net(nn.Linear(6, 4), nn.Linear(4, 3)))
    assert run.history[0].updates[0].num_examples == 1


def test_a_loss_that_is_no_number_names_client_and_round(method, toy, same):
    """And the round is as if it had not begun, though another client trained in it already."""
    backend = toy.train(method, 0).backend
    history = federate(backend, backend.initial_broadcast(), 3)
    next(history)
    before = copy.deepcopy(backend.client_states)
    a = backend.clients["a"]
    backend.clients["a"] = replace(a, train=Samples(torch.full_like(a.train.inputs, torch.nan), a.train.labels))
    with pytest.raises(TrainingError) as caught:
        next(history)
    assert str(caught.value) == "client a, round 2: the loss is nan; lower local.lr (0.1)"
    assert same(backend.client_states, before)


def test_too_large_a_step_is_found_out(toy):
    with pytest.raises(TrainingError, match=r"^client b, round 1: the loss is (nan|inf); lower local.lr"):
        toy.train(FedAvg(), 1, lr=1e36)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"lr": 0.0}, "local.lr is 0.0; it must be above 0"),
        ({"lr": float("nan")}, "local.lr is nan; it must be above 0"),
        ({"lr": float("inf")}, "local.lr is inf; it must be above 0"),
        ({"momentum": 1.0}, r"local.momentum is 1.0; choose it in \[0, 1\)"),
        ({"weight_decay": -1.0}, "local.weight_decay is -1.0; it must be 0 or more"),
        ({"epochs": 0}, "local.epochs is 0; it must be at least 1"),
        ({"batch_size": 0}, "local.batch_size is 0; it must be at least 1"),
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused(wrong, message):
    with pytest.raises(InputError, match=message):
        LocalSettings(**wrong)


# ---- training


def test_the_loss_told_is_the_mean_over_the_last_pass(toy):
    seen = []

    class Watching(FedAvg):
        def loss(self, module, batch, context):
            seen.append(super().loss(module, batch, context))
            return seen[-1]

    run = toy.train(Watching(), 1, clients=toy.build_clients()[:1], epochs=3)
    assert len(seen) == 6
    assert run.history[0].updates[0].loss == pytest.approx(np.mean([loss.item() for loss in seen[-2:]]), rel=1e-6)


def test_a_round_is_plain_gradient_descent(toy):
    """FedBN, full batch, two passes: w - η ∂CE/∂w twice on each client by hand, then the mean of what is shared."""
    how = {"lr": 0.1, "momentum": 0.0, "weight_decay": 0.0, "epochs": 2, "batch_size": 100}
    run = toy.train(FedBN(), 1, precision=Precision(torch.float64), **how)
    trained = []
    for client in toy.build_clients():
        net = ModelFactory(toy.build_net, seed=0).build_common().double()
        for _ in range(2):
            net.zero_grad()
            F.cross_entropy(net(client.train.inputs.double()), client.train.labels).backward()
            for weight in net.parameters():
                weight.data -= 0.1 * weight.grad
        trained.append(net.state_dict())
    for name, value in run.message.shared.items():
        torch.testing.assert_close(value, sum(state[name] for state in trained) / 3, rtol=1e-10, atol=1e-12)
    for client, state in zip(toy.names, trained, strict=True):
        for name, value in run.backend.client_states[client].items():
            torch.testing.assert_close(value, state[name], rtol=1e-10, atol=1e-12)


def test_batches_are_in_another_order_for_every_client_round_and_pass(toy):
    seen = []

    class Watching(FedAvg):
        def loss(self, module, batch, context):
            seen.append(tuple(batch[0][:, 0].tolist()))
            return super().loss(module, batch, context)

    twins = [replace(toy.build_clients()[0], name=name) for name in ("one", "other")]
    toy.train(Watching(), 2, clients=twins, epochs=2, batch_size=100)
    assert len(seen) == len(set(seen)) == 8
    assert len({tuple(sorted(x)) for x in seen}) == 1


# ---- evaluation


def test_scores_are_those_worked_out_by_hand(toy):
    """More samples than go through the network at once, and a last batch that is smaller."""
    run = toy.train(FedBN())
    client, net = run.backend.clients["a"], toy.build_net().eval()
    inputs, labels = client.test.inputs.repeat(20, 1), client.test.labels.repeat(20).roll(7)
    assert len(labels) % EVAL_BATCH_SIZE
    assert len(labels) > 2 * EVAL_BATCH_SIZE
    client = replace(client, test=Samples(inputs, labels))
    found = run.backend.trainer.evaluate(client, run.backend.client_states["a"], run.message, ("test",))["test"][
        "fused"
    ]
    net.load_state_dict(run.load_entries("a"))
    logits = net(inputs).detach()
    assert found.n == len(labels)
    assert found.accuracy == pytest.approx((logits.argmax(1) == labels).double().mean().item())
    assert found.loss == pytest.approx(F.cross_entropy(logits.double(), labels).item(), rel=1e-5)


@pytest.mark.parametrize(
    ("name", "branches"),
    [
        ("fedavg", {"fused"}),
        ("moon", {"fused"}),
        ("fedrod", {"fused", "generic", "personal"}),
        ("copa", {"fused", "own", "peers"}),
        ("fedco2", {"fused", "online", "offline"}),
    ],
)
def test_each_branch_is_told_where_there_are_several(name, branches, toy):
    run = toy.train(METHODS[name](), 1)
    clients = {client: replace(data, val=data.test) for client, data in run.backend.clients.items()}
    assert set(run.backend.evaluate(run.message, ("train", "val", "test"))["a"]) == {"train", "test"}
    run.backend.clients = clients
    scores = run.backend.evaluate(run.message, ("val", "test"))["a"]
    assert scores.keys() == {"val", "test"}
    assert scores["val"] == scores["test"]
    assert scores["test"].keys() == branches


def test_evaluation_changes_nothing(method, toy, same):
    run = toy.train(method, 1)
    before = {client: run.load_entries(client) for client in toy.names}
    first, second = run.evaluate(), run.evaluate()
    assert first == second
    assert all(same(run.load_entries(client), before[client]) for client in toy.names)


def test_validation_is_augmented_only_if_so_wished(toy):
    images = torch.randint(256, (40, 3, 8, 8), generator=torch.Generator().manual_seed(0)).byte()
    samples = Samples(images, torch.arange(40) % 3)
    client = replace(toy.build_clients()[0], train=samples, val=samples, test=samples)
    losses = {}
    for wish in (False, True):
        how = Preprocessing(augment=True, augment_val=wish)
        trainer = toy.build_client_trainer(
            FedAvg(), make=lambda: Net(nn.Flatten(), nn.Linear(192, 3)), preprocessing=how
        )
        scores = trainer.evaluate(
            client, trainer.initial_client_state("b"), trainer.initial_broadcast(["b"]), ("train", "val", "test")
        )
        losses[wish] = {split: score["fused"].loss for split, score in scores.items()}
    assert losses[False]["val"] == losses[False]["test"] == losses[False]["train"]
    assert losses[True]["val"] != losses[True]["test"] == losses[False]["test"]


class Exploding(FedAvg):
    """Its last step goes too far."""

    def finish(self, module, context):
        next(module.parameters()).data.mul_(torch.inf)


def test_a_last_step_that_explodes_is_found_in_its_own_round(toy):
    """The loss is taken before the step, so it knows nothing yet: the weights do."""
    with pytest.raises(
        TrainingError, match=r"^client b, round 1: its weights are not finite any more \(.*\); lower local.lr"
    ):
        toy.train(Exploding(), 1)


def test_two_clients_of_one_name_are_refused(toy):
    b, a, _ = toy.build_clients()
    with pytest.raises(InputError, match="two clients have the same name"):
        toy.train(FedAvg(), 1, clients=[b, replace(a, name=b.name)])


def test_a_network_without_the_two_parts_is_refused(toy):
    with pytest.raises(InputError, match="Linear has no part 'features'; a network needs features and head"):
        toy.train(FedAvg(), 1, make=lambda: nn.Linear(6, 3))
