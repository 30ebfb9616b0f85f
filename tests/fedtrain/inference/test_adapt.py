"""Newcomers: what they get is personal, and what was shared stays as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from found_files import TABLE, make_rows, write_images, write_table

import fedtrain
from fedtrain.inference.adapt import adapt_client, build_start, estimate_statistics
from fedtrain.inference.newcomer_data import read_newcomer
from fedtrain.inference.personal_file import add_newcomer
from fedtrain.inference.trained_run import TrainedRun, load_trained_run
from fedtrain.inference.unseen_client import BRANCH_CHOICES, BranchChoice, build_unseen_client

TINY: dict[str, Any] = {"rounds": 2, "quiet": True, "metrics": "none", "settings": {"model.units": 4}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("newcomers")


@pytest.fixture(scope="module")
def table(folder: Path) -> Path:
    return write_table(folder / "t.csv")


@pytest.fixture(scope="module")
def runs(folder: Path, table: Path) -> dict[str, TrainedRun]:
    """Without geneva."""
    for method in ("fedavg", "fedper", "fedbn", "fedco2"):
        fedtrain.train(dataset=table, **TABLE, **TINY, method=method, hold_out="geneva", out=folder / method)
    return {name: load_trained_run(folder / name) for name in ("fedavg", "fedper", "fedbn", "fedco2")}


@pytest.mark.parametrize("method", ["fedavg", "fedper", "fedbn", "fedco2"])
def test_only_what_is_personal_changes(runs: dict[str, TrainedRun], table: Path, method: str) -> None:
    run, data = runs[method], read_newcomer(runs[method], table, "geneva")
    shared = {name: value.clone() for name, value in run.state.message.shared.items()}
    found = adapt_client(run, data, 6, passes=3)
    assert set(found.personal) == run.trainer.personal_names
    assert all(torch.equal(run.state.message.shared[name], value) for name, value in shared.items())
    assert all(torch.equal(value, run.trainer.module.state_dict()[name]) for name, value in shared.items())
    start = build_start(run, "geneva", BRANCH_CHOICES.get(method, BranchChoice("", "fused")))
    moved = {name for name, value in found.personal.items() if not torch.equal(value, start[name])}
    assert bool(moved) == (method != "fedavg")
    if method == "fedavg":
        assert found.before == found.after


def test_frozen_entries_are_frozen(runs: dict[str, TrainedRun], table: Path) -> None:
    """By another road: SGD on the head alone, the rest without a gradient."""
    run, data = runs["fedper"], read_newcomer(runs["fedper"], table, "geneva")
    found = adapt_client(run, data, len(data.train), passes=2, lr=0.05, seed=3)
    start = build_start(run, "geneva", BranchChoice("", "fused"))
    trainer, module = run.trainer, run.trainer.module
    module.load_state_dict({**start, **run.state.message.shared})
    module.train()
    head = {name: p for name, p in module.named_parameters() if name in trainer.personal_names}
    ordered = replace(data, train=data.train)
    from fedtrain.data.client_data import Samples
    from fedtrain.data.importing.train_test_split import interleave_classes

    order = torch.from_numpy(interleave_classes(data.train.labels.numpy(), 3))
    ordered = replace(data, train=Samples(data.train.inputs[order], data.train.labels[order]))
    for number in range(2):
        for x, y in trainer.iterate_batches(ordered, run.state.message.round, f"adapt {number}"):
            module.load_state_dict(run.state.message.shared, strict=False)
            loss = torch.nn.functional.cross_entropy(module(x), y)
            for p, gradient in zip(head.values(), torch.autograd.grad(loss, list(head.values())), strict=True):
                p.data -= 0.05 * gradient
    for name, value in head.items():
        torch.testing.assert_close(found.personal[name], value.data, rtol=1e-5, atol=1e-6)


def test_a_few_shots_are_a_batch_though_incomplete_ones_are_dropped(runs: dict[str, TrainedRun], table: Path) -> None:
    run, data = runs["fedper"], read_newcomer(runs["fedper"], table, "geneva")
    kept = adapt_client(run, data, 6, passes=2)
    try:
        run.trainer.local = replace(run.trainer.local, last_batch="drop", batch_size=7)
        dropped = adapt_client(run, data, 6, passes=2)
    finally:
        run.trainer.local = run.config.local
    assert all(torch.equal(dropped.personal[name], value) for name, value in kept.personal.items())


def test_without_labels_it_is_the_policy_of_predict(runs: dict[str, TrainedRun], table: Path) -> None:
    run, data = runs["fedbn"], read_newcomer(runs["fedbn"], table, "geneva")
    found, policy = adapt_client(run, data, 0), build_unseen_client(run, data.train.inputs)
    assert all(torch.equal(found.personal[name], value) for name, value in policy.personal.items())
    assert found.branch_after == policy.branch


def test_the_offline_model_of_a_newcomer_begins_as_the_online_one(runs: dict[str, TrainedRun], table: Path) -> None:
    run, data = runs["fedco2"], read_newcomer(runs["fedco2"], table, "geneva")
    start = build_start(run, "geneva", BRANCH_CHOICES["fedco2"])
    personal = estimate_statistics(run, data, start)
    logits = run.compute_logits_with(data, personal, data.test.inputs)
    torch.testing.assert_close(logits["online"], logits["offline"], rtol=0, atol=0)
    assert adapt_client(run, data, 6).branch_after == "fused"


def test_who_is_held_out_leaves_no_trace(folder: Path, table: Path) -> None:
    """The same numbers as from a table without that client."""
    more = [{**row, "site": "chur", "age": row["age"] + 0.05} for row in make_rows() if row["site"] == "geneva"]
    third = write_table(folder / "third.csv", [*make_rows(), *more])
    how: dict[str, Any] = {**TABLE, **TINY, "method": "fedbn", "standardise": "pooled"}
    other = fedtrain.train(dataset=table, **how, out=folder / "other")
    run = fedtrain.train(dataset=third, **how, hold_out="chur", out=folder / "without")
    assert run.rows == other.rows
    assert run.clients == ["basel", "geneva"]
    assert "client chur is held out" in " ".join(run.summary["notes"])
    said = run.folder.read_json("held-out.json")
    assert said["client"] == "chur"
    assert said["shots"] == 0
    again = run.adapt(shots=0)
    assert again.after.accuracy == said["after"]["accuracy"]


def test_a_personal_part_is_kept_and_predicts(runs: dict[str, TrainedRun], folder: Path, table: Path) -> None:
    run = fedtrain.load_run(folder / "fedco2")
    file = folder / "geneva.safetensors"
    found = run.adapt(table, client="geneva", shots=6, passes=2, out=file)
    with_newcomer, name, branch = add_newcomer(runs["fedco2"], file)
    data = read_newcomer(runs["fedco2"], table, "geneva")
    logits = with_newcomer.compute_logits(name, data.test.inputs)[branch]
    assert (logits.argmax(1) == data.test.labels).double().mean() == found.after.accuracy
    with pytest.raises(fedtrain.InputError, match="belongs to another run"):
        add_newcomer(runs["fedbn"], file)
    with pytest.raises(fedtrain.InputError, match="is there already"):
        run.adapt(table, client="geneva", out=file)
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(fedtrain.InputError, match="not a personal part that fedco2 wrote, or damaged"):
        add_newcomer(runs["fedco2"], file)


def test_images_of_another_size_are_taken(folder: Path) -> None:
    run = fedtrain.train(
        dataset=write_images(folder / "pets"), method="fedbn", rounds=1, model="mlp", metrics="none", quiet=True,
        settings={"model.units": 4}, out=folder / "pets-run",
    )  # fmt: skip
    others = write_images(folder / "others", size=(12, 9))
    found = run.adapt((others / "ann").rename(folder / "carla"), shots=2, passes=1)
    assert found.client == "carla"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"shots": 1000}, "shots is 1000; client geneva has"),
        ({"passes": 0, "shots": 5}, "passes is 0"),
        ({"client": "basel"}, "client basel took part in training"),
        ({"client": None}, r"it holds 2 clients \(basel, geneva\); say which"),
        ({"client": "genf"}, "no client 'genf'; did you mean 'geneva'"),
        ({"data": "nowhere.csv"}, "no such file or folder"),
    ],
)
def test_what_cannot_be_adapted(runs: Any, folder: Path, table: Path, change: dict[str, Any], words: str) -> None:
    how = {"data": table, "client": "geneva", **change}
    with pytest.raises(fedtrain.InputError, match=words):
        fedtrain.load_run(folder / "fedbn").adapt(how.pop("data"), **how)


def test_classes_and_columns_of_a_newcomer_must_be_known(runs: Any, folder: Path) -> None:
    run = fedtrain.load_run(folder / "fedbn")
    rows = [{**row, "site": "chur"} for row in make_rows()[:20]]
    strange = write_table(folder / "strange.csv", [{**row, "ill": "perhaps"} for row in rows])
    with pytest.raises(fedtrain.InputError, match="ill is 'perhaps', and the trained classes are no, yes"):
        run.adapt(strange)
    short = write_table(folder / "short.csv", [{k: v for k, v in row.items() if k != "age"} for row in rows])
    with pytest.raises(fedtrain.InputError, match="it lacks the column 'age'"):
        run.adapt(short)


@pytest.mark.parametrize(("name", "words"), [("genf", "no client is called so; did you mean 'geneva'")])
def test_a_client_that_is_not_there_cannot_be_held_out(table: Path, name: str, words: str) -> None:
    with pytest.raises(fedtrain.InputError, match=words):
        fedtrain.plan(dataset=table, **TABLE, hold_out=name)
    with pytest.raises(fedtrain.InputError, match=r"data\.hold_out is 'client00', the only client"):
        fedtrain.plan(dataset=table, target="ill", skew="iid", clients=1, hold_out="client00")
