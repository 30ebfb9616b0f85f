"""How branches become one prediction: each rule, and what clients choose on samples that they were not trained on."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from fedtrain.backends.threads import ThreadsBackend
from fedtrain.backends.vmap.backend import VmapBackend
from fedtrain.data.client_data import Samples
from fedtrain.federated.client import BRANCH_WEIGHTS
from fedtrain.federated.server import federate
from fedtrain.methods.apfl import APFL
from fedtrain.methods.base import BranchWeights
from fedtrain.methods.cooperate import Cooperate
from fedtrain.methods.ditto import Ditto
from fedtrain.methods.fedavg import FedAvg
from fedtrain.methods.fedco2 import FedCO2
from fedtrain.methods.fedper import FedPer
from fedtrain.methods.fedrod import FedRoD
from fedtrain.methods.fusion import StoredBranchWeights, choose_branch_weights, fuse_weighted
from theory.errors import InputError

MANY = {
    "fedco2": FedCO2(fusion="weighted"),
    "fedrod": FedRoD(fusion="weighted"),
    "apfl": APFL(fusion="best"),
    "cooperate": Cooperate(online=FedPer(), fusion="weighted"),
    "three": Cooperate(online=FedPer(), offline=Cooperate(online=FedAvg()), fusion="best"),
}


def draw_branches(seed, sharpness, samples=60, classes=4):
    """Logits that say the label more or less clearly, and labels."""
    chance = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (samples,), generator=chance)
    return {
        f"branch {number}": clear * F.one_hot(labels, classes) + torch.randn(samples, classes, generator=chance)
        for number, clear in enumerate(sharpness)
    }, labels


def with_validation(toy):
    """The toy's clients, with some of their test samples to choose by."""
    return [replace(c, val=Samples(c.test.inputs[:9], c.test.labels[:9])) for c in toy.build_clients()]


# ---- rules


def pool(branches, scales):
    """Σ_b a_b z_b."""
    return sum(a * logits.double() for a, logits in zip(scales, branches.values(), strict=True))


def judge(scales, branches, labels):
    """What the weights minimise: cross entropy, and how far they are from the sum of the logits."""
    theta = torch.as_tensor(scales, dtype=torch.double).log()
    penalty = theta.var(correction=0) * len(theta) + theta.mean() ** 2 / 2
    return (F.cross_entropy(pool(branches, scales), labels, reduction="sum") + penalty).item()


def choose_scales(branches, labels):
    """The chosen a = w / T."""
    found = choose_branch_weights("weighted", branches, labels)
    assert found.weights.sum() == pytest.approx(1)
    return (found.weights / found.temperatures).double()


def test_before_a_client_chooses_it_has_the_sum():
    branches, _ = draw_branches(0, (1.0, 2.0))
    torch.testing.assert_close(
        fuse_weighted(branches, StoredBranchWeights(2).read()), sum(branches.values()).log_softmax(-1)
    )


@given(st.integers(0, 99), st.lists(st.floats(0, 4), min_size=2, max_size=3))
def test_weights_and_temperatures_scale_the_logits(seed, sharpness):
    branches, labels = draw_branches(seed, sharpness)
    choice = choose_branch_weights("weighted", branches, labels)
    expected = pool(branches, choose_scales(branches, labels)).log_softmax(-1)
    torch.testing.assert_close(fuse_weighted(branches, choice), expected.float(), rtol=1e-4, atol=1e-4)


@given(st.integers(0, 99), st.integers(0, 2))
def test_all_weight_on_a_branch_is_that_branch(seed, place):
    branches, _ = draw_branches(seed, (0.5, 1.0, 2.0))
    alone = BranchWeights(F.one_hot(torch.tensor(place), 3).float(), torch.ones(3))
    chosen = list(branches.values())[place]
    torch.testing.assert_close(fuse_weighted(branches, alone), chosen.log_softmax(-1))


