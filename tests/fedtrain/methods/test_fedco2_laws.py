"""How the two models of Fed-CO2 learn from each other and from their peers, and what must not move meanwhile."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fedtrain.federated.messages import Broadcast
from fedtrain.federated.server import federate
from fedtrain.methods import METHODS
from fedtrain.methods.copa import Copa
from fedtrain.methods.fedco2 import FedCO2, OnlineOfflineModel

NO_COOPERATION = FedCO2(intra="none", inter="none")


def test_both_models_are_equal_after_the_first_local_training(toy, same, below):
    trainer = toy.build_client_trainer(FedCO2(), momentum=0.9, epochs=2)
    message = trainer.initial_broadcast(toy.names)
    for client in toy.build_clients():
        start = trainer.initial_client_state(client.name)
        trainer.train(client, start, message)
        assert same(trainer.module.online.state_dict(), trainer.module.offline.state_dict())
        assert not same(trainer.module.offline.state_dict(), below(start, "offline."))


def test_in_the_first_round_nothing_is_learnt_from_the_other_model(toy, same_run):
    intra = FedCO2(inter="none")
    assert same_run(toy.train(intra, 1), toy.train(NO_COOPERATION, 1))
    assert not same_run(toy.train(intra, 2), toy.train(NO_COOPERATION, 2))
    assert intra.phases(0, 3) == [intra.loss] * 3
    assert intra.phases(1, 3) == [intra.mutual_loss, *[intra.loss] * 3]
    assert NO_COOPERATION.phases(1, 3) == [NO_COOPERATION.loss] * 3


# ---- formulas


def test_under_equal_frozen_heads_l_gen_is_n_minus_one_times_cross_entropy(toy):
    """The own head in evaluation, as the peers' are."""
    (net,), (x, y) = toy.build_nets(1), toy.build_batch()
    pair = OnlineOfflineModel(net, copy.deepcopy(net)).eval()
    ce, context = F.cross_entropy(net(x), y).item(), toy.build_context(peers=[net.head] * 4)
    for gen, factor in (("sum", 4), ("mean", 1)):
        for inter, models in (("both", 2), ("online", 1), ("offline", 1), ("none", 0)):
            loss = FedCO2(inter=inter, gen=gen, mu=0.3).loss(pair, (x, y), context).item()
            assert loss == pytest.approx((2 + 0.3 * models * factor) * ce, rel=1e-12)
    assert Copa().loss(net, (x, y), context).item() == pytest.approx(5 * ce, rel=1e-12)


@pytest.mark.parametrize("inter", ["online", "offline", "both"])
def test_peers_judge_the_features_of_the_models_that_are_named(inter, toy):
    online, offline, *peers = toy.build_nets(4)
    (x, y), pair = toy.build_batch(), OnlineOfflineModel(online, offline).eval()
    expected = F.cross_entropy(online(x), y) + F.cross_entropy(offline(x), y)
    for net in {"online": [online], "offline": [offline], "both": [online, offline]}[inter]:
        expected += sum(F.cross_entropy(peer.eval().head(net.features(x)), y) for peer in peers)
    loss = FedCO2(inter=inter).loss(pair, (x, y), toy.build_context(peers=[peer.head for peer in peers]))
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)


def hand_worked_kl(teacher, pupil):
    """Mean over the batch of Σ_c p_c log(p_c / q_c), p being the teacher's."""
    p, q = (np.exp(logits.detach().numpy()) for logits in (teacher, pupil))
    p, q = p / p.sum(1, keepdims=True), q / q.sum(1, keepdims=True)
    return (p * np.log(p / q)).sum(1).mean()


def test_pupils_learn_from_the_other_model_as_the_round_began(toy):
    online, offline, online0, offline0 = (net.eval() for net in toy.build_nets(4))
    x, _ = toy.build_batch()
    to_online, to_offline = hand_worked_kl(offline0(x), online(x)), hand_worked_kl(online0(x), offline(x))
    assert abs(to_online - hand_worked_kl(online(x), offline0(x))) > 0.01 * to_online  # no symmetry to hide behind
    context = toy.build_context(round_start_model=OnlineOfflineModel(online0, offline0))
    for intra, expected in (("online", to_online), ("offline", to_offline), ("both", to_online + to_offline)):
        loss = FedCO2(intra=intra).mutual_loss(OnlineOfflineModel(online, offline), toy.build_batch(), context)
        assert loss.item() == pytest.approx(expected, rel=1e-12)


