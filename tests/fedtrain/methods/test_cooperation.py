"""What two methods side by side are: each what it is alone, and with transfer between them Fed-CO2."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtrain.methods import METHODS
from fedtrain.methods.cooperate import Cooperate
from fedtrain.methods.copa import Copa
from fedtrain.methods.fedavg import FedAvg
from fedtrain.methods.fedbn import FedBN
from fedtrain.methods.fedco2 import FedCO2
from fedtrain.methods.fedper import FedPer
from fedtrain.methods.fedprox import FedProx
from fedtrain.methods.fedrep import FedRep
from fedtrain.methods.fedrod import FedRoD
from fedtrain.methods.finetune import FineTune
from fedtrain.methods.knnper import KnnPer
from fedtrain.methods.moon import Moon
from fedtrain.methods.pfedme import PFedMe
from fedtrain.methods.scaffold import Scaffold
from fedtrain.methods.singleset import SingleSet
from theory.errors import InputError

PARTS = {
    "fedper": FedPer(),
    "fedbn": FedBN(),
    "fedrod": FedRoD(personal_sgd="plain"),
    "fedrep": FedRep(head_epochs=2),
    "fedprox": FedProx(mu=0.1),
    "moon": Moon(),
    "copa": Copa(),
    "pfedme": PFedMe(inner_steps=2),
    "knnper": KnnPer(k=2),
    "finetune": FineTune(),
    "singleset": SingleSet(start="own"),
}


def below_side(state, side):
    return {name.removeprefix(f"{side}."): value for name, value in state.items() if name.startswith(f"{side}.")}


def agree(same, run, alone, side):
    """To the bit, in all that clients hold and in what they predict."""
    for client in "abc":
        assert same(below_side(run.load_entries(client), side), alone.load_entries(client))
    for client, scores in run.evaluate().items():
        mine, theirs = scores["test"][side], alone.evaluate()[client]["test"]["fused"]
        assert (mine.accuracy, mine.loss) == (theirs.accuracy, theirs.loss)


@pytest.mark.parametrize("name", PARTS)
def test_without_transfer_each_method_trains_as_if_it_were_alone(name, toy, same):
    method = PARTS[name]
    run = toy.train(Cooperate(online=method, offline=SingleSet()), 2, participation=0.7, epochs=2)
    agree(same, run, toy.train(method, 2, participation=0.7, epochs=2), "online")
    agree(same, run, toy.train(SingleSet(), 2, participation=0.7, epochs=2), "offline")


def test_scaffold_counts_its_own_steps(toy, same):
    run = toy.train(Cooperate(online=Scaffold(), offline=FedAvg()), 2)
    agree(same, run, toy.train(Scaffold(), 2), "online")


@pytest.mark.parametrize("bn_stats", ["local", "shared"])
@pytest.mark.parametrize("gen", ["sum", "mean"])
def test_fedbn_beside_singleset_with_transfer_is_fedco2(gen, bn_stats, toy, same_run):
    made = Cooperate(online=FedBN(bn_stats=bn_stats), intra="both", inter="both", gen=gen, mu=0.5)
    fedco2 = FedCO2(bn_stats=bn_stats, gen=gen, mu=0.5)
    one, other = toy.train(made, 3), toy.train(fedco2, 3)
    assert same_run(one, other)
    assert one.evaluate() == other.evaluate()


def test_fedco2_with_its_own_parts_named_is_fedco2(toy, same_run):
    named = FedCO2(online=FedBN(), offline=SingleSet())
    assert same_run(toy.train(named, 2), toy.train(FedCO2(), 2))
    assert same_run(toy.train(FedCO2(online=FedPer()), 2), toy.train(FedCO2(personal="head"), 2))


@given(
    online=st.sampled_from(["fedavg", "fedper", "fedbn", "fedrod", "lgfedavg"]),
    offline=st.sampled_from(["singleset", "fedavg", "fedrod", "ditto"]),
)
@settings(max_examples=8)
def test_what_is_shared_is_what_the_parts_share(toy, online, offline):
    method = Cooperate(online=METHODS[online](), offline=METHODS[offline]())
    trainer = toy.build_client_trainer(method)
    alone = {side: toy.build_client_trainer(part).shared_names for side, part in method.parts.items()}
    assert trainer.shared_names == {f"{side}.{name}" for side, names in alone.items() for name in names}


def test_a_part_may_be_a_cooperation(toy, same):
    three = Cooperate(online=FedPer(), offline=Cooperate(online=FedAvg(), offline=SingleSet()))
    run = toy.train(three, 2)
    assert three.branch_names == ["online", "offline.online", "offline.offline"]
    data = run.backend.clients["a"]
    found = run.backend.trainer.predict(data, run.backend.client_states["a"], run.message, data.test.inputs)
    assert list(found) == ["fused", *three.branch_names]
    torch.testing.assert_close(found["fused"], sum(found[name] for name in three.branch_names))
    inner = toy.train(Cooperate(online=FedAvg(), offline=SingleSet()), 2)
    for client in "abc":
        assert same(below_side(run.load_entries(client), "offline"), inner.load_entries(client))


def test_transfer_reaches_methods_that_wrap_their_network(toy, same_run):
    """MOON's network lies within its module; peers' heads judge its features, and it learns from the other model."""
    alone = Cooperate(online=Moon(), offline=FedRoD())
    for change in ({"intra": "both"}, {"inter": "online"}, {"inter": "offline"}):
        made = Cooperate(online=Moon(), offline=FedRoD(), **change)
        assert made.published == ("offline.generic.head" if "inter" in change else "")
        assert not same_run(toy.train(made, 2), toy.train(alone, 2))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"online": Copa(), "inter": "both"}, r"both show heads to peers, and a client shows one"),
        ({"online": Copa(), "offline": Copa()}, r"both show heads to peers"),
        ({"online": Scaffold(), "intra": "online"}, r"SCAFFOLD .* set method.intra = none"),
        ({"online": Scaffold(), "offline": FedRep()}, r"SCAFFOLD .* FedRep makes more"),
        ({"offline": Cooperate(), "inter": "both"}, r"method.offline is a cooperation, .* set method.inter = none"),
        ({"online": FedRoD(fusion="best")}, r"method.online.fusion is best, .* set method.fusion = best"),
        ({"online": "fedper"}, r"method.online is 'fedper'; give a method"),
        ({"mu": -1.0}, r"method.mu is -1.0"),
    ],
)
def test_what_cannot_work_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        Cooperate(**change)


def test_a_part_that_needs_batch_norm_says_so_itself(toy):
    with pytest.raises(InputError, match="FedBN keeps batch norm personal and this network has none"):
        toy.build_client_trainer(Cooperate(), make=lambda: bare(toy))
    with pytest.raises(InputError, match="Fed-CO2 keeps batch norm personal"):
        toy.build_client_trainer(FedCO2(), make=lambda: bare(toy))
    assert toy.build_client_trainer(FedCO2(online=FedPer()), make=lambda: bare(toy))


def bare(toy):
    from torch import nn

    from fedtrain.models import Net

    return Net(nn.Linear(toy.dim, 4), nn.Linear(4, toy.classes))
