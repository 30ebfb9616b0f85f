"""A run from its first round to its summary: interrupted, resumed, repeated, refused."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from statistics import fmean

import pytest
import torch

from fedtrain.config.local import LocalSettings
from fedtrain.config.schema import Config, EvaluationSettings, ServerSettings
from fedtrain.data.client_data import ClientData, Samples
from fedtrain.errors import TrainingError
from fedtrain.federated.client import ClientTrainer
from fedtrain.methods import METHODS
from fedtrain.methods.fedbn import FedBN
from fedtrain.methods.fedco2 import FedCO2
from fedtrain.methods.fedrep import FedRep
from fedtrain.methods.fedrod import FedRoD
from fedtrain.runs import loop as module
from fedtrain.runs.callbacks import OnRoundEnd
from fedtrain.runs.folder import LAST_CHECKPOINT, METRICS_FILE, SUMMARY_FILE, RunFolder
from fedtrain.runs.loop import run_rounds
from theory.errors import InputError

pytestmark = pytest.mark.usefixtures("no_figures")

FEATURE = Config(
    local=LocalSettings(lr=0.05, batch_size=8), server=ServerSettings(rounds=4), evaluation=EvaluationSettings(every=2)
)
LABEL = Config(
    local=LocalSettings(lr=0.05, momentum=0.9, weight_decay=1e-5, epochs=2, batch_size=8),
    server=ServerSettings(rounds=5, participation=0.7, weights="size"),
    evaluation=EvaluationSettings(every=3, window=2, window_every=1, report="window", train=True),
)
AS_LABEL_SKEW_DOES = {
    "fedbn": FedBN(bn_stats="shared"),
    "fedrod": FedRoD(balanced=True, personal_sgd="plain"),
    "fedrep": FedRep(head_epochs=2),
    "fedco2": FedCO2(intra="none", inter="none", bn_stats="shared", start="own"),
}
CASES = {
    **{f"{name} feature": replace(FEATURE, method=make()) for name, make in METHODS.items()},
    **{
        f"{name} label": replace(LABEL, method=AS_LABEL_SKEW_DOES.get(name) or make()) for name, make in METHODS.items()
    },
    "fedco2 both": replace(LABEL, method=FedCO2()),
}
BRANCHES = {
    "fedrod": ["fused", "generic", "personal"],
    "copa": ["fused", "own", "peers"],
    **{name: ["fused", "generic", "personal"] for name in ("ditto", "pfedme", "apfl", "fml")},
    "knnper": ["fused", "model", "neighbours"],
    "fedproto": ["fused", "head", "prototypes"],
    **{name: ["fused", "online", "offline"] for name in ("cooperate", "fedco2")},
}


def stop_after(round):
    def watch(progress):
        if progress.round == round:
            raise KeyboardInterrupt

    return [OnRoundEnd(watch)]


def everything(folder):
    """Metrics as bytes, and all that the last checkpoint holds but the time it took."""
    state = folder.load_checkpoint()
    groups = {"shared": state.message.shared, **{("own", k): v for k, v in state.client_states.items()}}
    groups |= {("peer", k): v for k, v in state.message.peers.items()}
    groups |= {("server", k): v for k, v in state.server.items()}
    tensors = {
        (g, k): (v.dtype, v.shape, v.numpy().tobytes()) for g, entries in groups.items() for k, v in entries.items()
    }
    order = list(state.message.peers)
    return (
        (folder.path / METRICS_FILE).read_bytes(),
        tensors,
        order,
        state.communication,
        state.message.round,
        state.rows_end,
    )


def timeless(summary):
    return {key: value for key, value in summary.items() if key != "seconds"}


@pytest.mark.parametrize("config", CASES.values(), ids=CASES.keys())
def test_stopped_twice_and_resumed_is_as_never_stopped(config, begin, monkeypatch):
    work, folder = begin(config)
    whole = run_rounds(work, folder)

    again, other = begin(config)
    with pytest.raises(KeyboardInterrupt):
        run_rounds(again, other, stop_after(1))  # while it is shown
    assert (other.read_last_saved_round(), other.is_finished) == (1, False)
    trained = []

    def stop_inside(trainer, data, personal, message, *, adapt=ClientTrainer.train_locally):
        trained.append(data.name)
        loss = adapt(trainer, data, personal, message)
        if len(trained) == 4:  # the second client of the third round at the latest
            raise KeyboardInterrupt
        return loss

    with monkeypatch.context() as patch:
        patch.setattr("fedtrain.federated.client.ClientTrainer.train_locally", stop_inside)
        with pytest.raises(KeyboardInterrupt):
            run_rounds(again, other)
    assert 1 < other.read_last_saved_round() < config.server.rounds
    assert timeless(run_rounds(again, other)) == timeless(whole)
    assert everything(other) == everything(folder)


@pytest.mark.parametrize("name", ["fedavg", "fedco2"])
def test_rows_of_a_round_that_was_not_completed_are_written_once(name, begin, monkeypatch):
    """The run dies without a word after rows were written and before their round was saved."""
    work, folder = begin(CASES[f"{name} label"])
    run_rounds(work, folder)
    again, other = begin(CASES[f"{name} label"])
    with pytest.raises(KeyboardInterrupt):
        run_rounds(again, other, stop_after(2))
    other.append_rows([{"round": 3, "client": "b"}])
    run_rounds(again, other)
    assert everything(other) == everything(folder)


def test_a_process_that_is_killed_goes_on_from_its_last_checkpoint(begin, monkeypatch):
    work, folder = begin(FEATURE)
    run_rounds(work, folder)
    again, other = begin(FEATURE)

    class Killed(BaseException):
        """Not even the last checkpoint can be written."""

    class Mortal(RunFolder):
        def save_checkpoint(self, state, keep=0):
            if state.message.round == 3:
                raise Killed
            super().save_checkpoint(state, keep)

    with monkeypatch.context() as patch:
        patch.setattr(module, "MIN_CHECKPOINT_INTERVAL", 0.0)
        patch.setattr(module, "MAX_CHECKPOINT_TIME_SHARE", 1e9)
        with pytest.raises(Killed):
            run_rounds(again, Mortal(other.path))
    assert other.read_last_saved_round() == 2
    run_rounds(again, other)
    assert everything(other) == everything(folder)


@pytest.mark.parametrize("config", [CASES["fedco2 feature"], CASES["moon label"]], ids=["feature", "label"])
def test_a_run_is_a_function_of_its_seeds(config, begin):
    one, two, three = begin(config), begin(config), begin(config, seed=2)
    for work, folder in (one, two, three):
        run_rounds(work, folder)
    assert everything(one[1]) == everything(two[1])
    assert (one[1].path / METRICS_FILE).read_bytes() != (three[1].path / METRICS_FILE).read_bytes()


def test_a_finished_run_may_be_continued_for_more_rounds(begin):
    work, folder = begin(FEATURE)
    run_rounds(work, folder)
    short, other = begin(FEATURE, server=ServerSettings(rounds=2))
    run_rounds(short, other)
    run_rounds(replace(short, config=FEATURE), other)
    assert everything(other) == everything(folder)


@pytest.mark.parametrize("name", METHODS)
def test_rows_have_these_keys_and_branches(name, begin):
    work, folder = begin(CASES[f"{name} feature"])
    run_rounds(work, folder)
    rows = folder.load_rows()
    keys = ["round", "client", "split", "branch", "accuracy", "loss", "n"]
    assert all(list(row) == keys for row in rows)
    assert list(dict.fromkeys(row["branch"] for row in rows)) == BRANCHES.get(name, ["fused"])
    found = {(row["round"], row["client"], row["split"], row["branch"]) for row in rows}
    branches = BRANCHES.get(name, ["fused"])
    assert found == {(r, c, s, b) for r in (2, 4) for c in "abc" for s in ("val", "test") for b in branches}
    assert len(rows) == len(found)
    assert {row["n"] for row in rows if row["split"] == "test"} == {30}
    assert all(
        0 <= row["accuracy"] <= 1 and row["accuracy"] * row["n"] % 1 == pytest.approx(0, abs=1e-9) for row in rows
    )


def test_train_rows_on_demand_and_the_rounds_of_the_schedule(begin):
    work, folder = begin(LABEL)
    run_rounds(work, folder)
    assert sorted({row["round"] for row in folder.load_rows()}) == [3, 4, 5]
    assert {row["split"] for row in folder.load_rows()} == {"train", "val", "test"}


def test_the_summary(begin):
    work, folder = begin(LABEL)
    summary = run_rounds(work, folder)
    assert json.loads((folder.path / SUMMARY_FILE).read_text()) == json.loads(json.dumps(summary))
    assert set(summary) == {
        *("finished", "method", "dataset", "title", "standin", "notes", "skipped"),
        *("rounds", "report", "rules", "gap", "bytes", "seconds"),
    }
    assert (summary["finished"], summary["method"], summary["rounds"], summary["report"]) == (
        True,
        "fedco2",
        5,
        "window",
    )
    assert (summary["title"], summary["standin"], summary["notes"]) == ("Toy", False, ["a note"])
    assert list(summary["rules"]) == ["last", "best-by-validation", "window"]
    assert summary["rules"]["window"]["rounds"] == [3, 4, 5]
    for rule, found in summary["rules"].items():
        for name, one in {**found["clients"], "mean": found["mean"]}.items():
            gap = summary["gap"][rule]["mean"] if name == "mean" else summary["gap"][rule]["clients"][name]
            assert gap == one["fused"] - max(one["online"], one["offline"])
    assert set(summary["bytes"]) == {"up", "down"}
    for way in summary["bytes"].values():
        assert way["total"] == way["shared"] + way["bn"] + way["head"] > 0
    assert folder.is_finished


def test_a_rule_that_does_not_apply_is_not_claimed(begin, toy):
    config = replace(FEATURE, evaluation=EvaluationSettings(report="best-by-validation"))
    work, folder = begin(config, toy.build_clients())
    summary = run_rounds(work, folder)
    assert (summary["report"], list(summary["rules"])) == ("last", ["last"])


def test_a_second_interruption_does_not_cost_what_the_first_one_saves(begin, monkeypatch):
    work, folder = begin(FEATURE)
    save = RunFolder.save_checkpoint

    def interrupted(self, state, keep=0):
        signal.raise_signal(signal.SIGINT)
        save(self, state, keep)

    monkeypatch.setattr(RunFolder, "save_checkpoint", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_rounds(work, folder, stop_after(2))
    assert folder.read_last_saved_round() == 2


@pytest.mark.parametrize("window", [0, 1])
def test_testing_only_what_may_be_reported_reports_the_same(window, begin):
    """Also when the run is stopped: whether a round is the best so far is read off the rows before it."""
    rounds, always = 7, EvaluationSettings(report="best-by-validation", window=window, window_every=1)
    config = replace(FEATURE, server=ServerSettings(rounds=rounds), evaluation=always)
    work, folder = begin(config)
    whole = run_rounds(work, folder)
    rows = {split: [row for row in folder.load_rows() if row["split"] == split] for split in ("val", "test")}

    again, other = begin(replace(config, evaluation=replace(always, test="chosen")))
    with pytest.raises(KeyboardInterrupt):
        run_rounds(again, other, stop_after(2))
    assert run_rounds(again, other)["rules"] == whole["rules"]
    assert [row for row in other.load_rows() if row["split"] == "val"] == rows["val"]
    tested = {row["round"] for row in other.load_rows() if row["split"] == "test"}
    means = [fmean(row["accuracy"] for row in rows["val"] if row["round"] == n and row["branch"] == "fused")
             for n in range(1, rounds + 1)]  # fmt: skip
    better = {n for n in range(1, rounds + 1) if all(means[n - 1] > means[k] + 1e-9 for k in range(n - 1))}
    assert tested == better | {rounds, rounds - window}
    assert len(tested) < rounds
    assert [row for row in other.load_rows() if row["split"] == "test"] == [
        r for r in rows["test"] if r["round"] in tested
    ]


def test_bytes_are_those_of_all_rounds(begin):
    work, folder = begin(LABEL)
    seen = []
    summary = run_rounds(work, folder, [OnRoundEnd(seen.append)])
    assert summary["bytes"]["up"]["total"] == sum(progress.communication.up.total for progress in seen)
    assert [progress.round for progress in seen] == [1, 2, 3, 4, 5]
    assert all(len(progress.losses) == 2 and progress.seconds > 0 for progress in seen)
    assert [bool(progress.scores) for progress in seen] == [False, False, True, True, True]


def test_a_loss_that_is_no_number_ends_the_run_with_what_was_complete(begin):
    work, folder = begin(replace(FEATURE, local=LocalSettings(lr=1e38, batch_size=2)), method=METHODS["fedavg"]())
    words = r"client b, round 1: the loss is (nan|inf); lower local\.lr \(1e\+38\)"
    with pytest.raises(TrainingError, match=words) as e:
        run_rounds(work, folder)
    assert e.value.exit_code == 1
    assert not (folder.path / LAST_CHECKPOINT).exists()
    assert folder.load_rows() == []


def test_rounds_before_the_loss_is_lost_are_saved(begin, monkeypatch):
    work, folder = begin(FEATURE)
    calls = []

    def spoil(trainer, data, personal, message, *, adapt=ClientTrainer.train_locally):
        loss = adapt(trainer, data, personal, message)
        calls.append(message.round)
        return loss * float("nan") if message.round == 2 else loss

    with monkeypatch.context() as patch:
        patch.setattr("fedtrain.federated.client.ClientTrainer.train_locally", spoil)
        with pytest.raises(TrainingError, match="client b, round 3: the loss is nan"):
            run_rounds(work, folder)
    assert (folder.read_last_saved_round(), folder.is_finished) == (2, False)
    assert {row["round"] for row in folder.load_rows()} == {2}
    whole, other = begin(FEATURE)
    run_rounds(whole, other)
    run_rounds(work, folder)
    assert everything(folder) == everything(other)


def test_a_network_ruined_by_the_last_step_is_not_evaluated_into_the_records(begin, toy):
    """One batch, one step: the loss before it is finite, after it the network overflows."""
    clients = [ClientData(c.name, c.train, c.test) for c in toy.build_clients()]
    local = LocalSettings(lr=1e25, batch_size=64)
    work, folder = begin(
        replace(FEATURE, local=local, evaluation=EvaluationSettings(every=1)), clients, method=METHODS["fedavg"]()
    )
    with pytest.raises(TrainingError, match=r"client b, round 1: the test loss of fused is (nan|inf); lower local\.lr"):
        run_rounds(work, folder)
    assert folder.load_rows() == []


def test_a_checkpoint_of_another_run_is_refused(begin):
    work, folder = begin(CASES["fedavg feature"])
    run_rounds(work, folder)
    for name, clients in (("fedbn feature", None), ("fedavg feature", [replace(work.federation.clients[0], name="z")])):
        other, place = begin(CASES[name], clients)
        (place.path / LAST_CHECKPOINT).write_bytes((folder.path / LAST_CHECKPOINT).read_bytes())
        with pytest.raises(InputError, match=r"last\.safetensors: of another network or other clients"):
            run_rounds(other, place)


def test_an_experiment_is_refused_before_it_begins(begin, toy):
    first, *others = toy.build_clients()
    work, _ = begin(FEATURE, [first, *others])
    work.validate()
    none = Samples(first.train.inputs[:0], first.train.labels[:0])
    for broken, words in (
        (replace(first, train=none), "client b: it has no training samples"),
        (replace(first, test=none), "client b: it has no test samples"),
        (replace(first, train=Samples(first.train.inputs[:1], first.train.labels[:1])), "batch norm cannot train"),
    ):
        with pytest.raises(InputError, match=words):
            begin(FEATURE, [*others, broken])[0].validate()


def test_metrics_that_were_shortened_are_noticed(begin):
    work, folder = begin(FEATURE)
    with pytest.raises(KeyboardInterrupt):
        run_rounds(work, folder, stop_after(2))
    (folder.path / METRICS_FILE).write_bytes(b"")
    with pytest.raises(InputError, match="shorter than when the checkpoint was written"):
        run_rounds(work, folder)


def test_the_global_generator_is_neither_read_nor_moved(begin):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    work, folder = begin(FEATURE)
    run_rounds(work, folder)
    assert torch.equal(torch.get_rng_state(), before)
