"""Losses and predictions of COPA, FedRoD, FedProx and MOON against formulas worked out by hand."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fedtrain.federated.client import Precision
from fedtrain.methods.copa import Copa
from fedtrain.methods.fedprox import FedProx
from fedtrain.methods.fedrod import FedRoD, TwoHeadModel
from fedtrain.methods.moon import Moon, MoonModel

# ---- COPA


def test_copa_predicts_by_the_mean_of_all_heads(toy):
    run = toy.train(Copa())
    client, net = run.backend.clients["a"], toy.build_net().eval()
    found = run.backend.trainer.predict(client, run.backend.client_states["a"], run.message, client.test.inputs)
    answers = []
    for name in toy.names:  # the features of a, the head of each
        head = {entry: value for entry, value in run.load_entries(name).items() if entry.startswith("head.")}
        net.load_state_dict(run.load_entries("a") | head)
        answers.append(net(client.test.inputs).detach())
    torch.testing.assert_close(found["fused"], torch.stack(answers).mean(0))
    torch.testing.assert_close(found["own"], answers[1])
    torch.testing.assert_close(found["peers"], (answers[0] + answers[2]) / 2)


def test_copa_of_one_client_has_one_head(toy):
    run = toy.train(Copa(), 1, clients=toy.build_clients()[:1])
    assert set(run.evaluate()["b"]["test"]) == {"fused"}


# ---- FedRoD


def test_the_personal_head_corrects_the_generic_one_and_sends_no_gradient_back(toy, gradients):
    net, other = toy.build_nets(2)
    x, y = toy.build_batch()
    module = TwoHeadModel(net, other.head)
    found = gradients(FedRoD().loss(module, (x, y), toy.build_context()), module)
    generic = gradients(F.cross_entropy(net(x), y), net)
    z = net.features(x).detach()
    personal = gradients(F.cross_entropy(net.head(z).detach() + other.head(z), y), other.head)
    assert all(torch.equal(found[f"generic.{name}"], value) for name, value in generic.items())
    assert all(torch.equal(found[f"personal.{name}"], value) for name, value in personal.items())


def test_balanced_softmax_is_the_hand_worked_one(toy, gradients):
    """-log of n_y e^{z_y} / Σ_c n_c e^{z_c}; a class that the client does not have is harmless."""
    net, other = toy.build_nets(2)
    module, (x, _), y = TwoHeadModel(net, other.head).eval(), toy.build_batch(), torch.tensor([0, 2, 2, 0, 2, 2, 2])
    weighed = np.array([2, 0, 5]) * np.exp(net(x).detach().numpy())
    generic = -np.log(weighed[np.arange(7), y] / weighed.sum(1)).mean()
    personal = F.cross_entropy(net(x) + other.head(net.features(x)), y).item()
    loss = FedRoD(balanced=True).loss(module, (x, y), toy.build_context(counts=(2, 0, 5)))
    assert loss.item() == pytest.approx(generic + personal, rel=1e-12)
    assert all(gradient.isfinite().all() for gradient in gradients(loss, module).values())


def test_the_prior_counts_the_clients_own_classes(toy):
    seen = []

    class Watching(FedRoD):
        def loss(self, module, batch, context):
            seen.append(context.class_counts.tolist())
            return super().loss(module, batch, context)

    toy.train(Watching(balanced=True), 1, batch_size=100)
    assert seen == [[5, 5, 4], [4, 4, 3], [4, 4, 4]]


@pytest.mark.parametrize("kind", ["same", "plain"])
def test_a_plain_personal_head_is_trained_without_momentum_and_weight_decay(kind, toy):
    """Three full-batch steps by hand, in double precision, where the order of a batch is a matter of rounding."""
    how = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.05}
    trainer = toy.build_client_trainer(
        FedRoD(personal_sgd=kind), epochs=3, batch_size=100, precision=Precision(torch.float64), **how
    )
    client, start, message = (
        toy.build_clients()[0],
        trainer.initial_client_state("b"),
        trainer.initial_broadcast(toy.names),
    )
    module = copy.deepcopy(trainer.module)
    module.load_state_dict({**start, **message.shared})
    update, personal = trainer.train(client, start, message)

    x, y = client.train.inputs.double(), client.train.labels
    generic_sgd = torch.optim.SGD(module.generic.parameters(), **how)
    personal_sgd = torch.optim.SGD(module.personal.parameters(), **(how if kind == "same" else {"lr": 0.1}))
    for _ in range(3):
        z = module.generic.features(x)
        generic = module.generic.head(z)
        for sgd, logits in (
            (generic_sgd, generic),
            (personal_sgd, generic.detach() + module.personal(z.detach())),
        ):
            sgd.zero_grad()
            F.cross_entropy(logits, y).backward()
            sgd.step()
    for name, value in {**update.shared, **personal}.items():
        torch.testing.assert_close(value, module.state_dict()[name], rtol=1e-10, atol=1e-12)


# ---- FedProx and MOON


@pytest.mark.parametrize("squared", [True, False])
def test_fedprox_pulls_towards_the_start(squared, toy, gradients):
    """By μ (w - w0), or without the square by μ/2 (w - w0) / |w - w0|."""
    (net, start), mu = toy.build_nets(2), 0.7
    x, y = toy.build_batch()
    found = gradients(
        FedProx(mu=mu, squared=squared).loss(net, (x, y), toy.build_context(round_start_model=start)), net
    )
    plain = gradients(F.cross_entropy(net(x), y), net)
    drift = {name: (w - start.get_parameter(name)).detach() for name, w in net.named_parameters()}
    length = np.sqrt(sum((d.numpy() ** 2).sum() for d in drift.values()))
    for name, d in drift.items():
        pull = mu * d if squared else mu / 2 * d / length
        torch.testing.assert_close(found[name], plain[name] + pull, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("squared", [True, False])
def test_fedprox_feels_no_pull_at_the_start(squared, toy, gradients):
    (net,), (x, y) = toy.build_nets(1), toy.build_batch()
    found = gradients(FedProx(mu=5.0, squared=squared).loss(net, (x, y), toy.build_context(round_start_model=net)), net)
    plain = gradients(F.cross_entropy(net(x), y), net)
    assert all(torch.equal(found[name], value) for name, value in plain.items())


def test_moon_contrasts_with_the_global_and_the_previous_model(toy):
    net, world, previous = toy.build_nets(3)
    (x, y), mu, tau = toy.build_batch(), 0.8, 0.4
    context = toy.build_context(round_start_model=MoonModel(world, previous))
    loss = Moon(mu=mu, tau=tau).loss(MoonModel(net, copy.deepcopy(net)), (x, y), context)
    z, z_world, z_previous = (each.features(x).detach().numpy() for each in (net, world.eval(), previous.eval()))
    near, far = (
        np.exp((z * other).sum(1) / np.linalg.norm(z, axis=1) / np.linalg.norm(other, axis=1) / tau)
        for other in (z_world, z_previous)
    )
    contrast = -np.log(near / (near + far)).mean()
    assert loss.item() == pytest.approx(F.cross_entropy(net(x), y).item() + mu * contrast, rel=1e-10)