@given(st.integers(0, 99), st.lists(st.floats(0, 4), min_size=2, max_size=3))
def test_best_is_no_worse_than_any_branch_where_it_is_chosen(seed, sharpness):
    branches, labels = draw_branches(seed, sharpness)
    chosen = fuse_weighted(branches, choose_branch_weights("best", branches, labels))
    right = [(each.argmax(-1) == labels).sum() for each in branches.values()]
    assert (chosen.argmax(-1) == labels).sum() == max(right)


@given(st.integers(0, 99), st.lists(st.floats(0, 4), min_size=2, max_size=3), st.sampled_from([0.1, 1.0, 20.0]))
def test_no_small_move_of_the_weights_is_for_the_better(seed, sharpness, loud):
    branches, labels = draw_branches(seed, sharpness)
    branches["branch 0"] = loud * branches["branch 0"]
    scales = choose_scales(branches, labels)
    for place in range(len(scales)):
        for factor in (0.99, 1.01):
            moved = scales.clone()
            moved[place] *= factor
            assert judge(moved, branches, labels) >= judge(scales, branches, labels)


@given(st.integers(0, 99), st.floats(0, 3), st.floats(0, 3), st.integers(1, 60))
def test_no_place_of_a_coarse_grid_is_better(seed, one, other, samples):
    """By search instead of descent, over all that a few samples can say."""
    branches, labels = draw_branches(seed, (one, 5 * other), samples=samples)
    found = judge(choose_scales(branches, labels), branches, labels)
    steps = torch.logspace(-3, 2, 15, base=2, dtype=torch.double)
    grid = torch.cartesian_prod(steps, steps)
    logits = torch.stack([each.double() for each in branches.values()])
    losses = -torch.einsum("gb,bnc->gnc", grid, logits).log_softmax(-1)[:, torch.arange(samples), labels].sum(-1)
    ratio, scale = grid.log()[:, 0] - grid.log()[:, 1], grid.log().mean(-1)
    assert (losses + (ratio**2 + scale**2) / 2 >= found - 1e-5).all()  # minus the log densities of two normals


def test_without_samples_to_choose_by_it_is_the_sum():
    branches, labels = draw_branches(0, (1.0, 2.0, 0.5), samples=0)
    torch.testing.assert_close(choose_scales(branches, labels), torch.ones(3, dtype=torch.double))


def test_few_samples_hardly_silence_a_branch_and_many_do():
    for samples, least, most in ((4, 0.5, 1.0), (400, 0.0, 0.2)):
        good, bad = choose_scales(*draw_branches(3, (3.0, 0.0), samples=samples))
        assert least < bad / good < most


@given(st.integers(0, 99), st.floats(0.5, 2.0))
def test_a_branch_that_is_too_sure_is_flattened(seed, clear):
    """Where branches are wrong often enough to show it: up to clear = 2 they are right on five samples of six."""
    branches, labels = draw_branches(seed, (clear, clear), samples=200)
    loud = {name: 8 * logits for name, logits in branches.items()}
    quiet, found = (choose_branch_weights("weighted", each, labels).temperatures for each in (branches, loud))
    assert (found > 3 * quiet).all()


def test_a_branch_that_only_guesses_has_little_say():
    """Its temperature silences it, however loud it is."""
    branches, labels = draw_branches(1, (4.0, 0.0))
    loud = {"good": branches["branch 0"], "bad": 20 * branches["branch 1"]}
    choice = choose_branch_weights("weighted", loud, labels)
    assert choice.weights[0] > choice.weights[1]
    right = (fuse_weighted(loud, choice).argmax(-1) == labels).double().mean()
    assert right > (sum(loud.values()).argmax(-1) == labels).double().mean() + 0.3
    assert right >= (loud["good"].argmax(-1) == labels).double().mean() - 0.02
    other = choose_branch_weights("weighted", dict(reversed(loud.items())), labels)
    torch.testing.assert_close(other.weights.flip(0), choice.weights)


# ---- clients