def test_an_equal_pupil_has_nothing_to_learn(toy, gradients):
    (net,) = toy.build_nets(1)
    pair = OnlineOfflineModel(net, copy.deepcopy(net)).eval()
    loss = FedCO2().mutual_loss(pair, toy.build_batch(), toy.build_context(round_start_model=pair))
    assert abs(loss.item()) < 1e-12
    assert all(gradient.abs().max() < 1e-12 for gradient in gradients(loss, pair).values())


# ---- what must not move


@pytest.mark.parametrize("name", ["fedco2", "copa", "fedprox", "moon"])
def test_what_is_looked_at_is_not_touched(name, toy, same):
    """Message, peers' heads, anchor and the entries handed in hold the same bits after training as before."""
    seen = []

    @dataclass(frozen=True)
    class Watching(METHODS[name]):
        def loss(self, module, batch, context):
            seen.append(context)
            return super().loss(module, batch, context)

    run = toy.train(Watching(), 1)
    message, own = run.message, run.backend.client_states["a"]
    before, begun = copy.deepcopy((message.shared, message.peers, own)), run.load_entries("a")
    seen.clear()
    update, _ = run.backend.trainer.train(run.backend.clients["a"], own, message)
    assert all(same(old, new) for old, new in zip(before, (message.shared, message.peers, own), strict=True))
    assert not same(update.shared, message.shared)
    for context in seen:
        heads = dict(zip("bc", context.peers.heads, strict=True)) if message.peers else {}
        assert all(same(head.state_dict(), message.peers[peer]) for peer, head in heads.items())
        anchors = [] if name == "copa" else [context.round_start_model]
        assert all(same(anchor.state_dict(), begun) for anchor in anchors)
        for module in [*heads.values(), *anchors]:
            assert not any(layer.training for layer in module.modules())
            assert not any(weight.requires_grad or weight.grad is not None for weight in module.parameters())


@pytest.mark.parametrize("step", [1, -1], ids=["in order", "reversed"])
def test_peers_are_the_heads_as_the_last_round_left_them(step, toy, same, below):
    """Whoever trained before in this round; those of absent clients as they last were."""
    used = []

    @dataclass(frozen=True)
    class Watching(FedCO2):
        def loss(self, module, batch, context):
            used.append([copy.deepcopy(head.state_dict()) for head in context.peers.heads])
            return super().loss(module, batch, context)

    def heads(backend):
        return {client: below(backend.client_states[client], "offline.head.") for client in toy.names}

    backend = toy.train(Watching(), 0, clients=toy.build_clients()[::step], batch_size=100).backend  # one batch a round
    expected = heads(backend)
    for each in federate(backend, backend.initial_broadcast(), 4, participation=0.7):
        assert len(each.updates) == 2
        for update, peers in zip(each.updates, used, strict=True):
            others = [expected[client] for client in sorted(toy.names) if client != update.client]
            assert all(same(one, other) for one, other in zip(peers, others, strict=True))
        used.clear()
        expected = heads(backend)


def test_what_a_phase_does_not_touch_is_not_moved_by_momentum_or_weight_decay(toy, same):
    @dataclass(frozen=True)
    class ThenMutual(FedCO2):
        then: bool = True

        def phases(self, round, epochs):
            return [self.loss, *([self.mutual_loss] if self.then else [])]

    ended = []
    for then in (True, False):
        trainer = toy.build_client_trainer(
            ThenMutual(intra="online", inter="none", then=then), momentum=0.9, weight_decay=0.1
        )
        trainer.train(
            toy.build_clients()[0],
            trainer.initial_client_state("b"),
            Broadcast(1, trainer.initial_broadcast(toy.names).shared, {}),
        )
        ended.append(trainer.module)
    assert same(ended[0].offline.state_dict(), ended[1].offline.state_dict())
    assert not same(ended[0].online.state_dict(), ended[1].online.state_dict())


# ---- fusion


def test_logits_are_added_and_half_the_sum_predicts_the_same():
    online, offline = torch.randn(2, 50, 3, generator=torch.Generator().manual_seed(0))
    found = FedCO2().fuse({"online": online, "offline": offline}, None)
    assert torch.equal(found, online + offline)
    assert torch.equal(found.argmax(-1), (found / 2).argmax(-1))


def test_fusion_by_probabilities_adds_softmaxes():
    online, offline = torch.randn(2, 50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    branches = {"online": 5 * online, "offline": offline}
    found, added = FedCO2(fusion="probabilities").fuse(branches, None), (5 * online).softmax(-1) + offline.softmax(-1)
    assert torch.equal(found.argmax(-1), added.argmax(-1))
    assert not torch.equal(found.argmax(-1), FedCO2().fuse(branches, None).argmax(-1))
    torch.testing.assert_close(found.exp(), added / 2)
