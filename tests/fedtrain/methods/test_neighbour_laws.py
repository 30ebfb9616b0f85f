"""What the paper's neighbours become when a switch is off, and what they must keep."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedtrain.federated.client import Precision
from fedtrain.federated.server import federate
from fedtrain.methods.apfl import APFL
from fedtrain.methods.ditto import Ditto
from fedtrain.methods.fedavg import FedAvg
from fedtrain.methods.fedproto import FedProto
from fedtrain.methods.fedrep import FedRep
from fedtrain.methods.finetune import FineTune
from fedtrain.methods.fml import FML
from fedtrain.methods.knnper import KnnPer
from fedtrain.methods.pfedme import PFedMe
from fedtrain.methods.scaffold import Scaffold
from fedtrain.methods.singleset import SingleSet
from fedtrain.models import Net
from theory.errors import InputError

LABEL_SKEW = {"participation": 0.7, "weights": "size", "momentum": 0.9, "weight_decay": 1e-5}
FEW = settings(max_examples=6, deadline=None, database=None, derandomize=True)


def bare():
    """Without batch norm, whose statistics belong to one model or the other."""
    return Net(nn.Sequential(nn.Linear(6, 8), nn.ReLU()), nn.Linear(8, 3))


# ---- two models


@pytest.mark.parametrize("method", [Ditto(lam=0), FML(alpha=1, beta=1)], ids=["ditto", "fml"])
def test_apart_the_two_models_are_fedavg_and_singleset(method, toy, same, below):
    run, fedavg, alone = (toy.train(each, **LABEL_SKEW) for each in (method, FedAvg(), SingleSet()))
    for client in toy.names:
        assert same(below(run.load_entries(client), "generic."), fedavg.load_entries(client))
        assert same(below(run.load_entries(client), "personal."), alone.load_entries(client))
    together = toy.train(type(method)(), **LABEL_SKEW)
    assert not same(together.backend.client_states, run.backend.client_states)


@FEW
@given(alpha=st.floats(0, 1))
def test_the_generic_model_of_apfl_is_that_of_fedavg(alpha, toy, same, below):
    found = below(toy.train(APFL(alpha=alpha)).message.shared, "generic.")
    assert same(found, toy.train(FedAvg()).message.shared)


def test_an_adaptive_alpha_is_the_clients_own_and_leaves_the_generic_model_alone(toy, same, below):
    run = toy.train(APFL(adaptive=True), 3, momentum=0.9)
    assert same(below(run.message.shared, "generic."), toy.train(FedAvg(), 3, momentum=0.9).message.shared)
    found = [run.backend.client_states[client]["alpha"].item() for client in toy.names]
    assert all(0 <= alpha <= 1 for alpha in found)
    assert len({0.5, *found}) == len(found) + 1


@pytest.mark.parametrize("end", [0.0, 1.0])
def test_an_adaptive_alpha_beyond_an_end_counts_as_that_end_and_comes_back(toy, end):
    method = APFL(alpha=end, adaptive=True)
    module, (x, _) = toy.build_client_trainer(method).module.double().eval(), toy.build_batch()
    with torch.no_grad():
        module.generic.head[-1].bias.add_(1)
        module.alpha.add_(end - 0.5)
    nearest = module.personal if end else module.generic
    assert torch.equal(method.branches(module, x, toy.build_context())["personal"], nearest(x))
    method.finish(module, toy.build_context())
    assert module.alpha.item() == end


def test_at_its_ends_apfl_predicts_as_fedavg_or_as_singleset(toy):
    for alpha, other in ((0, FedAvg()), (1, SingleSet())):
        one, two = toy.train(APFL(alpha=alpha), make=bare).evaluate(), toy.train(other, make=bare).evaluate()
        for client in toy.names:
            assert one[client]["test"]["fused"] == two[client]["test"]["fused"]


def test_the_generic_model_of_pfedme_stays_where_its_rate_is_zero(toy, below):
    still = toy.train(PFedMe(outer_lr=0), make=bare)
    begun = below(still.backend.initial_broadcast().shared, "generic.")
    torch.testing.assert_close(below(still.message.shared, "generic."), begun)  # a mean of equals rounds


def test_without_a_pull_pfedme_is_singleset_and_its_generic_weights_stay(toy, same, below):
    run, alone = (toy.train(each, **LABEL_SKEW) for each in (PFedMe(lam=0, inner_steps=1), SingleSet()))
    start = run.backend.trainer.initial_broadcast(toy.names).shared
    for client in toy.names:
        assert same(below(run.load_entries(client), "personal."), alone.load_entries(client))
    for name, value in run.message.shared.items():
        measured = "running" in name or "tracked" in name
        assert torch.allclose(value.float(), start[name].float(), atol=1e-7) != measured, name


# ---- one model


def test_without_head_epochs_the_heads_of_fedrep_stay(toy):
    trainer = toy.train(FedRep(head_epochs=0)).backend
    start = trainer.trainer.initial_client_state("a")
    for name, value in trainer.client_states["a"].items():
        assert torch.equal(value, start[name]) == name.endswith(("weight", "bias")), name


def test_the_head_phase_of_fedrep_moves_no_feature_and_the_other_no_head(toy, gradients):
    net, x_y = toy.build_nets(1)[0], toy.build_batch()
    whole = gradients(FedAvg().loss(net, x_y, toy.build_context()), net)
    for loss, part in ((FedRep().head_loss, "head"), (FedRep().features_loss, "features")):
        found = gradients(loss(net, x_y, toy.build_context()), net)
        for name, value in whole.items():
            assert torch.equal(found[name], value) if name.startswith(part) else found[name] is None


def test_fine_tuning_before_prediction_leaves_no_trace(toy, same_run):
    run, fedavg = toy.train(FineTune()), toy.train(FedAvg())
    assert same_run(run, fedavg)
    assert toy.train(FineTune(passes=0)).evaluate() == fedavg.evaluate()
    first, again = run.evaluate(), run.evaluate()
    assert first == again != fedavg.evaluate()
    backend = toy.train(FineTune(), 0).backend
    for one, other in zip(federate(backend, backend.initial_broadcast(), 2), fedavg.history, strict=True):
        backend.evaluate(one.message, ("test",))
        assert [a.loss for a in one.updates] == [a.loss for a in other.updates]


def test_neighbours_without_weight_are_fedavg(toy, same_run):
    run, fedavg = toy.train(KnnPer(weight=0)), toy.train(FedAvg())
    assert same_run(run, fedavg)
    for client, scores in run.evaluate().items():
        assert scores["test"]["fused"] == fedavg.evaluate()[client]["test"]["fused"]


def test_the_nearest_neighbour_of_a_training_sample_is_itself(toy):
    for scores in toy.train(KnnPer(weight=1, k=1)).evaluate().values():
        assert scores["train"]["fused"].accuracy == scores["train"]["neighbours"].accuracy == 1


@FEW
@given(k=st.integers(14, 99))
def test_all_neighbours_from_afar_vote_by_class_frequency(k, toy):
    run = toy.train(KnnPer(k=k, scale=1e12), 1)
    client = run.backend.clients["a"]
    said = run.backend.trainer.predict(client, {}, run.message, client.test.inputs)["neighbours"].exp()
    torch.testing.assert_close(said, torch.tensor([4.0, 4.0, 3.0]).expand(30, 3) / 11, rtol=1e-4, atol=0)


# ---- SCAFFOLD


def test_the_first_round_of_scaffold_is_fedavg(toy, same, below):
    one, two = (toy.train(method, 1, **LABEL_SKEW).message.shared for method in (Scaffold(), FedAvg()))
    assert same(below(one, "model."), two)
    two_rounds = [toy.train(method, 2).message.shared for method in (Scaffold(), FedAvg())]
    assert not same(below(two_rounds[0], "model."), two_rounds[1])


@pytest.mark.parametrize("participation", [1.0, 2 / 3])
def test_the_servers_variate_is_the_mean_of_the_clients(participation, toy):
    run = toy.train(
        Scaffold(), 4, participation=participation, momentum=0.9, precision=Precision(torch.float64), weight_decay=0.1
    )
    own = torch.stack([run.backend.client_states[client]["client_variate"] for client in toy.names])
    torch.testing.assert_close(run.message.shared["server_variate"], own.mean(0), rtol=1e-9, atol=1e-12)
    assert own.std(0).max() > 1e-3


def test_a_client_alone_has_nothing_to_correct(toy, below):
    one, two = (
        toy.train(method, 3, clients=toy.build_clients()[:1], precision=Precision(torch.float64)).message.shared
        for method in (Scaffold(), FedAvg())
    )
    for name, value in below(one, "model.").items():
        torch.testing.assert_close(value, two[name], rtol=1e-9, atol=1e-12)


# ---- FedProto


def test_without_a_pull_the_networks_of_fedproto_are_alone(toy, same, below):
    run, alone = toy.train(FedProto(lam=0), 3), toy.train(SingleSet(), 3)
    for client in toy.names:
        assert same(below(run.load_entries(client), "model."), alone.load_entries(client))
        assert run.evaluate()[client]["test"]["head"] == alone.evaluate()[client]["test"]["fused"]


def test_prototypes_are_the_mean_features_of_all_samples_of_a_class(toy):
    run = toy.train(FedProto(), weights="size", precision=Precision(torch.float64))
    sums, counts = torch.zeros(3, 12, dtype=torch.float64), torch.zeros(3, 1, dtype=torch.float64)
    for client in toy.names:
        run.load_entries(client)
        data, module = run.backend.clients[client].train, run.backend.trainer.module.eval()
        for z, label in zip(module.model.features(data.inputs.double()).detach(), data.labels, strict=True):
            sums[label] += z
            counts[label] += 1
    torch.testing.assert_close(run.backend.trainer.module.compute_prototypes(), sums / counts, rtol=1e-9, atol=1e-12)


def test_a_class_that_nobody_has_shown_is_never_predicted(toy):
    clients = [data.__class__(data.name, two_classes(data.train), data.test) for data in toy.build_clients()]
    run = toy.train(FedProto(), clients=clients)
    data = run.backend.clients["a"]
    said = run.backend.trainer.predict(data, run.backend.client_states["a"], run.message, data.test.inputs)
    assert set(said["fused"].argmax(-1).tolist()) == {0, 1}
    assert said["fused"].isfinite().all()


def two_classes(samples):
    rows = samples.labels < 2
    return samples.__class__(samples.inputs[rows], samples.labels[rows])


# ---- options


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        (Ditto, {"lam": -1}, "method.lam is -1; it must be 0 or more"),
        (PFedMe, {"inner_steps": 0}, "method.inner_steps is 0; it must be at least 1"),
        (APFL, {"alpha": 2}, "method.alpha is 2; choose it in"),
        (FML, {"beta": -0.1}, "method.beta is -0.1; choose it in"),
        (FedRep, {"head_epochs": -1}, "method.head_epochs is -1"),
        (FineTune, {"passes": -1}, "method.passes is -1"),
        (KnnPer, {"weight": 1.5}, "method.weight is 1.5"),
        (KnnPer, {"k": 0}, "method.k is 0"),
        (KnnPer, {"scale": 0}, "method.scale is 0"),
        (FedProto, {"lam": float("nan")}, "method.lam is nan"),
    ],
)
def test_options_that_make_no_sense_are_refused(kind, options, words):
    with pytest.raises(InputError, match=words):
        kind(**options)


def test_scaffold_refuses_other_optimisers(toy):
    with pytest.raises(InputError, match=r"SCAFFOLD takes mean gradients .*; set local.optimizer = sgd"):
        toy.build_client_trainer(Scaffold(), optimizer="adam", momentum=0.0)


def test_fedproto_names_a_head_that_it_cannot_read(toy):
    with pytest.raises(InputError, match="this head has none; take another network"):
        toy.build_client_trainer(FedProto(), make=lambda: Net(nn.Linear(6, 3), nn.Identity()))


def test_each_client_of_knnper_may_choose_its_own_share_of_the_neighbours(toy):
    clients = [
        replace(client, val=client.train if client.name == "a" else client.test) for client in toy.build_clients()
    ]
    run = toy.train(KnnPer(fusion="weighted"), 3, clients=clients)
    kept = {name: run.backend.client_states[name] for name in toy.names}
    found = {name: kept[name]["branch_weights.weights"] / kept[name]["branch_weights.temperatures"] for name in kept}
    assert found["a"][1] > found["a"][0]  # a training sample is its own nearest neighbour
    assert len({tuple(scales.tolist()) for scales in found.values()}) == 3