@pytest.mark.parametrize("name", MANY)
def test_what_clients_choose_is_personal_and_sent_to_nobody(name, toy):
    run = toy.train(MANY[name], 2, clients=with_validation(toy))
    trainer = run.backend.trainer
    mine = [f"{BRANCH_WEIGHTS}.{part}" for part in ("weights", "temperatures")]
    assert trainer.personal_names.issuperset(mine)
    for update in run.history[-1].updates:
        assert not any(BRANCH_WEIGHTS in entry for entry in (*update.shared, *update.published))
    chosen = torch.stack([run.backend.client_states[client][mine[0]] for client in "abc"])
    assert chosen.shape == (3, len(MANY[name].branch_names))
    torch.testing.assert_close(chosen.sum(-1), torch.ones(3))


@pytest.mark.parametrize("name", MANY)
def test_the_choice_changes_no_training(name, toy, same):
    method, clients = MANY[name], with_validation(toy)
    chosen = toy.train(method, 3, clients=clients)
    plain = toy.train(replace(method, fusion="own"), 3, clients=clients)
    for client in "abc":
        found = chosen.load_entries(client)
        assert same({key: found[key] for key in found if BRANCH_WEIGHTS not in key}, plain.load_entries(client))


def test_the_choice_is_that_of_the_models_the_last_round_led_to(toy):
    method, clients = FedCO2(fusion="weighted"), with_validation(toy)
    backend = toy.train(method, 1, clients=clients).backend
    run = toy.train(method, 2, clients=clients)
    first = toy.train(method, 1, clients=clients)
    for data in clients:
        branches = backend.trainer.predict_split(data, first.backend.client_states[data.name], first.message, "val")
        expected = choose_branch_weights(
            "weighted", {name: branches[name] for name in ("online", "offline")}, data.val.labels
        )
        kept = run.backend.client_states[data.name]
        torch.testing.assert_close(kept[f"{BRANCH_WEIGHTS}.weights"], expected.weights)
        torch.testing.assert_close(kept[f"{BRANCH_WEIGHTS}.temperatures"], expected.temperatures)


def test_without_validation_samples_a_client_keeps_the_sum(toy):
    first, *others = with_validation(toy)
    run = toy.train(FedCO2(fusion="best"), 2, clients=[replace(first, val=None), *others])
    kept = run.backend.client_states[first.name][f"{BRANCH_WEIGHTS}.weights"]
    torch.testing.assert_close(kept, torch.full((2,), 0.5))


@pytest.mark.parametrize("kind", ["threads", "vmap"])
def test_backends_choose_alike(kind, toy, same_run):
    method, clients, precision = FedCO2(fusion="weighted"), with_validation(toy), None
    serial = toy.train(method, 3, clients=clients, fast_path=False)
    trainer = toy.build_client_trainer(method, fast_path=False, precision=precision)
    backend = VmapBackend(trainer, clients) if kind == "vmap" else ThreadsBackend([trainer, trainer.clone()], clients)
    history = list(federate(backend, backend.initial_broadcast(), 3))
    for client in "abc":
        for part in ("weights", "temperatures"):
            name = f"{BRANCH_WEIGHTS}.{part}"
            torch.testing.assert_close(
                backend.client_states[client][name], serial.backend.client_states[client][name], rtol=1e-4, atol=1e-4
            )
    assert len(history) == 3


def test_ditto_predicts_with_its_personal_model_unless_asked_otherwise(toy):
    clients = with_validation(toy)
    own = toy.train(Ditto(), 1, clients=clients)
    data, state = clients[0], own.backend.client_states[clients[0].name]
    found = own.backend.trainer.predict(data, state, own.message, data.test.inputs)
    assert torch.equal(found["fused"], found["personal"])
    summed = own.backend.trainer.with_fusion("logits").predict(data, state, own.message, data.test.inputs)
    torch.testing.assert_close(summed["fused"], found["generic"] + found["personal"])


def test_a_method_with_one_model_has_nothing_to_fuse(toy):
    with pytest.raises(InputError, match="FedAvg has no branches to fuse"):
        toy.build_client_trainer(FedAvg()).with_fusion("best")
