"""What each method is: the names that it shares, and what it becomes when a switch is off."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from torch import nn

from fedtrain.methods import METHODS
from fedtrain.methods.apfl import APFL
from fedtrain.methods.copa import Copa
from fedtrain.methods.ditto import Ditto
from fedtrain.methods.fedavg import FedAvg
from fedtrain.methods.fedbn import FedBN
from fedtrain.methods.fedco2 import FedCO2
from fedtrain.methods.fedper import FedPer
from fedtrain.methods.fedproto import FedProto
from fedtrain.methods.fedprox import FedProx
from fedtrain.methods.fedrep import FedRep
from fedtrain.methods.fedrod import FedRoD
from fedtrain.methods.finetune import FineTune
from fedtrain.methods.fml import FML
from fedtrain.methods.knnper import KnnPer
from fedtrain.methods.lgfedavg import LGFedAvg
from fedtrain.methods.moon import Moon
from fedtrain.methods.pfedme import PFedMe
from fedtrain.methods.scaffold import Scaffold
from fedtrain.methods.singleset import SingleSet
from fedtrain.models import Net
from theory.errors import InputError

# The toy network's entries, written down and not asked for.
WEIGHTS = {"features.0.weight", "head.0.weight", "head.3.weight", "head.3.bias"}
AFFINE = {"features.1.weight", "features.1.bias", "head.1.weight", "head.1.bias"}
STATS = {f"{at}.1.{stat}" for at in ("features", "head") for stat in ("running_mean", "running_var")} | {
    "features.1.num_batches_tracked",
    "head.1.num_batches_tracked",
}
ALL = WEIGHTS | AFFINE | STATS
FEATURES = {name for name in ALL if name.startswith("features.")}

LABEL_SKEW = {"momentum": 0.9, "weight_decay": 1e-5, "last_batch": "drop", "participation": 0.7, "weights": "size"}

BY_NAMES = [
    (FedAvg(), ALL),
    (FedPer(), FEATURES),
    (LGFedAvg(), ALL - FEATURES),
    (FineTune(), ALL),
    (KnnPer(), ALL),
    (FedBN(), WEIGHTS),
    (FedBN(bn_stats="shared"), WEIGHTS | STATS),
    (SingleSet(), set()),
]
OTHERS = [
    (FedProx(), ALL),
    (Copa(), FEATURES),
    (Moon(), {f"model.{name}" for name in ALL}),
    (FedRoD(), {f"generic.{name}" for name in ALL}),
    *((two(), {f"generic.{name}" for name in ALL}) for two in (Ditto, PFedMe, APFL, FML)),
    (FedRep(), FEATURES),
    (Scaffold(), {f"model.{name}" for name in ALL} | {"server_variate"}),
    (FedProto(), {"feature_sums", "class_shares"}),
    (FedCO2(), {f"online.{name}" for name in WEIGHTS}),
    (FedCO2(bn_stats="shared"), {f"online.{name}" for name in WEIGHTS | STATS}),
    (FedCO2(personal="head"), {f"online.{name}" for name in FEATURES}),
    (FedCO2(personal="bn+head"), {"online.features.0.weight"}),
    (FedCO2(personal="bn+head", bn_stats="shared"), {f"online.{name}" for name in FEATURES - AFFINE}),
]


@dataclass(frozen=True)
class Naming(FedAvg):
    """A method that is nothing but names."""

    names: frozenset[str] = frozenset()

    def shared(self, module):
        return self.names


@dataclass(frozen=True)
class OfflineAlone(SingleSet):
    """SingleSet from the weights that Fed-CO2 draws for its offline models."""

    def build(self, nets):
        return nets.build_own("offline")


@pytest.mark.parametrize(("method", "names"), BY_NAMES + OTHERS, ids=[str(method) for method, _ in BY_NAMES + OTHERS])
def test_what_is_shared(method, names, toy):
    assert toy.build_client_trainer(method).shared_names == names


@pytest.mark.parametrize(("method", "names"), BY_NAMES, ids=[str(method) for method, _ in BY_NAMES])
def test_fedavg_fedper_fedbn_and_singleset_differ_by_names_only(method, names, toy, same_run):
    assert same_run(toy.train(method), toy.train(Naming(frozenset(names))))


@pytest.mark.parametrize("squared", [True, False])
def test_fedprox_without_pull_is_fedavg(squared, toy, same_run):
    assert same_run(toy.train(FedProx(mu=0, squared=squared)), toy.train(FedAvg()))
    assert not same_run(toy.train(FedProx(mu=0.1, squared=squared)), toy.train(FedAvg()))


def test_unsquared_fedprox_leaves_out_the_first_round(toy, same_run):
    assert same_run(toy.train(FedProx(mu=1.0, squared=False), 1), toy.train(FedAvg(), 1))
    assert not same_run(toy.train(FedProx(mu=1.0), 1), toy.train(FedAvg(), 1))


@pytest.mark.parametrize("previous", ["last", "initial"])
def test_moon_without_contrast_is_fedavg(previous, toy, same, below):
    fedavg = toy.train(FedAvg()).message.shared
    assert same(below(toy.train(Moon(mu=0, previous=previous)).message.shared, "model."), fedavg)
    assert not same(below(toy.train(Moon(previous=previous)).message.shared, "model."), fedavg)


def test_moon_remembers_what_it_trained_before_the_average(toy, same, below):
    run, random = toy.train(Moon()), toy.train(Moon(previous="initial"))
    for update in run.history[-1].updates:
        previous = below(run.backend.client_states[update.client], "previous.")
        assert same(previous, below(update.shared, "model."))
        assert same(
            random.backend.client_states[update.client], random.backend.trainer.initial_client_state(update.client)
        )


@pytest.mark.parametrize("options", [{}, LABEL_SKEW], ids=["feature skew", "label skew"])
def test_without_cooperation_fedco2_is_fedbn_beside_singleset(options, toy, same, below):
    stats, start, alone = ("shared", "own", OfflineAlone()) if options else ("local", "common", SingleSet())
    pairs = toy.train(FedCO2(intra="none", inter="none", bn_stats=stats, start=start), 3, **options)
    online, offline = toy.train(FedBN(bn_stats=stats), 3, **options), toy.train(alone, 3, **options)
    for client in toy.names:
        assert same(below(pairs.load_entries(client), "online."), online.load_entries(client))
        assert same(below(pairs.load_entries(client), "offline."), offline.load_entries(client))


def bare():
    return Net(nn.Linear(6, 4), nn.Linear(4, 3))


@pytest.mark.parametrize("name", METHODS)
def test_only_fedbn_and_fedco2_refuse_a_network_without_batch_norm(name, toy):
    if name not in ("fedbn", "cooperate", "fedco2"):  # a cooperation with FedBN unless another method is named
        assert toy.train(METHODS[name](), 1, make=bare).evaluate()
        return
    with pytest.raises(InputError, match=r"keeps batch norm personal and this network has none; take one that has"):
        toy.build_client_trainer(METHODS[name](), make=bare)
