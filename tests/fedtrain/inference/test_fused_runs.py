"""What clients chose for the fusion of their branches lives in the run: predicted with, resumed, chosen anew."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fedtrain
from theory.errors import InputError


def build_clients(validation=True):
    chance = np.random.default_rng(0)
    centres = chance.normal(size=(3, 8))

    def samples(count, shift):
        labels = np.arange(count) % 3
        return 2 * centres[labels] + chance.normal(size=(count, 8)) + shift, labels

    return [
        fedtrain.ClientData.from_arrays(
            name,
            train=samples(24, shift),
            test=samples(30, shift),
            val=samples(12, shift) if validation else None,
        )
        for name, shift in (("a", 0.0), ("b", 1.0), ("c", -1.0))
    ]


pytestmark = pytest.mark.usefixtures("no_figures")
SMALL = {"clients": build_clients(), "model": "mlp", "method": "fedco2", "lr": 0.05, "quiet": True, "threads": 1}
WEIGHTED = {"method.fusion": "weighted"}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "whole"
    return fedtrain.train(**SMALL, settings=WEIGHTED, rounds=3, eval_every=3, out=out)


def test_evaluation_and_models_use_what_the_clients_chose(run):
    again = run.evaluate(clients=SMALL["clients"])
    last = [row for row in run.rows if row["round"] == 3 and row["split"] == "test"]
    assert {(r["client"], r["branch"]): r["accuracy"] for r in again} == {
        (r["client"], r["branch"]): r["accuracy"] for r in last
    }
    for client in SMALL["clients"]:
        found = run.model(client.name).compute_branches(client.test.inputs)
        right = (found["fused"].argmax(-1) == client.test.labels).double().mean().item()
        assert right == run.accuracy()[client.name]["fused"]
        kept = run.trained.state.client_states[client.name]
        w, t = kept["branch_weights.weights"], kept["branch_weights.temperatures"]
        mixed = sum(
            each * (found[name] / scale).log_softmax(-1)
            for each, scale, name in zip(w, t, ("online", "offline"), strict=True)
        )
        torch.testing.assert_close(found["fused"], mixed.log_softmax(-1))


def test_a_run_that_was_stopped_ends_with_the_same_choice(run, tmp_path):
    part = fedtrain.train(**SMALL, settings=WEIGHTED, rounds=2, eval_every=3, out=tmp_path / "part")
    whole = fedtrain.train(clients=SMALL["clients"], resume=part.path, rounds=3, quiet=True)
    for name, state in run.trained.state.client_states.items():
        other = whole.trained.state.client_states[name]
        assert state.keys() == other.keys()
        assert all(torch.equal(value, other[entry]) for entry, value in state.items())


def test_other_rules_can_be_tried_on_the_weights_of_a_run(run):
    def evaluate(rule, split="test"):
        rows = run.evaluate(split, clients=SMALL["clients"], fusion=rule)
        return {(row["client"], row["branch"]): row["accuracy"] for row in rows}

    best = evaluate("best", "val")
    for client in "abc":
        assert best[client, "fused"] == max(best[client, "online"], best[client, "offline"])
    plain = {(r["client"], r["branch"]): r["accuracy"] for r in run.evaluate(clients=SMALL["clients"])}
    for rule in ("logits", "probabilities", "weighted", "best"):
        found = evaluate(rule)
        assert all(found[key] == plain[key] for key in found if key[1] != "fused")
    assert evaluate("own") == evaluate("logits")


def test_the_gap_is_said_of_every_client_and_of_the_means(run):
    table = run.accuracy()
    for name, each in {**table.clients, "mean": table.mean}.items():
        assert table.gap[name] == each["fused"] - max(each["online"], each["offline"])
    assert run.summary["gap"]["last"] == {
        "clients": {name: table.gap[name] for name in "abc"},
        "mean": table.gap["mean"],
    }
    assert "gap" in repr(table).splitlines()[1]


def test_a_rule_that_cannot_be_is_refused(run, tmp_path):
    with pytest.raises(InputError, match="unknown fusion 'besst'; did you mean 'best'"):
        run.evaluate(clients=SMALL["clients"], fusion="besst")
    blind = {**SMALL, "clients": build_clients(validation=False)}
    with pytest.raises(InputError, match=r"no client has validation data to choose by; set data.validation_share"):
        fedtrain.plan(**{k: v for k, v in blind.items() if k != "quiet"}, settings=WEIGHTED, out=tmp_path / "x")
    with pytest.raises(InputError, match=r"give your own clients their validation samples"):
        fedtrain.plan(clients=build_clients(), settings={"data.validation_share": 0.1}, out=tmp_path / "x")


def test_a_share_is_held_out_of_every_class(tmp_path):
    """The same samples whoever asks, and all of them are there once."""

    def plan(**settings):
        given = {"dataset": "digits", "data": "standin", "load_images": False, "out": tmp_path / "x"}
        return fedtrain.plan(**given, settings=settings).experiment.federation.clients

    for whole, parted, again in zip(
        plan(), plan(**{"data.validation_share": 0.2}), plan(**{"data.validation_share": 0.2}), strict=True
    ):
        assert whole.val is None
        assert len(parted.val) == round(0.2 * len(whole.train))
        assert torch.equal(parted.val.labels, again.val.labels)
        for label in whole.train.labels.unique():
            sizes = [int((part.labels == label).sum()) for part in (whole.train, parted.train, parted.val)]
            assert sizes[0] == sizes[1] + sizes[2]
            assert abs(sizes[2] - 0.2 * sizes[0]) <= 1
