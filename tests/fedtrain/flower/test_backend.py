"""The server's side of Flower on a grid that does as it is told: nodes die, come back, fail, lie or never answer."""

from __future__ import annotations

import math
from contextlib import suppress
from types import SimpleNamespace

import pytest
import small_experiments
import torch

flwr = pytest.importorskip("flwr", reason="Flower is not installed: make test-all")

from flwr.app import Error, RecordDict  # noqa: E402
from flwr.supercore.task_identity import TaskIdentity  # noqa: E402
from scripted_grid import CLIENTS, CRASHED, UNAVAILABLE, UNLOADABLE, Dead, Grid  # noqa: E402

from cli.console import make_console  # noqa: E402
from cli.train.view import show_summary  # noqa: E402
from fedtrain.data.source import load_dataset  # noqa: E402
from fedtrain.errors import TrainingError  # noqa: E402
from fedtrain.flower import client_manager, exchange  # noqa: E402
from fedtrain.flower.records import build_record, parse_record  # noqa: E402
from fedtrain.flower.server_app import run_server  # noqa: E402
from fedtrain.flower.server_plan import ServerPlan  # noqa: E402
from fedtrain.report.run_figures import draw_run_figures  # noqa: E402
from fedtrain.run import Run  # noqa: E402
from fedtrain.runs.experiment import build_experiment  # noqa: E402
from fedtrain.runs.folder import METRICS_FILE, RunFolder  # noqa: E402
from fedtrain.runs.loop import run_rounds  # noqa: E402
from theory.errors import InputError  # noqa: E402


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """No pauses, no figures; messages may be made outside of an app."""
    monkeypatch.setattr(client_manager, "POLL_INTERVAL", 0.0)
    monkeypatch.setattr(client_manager, "DISCOVERY_INTERVAL", 0.0)
    monkeypatch.setattr(client_manager, "GRACE_PERIOD", 0.0)
    monkeypatch.setattr("fedtrain.report.run_figures.draw_run_figures", lambda folder, summary: [])
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def go(grid, case, root, *, least=CLIENTS, patience=60.0, callbacks=(), **changes):
    config = small_experiments.experiment(case, **changes).config
    plan = ServerPlan(config, RunFolder(root / "run"), CLIENTS, least, patience, "test")
    return run_server(grid, plan, callbacks)


@pytest.fixture
def alone(tmp_path):
    """The same in one process."""

    def made(case, **changes):
        work, folder = small_experiments.experiment(case, **changes), RunFolder(tmp_path / "alone")
        folder.begin(work.config, {})
        run_rounds(work, folder)
        return folder

    return made


def agree(one: RunFolder, other: RunFolder) -> None:
    a, b = one.load_checkpoint(), other.load_checkpoint()
    assert (one.path / METRICS_FILE).read_bytes() == (other.path / METRICS_FILE).read_bytes()
    assert small_experiments.bits(a.message.shared) == small_experiments.bits(b.message.shared)
    assert {k: small_experiments.bits(v) for k, v in a.message.peers.items()} == {
        k: small_experiments.bits(v) for k, v in b.message.peers.items()
    }
    assert a.communication == b.communication


def test_one_message_a_round_with_the_evaluation_in_it(tmp_path, alone):
    grid = Grid(tmp_path)
    go(grid, "fedco2 all", tmp_path)
    turns = [(note["round"], note["train"], note["splits"]) for _, kind, note in grid.log if kind == "train"]
    each = [(0, True, []), (1, True, []), (2, True, ["val", "test"]), (3, False, ["val", "test"])]
    assert sorted(turns, key=str) == sorted(each * CLIENTS, key=str)
    agree(RunFolder(tmp_path / "run"), alone("fedco2 all"))


def test_a_server_that_remembers_gives_the_bits_of_one_process(tmp_path, alone):
    go(Grid(tmp_path), "fedbn fedyogi", tmp_path)
    agree(RunFolder(tmp_path / "run"), alone("fedbn fedyogi"))
    assert RunFolder(tmp_path / "run").load_checkpoint().server.keys() == {"mean", "square"}


@pytest.mark.parametrize("case", ["fedco2 float16", "fedco2 few bytes"])
def test_answers_in_fewer_bytes_give_the_bits_of_one_process(case, tmp_path, alone):
    go(Grid(tmp_path), case, tmp_path)
    agree(RunFolder(tmp_path / "run"), alone(case))


def test_a_node_that_begins_with_other_weights_says_so(tmp_path):
    """It would take what is encoded as a difference for another network."""
    grid = Grid(tmp_path)

    def tamper(grid, place, request):
        if request.metadata.message_type == "train" and place == 0:
            note, entries = parse_record(request.content)
            request.content = build_record({**note, "start": "another"}, entries)

    grid.tamper = tamper
    with pytest.raises(InputError, match="client mnist: this node draws other weights to begin with than the server"):
        go(grid, "fedco2 few bytes", tmp_path, server={"participation": 1.0})


def test_an_answer_that_no_codec_makes_is_refused(tmp_path):
    grid = Grid(tmp_path)

    def spoilt(place, request, records):
        if request.metadata.message_type != "train" or place != 1:
            return records
        note, entries = parse_record(records)
        for name, value in entries.items():
            if name.endswith(":scale"):
                value.fill_(float("nan"))
        return build_record(note, entries)

    grid.spoilt = spoilt
    with pytest.raises(TrainingError, match=r"client svhn.*refused, .* has a scale that is negative or not finite"):
        go(grid, "fedco2 few bytes", tmp_path, server={"participation": 1.0})


def test_test_data_that_wait_for_a_better_round_are_asked_for_without_training_again(tmp_path, monkeypatch):
    """Every round is the best so far: the second request of a round tests what its clients had before they trained."""
    monkeypatch.setattr("fedtrain.runs.loop.find_best_round", lambda rows: rows[-1]["round"])
    changes = {"data": {"val_size": 10}, "evaluation": {"every": 1, "test": "chosen"}}
    grid = Grid(tmp_path)
    go(grid, "fedco2 all", tmp_path, **changes)
    turns = {(note["round"], note["train"], *note["splits"]) for _, kind, note in grid.log if kind == "train"}
    each = {(n, *what) for n in (1, 2) for what in ((True, "val"), (False, "test"))}
    assert turns == {(0, True), *each, (3, False, "val", "test")}
    config, folder = small_experiments.experiment("fedco2 all", **changes).config, RunFolder(tmp_path / "alone")
    folder.begin(config, {})
    run_rounds(build_experiment(config, load_dataset(config.data)), folder)
    agree(RunFolder(tmp_path / "run"), folder)


def test_what_is_personal_stays_on_the_node(tmp_path):
    grid, sent = Grid(tmp_path), []
    grid.spoilt = lambda place, request, records: sent.append(parse_record(records)[1]) or records
    go(grid, "fedbn all", tmp_path)
    personal = small_experiments.experiment("fedbn all").build_client_trainer().personal_names
    names = {key.split("/", 2)[2] for entries in sent for key in entries}
    assert personal
    assert names
    assert not names & personal
    assert not RunFolder(tmp_path / "run").load_checkpoint().client_states


def test_nothing_is_left_to_flower_to_hand_back(tmp_path):
    """It would do so in one request of any size, and cut it off after five seconds."""
    grid = Grid(tmp_path)
    go(grid, "fedco2 all", tmp_path)
    assert [*grid.memory.values()] == [RecordDict()] * CLIENTS


def test_a_node_that_is_killed_in_its_turn_and_comes_back_with_another_number(tmp_path, alone):
    grid = Grid(tmp_path)

    def tamper(grid, place, request):
        note = parse_record(request.content)[0]
        if request.metadata.message_type == "train" and (place, note["round"]) == (2, 1):
            grid.tamper = None
            grid.kill(2)
            grid.start(2)
            raise Dead

    grid.tamper = tamper
    go(grid, "fedco2 all", tmp_path)
    assert len(grid.listed) == CLIENTS + 1  # the dead one was never missed
    agree(RunFolder(tmp_path / "run"), alone("fedco2 all"))


@pytest.mark.parametrize("forgets", [True, False])
def test_a_turn_whose_answer_is_lost_is_taken_again_from_what_was_kept_before(forgets, tmp_path, alone):
    """For the server it did not happen, whether the node died with its answer or remembers it well."""
    grid, lost = Grid(tmp_path), []

    def spoilt(place, request, records):
        note = parse_record(request.content)[0]
        if request.metadata.message_type == "train" and (place, note["round"], lost) == (3, 2, []):
            lost.append(1)
            if forgets:
                grid.start(3, grid.kill(3, missed=True))  # with a key, a node keeps its number
            return Error(UNAVAILABLE, "node unavailable")
        return records

    grid.spoilt = spoilt
    go(grid, "fedbn all", tmp_path)
    assert lost
    agree(RunFolder(tmp_path / "run"), alone("fedbn all"))


def test_a_client_that_never_answers_is_left_out_if_enough_do(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("fedtrain.report.run_figures.draw_run_figures", draw_run_figures)  # which has nothing to draw
    grid = Grid(tmp_path)

    def tamper(grid, place, request):
        if request.metadata.message_type == "train" and place == 4:
            grid.kill(4)
            raise Dead

    grid.tamper = tamper
    summary = go(grid, "fedavg all", tmp_path, least=4, patience=0.5)
    assert [(one["round"], one["client"]) for one in summary["skipped"]] == [(n, "mnist_m") for n in (1, 2, 3)]
    assert "no answer within 0.5 s" in summary["skipped"][0]["reason"]
    assert summary["rules"] == {}  # a mean over four of five would be another number
    assert summary["rounds"] == 3
    show_summary(make_console(), Run(tmp_path / "run"))
    assert "No evaluation was complete" in capsys.readouterr().out


def test_an_evaluation_that_was_not_complete_is_not_taken_for_the_last(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("fedtrain.report.run_figures.draw_run_figures", draw_run_figures)
    grid = Grid(tmp_path)

    def tamper(grid, place, request):
        if request.metadata.message_type == "train" and place == 4 and parse_record(request.content)[0]["round"] == 3:
            grid.kill(4)
            raise Dead

    grid.tamper = tamper
    summary = go(grid, "fedavg all", tmp_path, least=4, patience=0.5)
    assert (summary["rounds"], summary["rules"]["last"]["round"]) == (3, 2)
    show_summary(make_console(), Run(tmp_path / "run"))
    assert "after round 2 of 3, the last in which all clients were evaluated" in capsys.readouterr().out


def test_looks_for_answers_become_rarer(monkeypatch):
    """At first a short turn is not kept waiting, later a long one costs the SuperLink little: 2 s at most."""
    now, pauses = [0.0], []

    def sleep(seconds):
        pauses.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(client_manager, "POLL_INTERVAL", 0.05)
    monkeypatch.setattr(client_manager, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    manager = client_manager.ClientManager(grid=None, node_query={})
    for _ in manager.poll():
        if now[0] > 100:
            break
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[19], pauses[-1]) == (0.05, 0.05, 2.0)
    assert len(pauses) < 150


def test_what_train_refuses_is_refused_here(tmp_path):
    with pytest.raises(InputError, match=r"server\.peers is 3, and FedAvg shows no heads"):
        go(Grid(tmp_path), "fedavg all", tmp_path, server={"peers": 3})
    assert not (tmp_path / "run").exists()


def test_without_enough_clients_the_run_waits(tmp_path, monkeypatch, alone):
    """Nothing is given up: the client that is away for longer than the patience comes back, and all is as ever."""
    grid, waited = Grid(tmp_path), []

    def tamper(grid, place, request):
        if request.metadata.message_type == "train" and place == 4 and not waited:
            waited.append(0)
            grid.kill(4)
            raise Dead

    def looking(numbers, honest=grid.pull_messages):
        if waited:
            waited[0] += 1
            if waited[0] == 300:
                grid.start(4)
        return honest(numbers)

    grid.tamper, grid.pull_messages = tamper, looking
    go(grid, "fedavg all", tmp_path, least=5, patience=0.01)
    assert waited[0] > 300
    agree(RunFolder(tmp_path / "run"), alone("fedavg all"))


def nan(note, entries):
    name = next(key for key in entries if key.startswith("0/shared"))
    entries[name] = torch.full_like(entries[name], math.nan)


def shape(note, entries):
    name = next(key for key in entries if key.startswith("0/shared"))
    entries[name] = entries[name].reshape(-1)[:1]


def dtype(note, entries):
    name = next(key for key in entries if key.startswith("0/shared"))
    entries[name] = entries[name].double()


def fewer(note, entries):
    entries.pop(next(iter(entries)))


def more(note, entries):
    entries["0/shared/another"] = torch.zeros(2)


def loss(note, entries):
    note["answers"][0]["loss"] = math.inf


def examples(note, entries):
    note["answers"][0]["num_examples"] = -3


def name(note, entries):
    note["answers"][0]["client"] = "mnist"


def none(note, entries):
    note["answers"] = []


LIES = {
    nan: "is not finite",
    shape: r"is torch.float32 \(1,\), not torch.float32",
    dtype: "is torch.float64",
    fewer: "its entries are others",
    more: "its entries are others: another",
    loss: "its loss is inf",
    examples: "it has -3 examples",
    name: "it speaks for mnist",
    none: "its answer is none of fedco2's",
}


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
def test_an_answer_that_would_spoil_the_mean_is_refused_and_named(lie, tmp_path):
    def spoilt(place, request, records):
        if request.metadata.message_type != "train" or place != 1:
            return records
        note, entries = parse_record(records)
        if note["answers"]:
            lie(note, entries)
        return build_record(note, entries)

    grid = Grid(tmp_path)
    grid.spoilt = spoilt
    with pytest.raises(TrainingError, match=f"client svhn.*{LIES[lie]}"):
        go(grid, "fedbn all", tmp_path)
    grid = Grid(tmp_path / "again")
    grid.spoilt = spoilt
    summary = go(grid, "fedbn all", tmp_path / "again", server={"on_client_failure": "skip"})
    assert {one["client"] for one in summary["skipped"]} == {"svhn"}
    assert len(summary["skipped"]) == 3


def test_an_app_that_fails_is_told_in_its_own_words(tmp_path):
    grid = Grid(tmp_path)

    def tamper(grid, place, request):
        if request.metadata.message_type == "train" and place == 0:
            raise ValueError("no such thing")

    grid.tamper = tamper
    with pytest.raises(TrainingError, match=r"client mnist: its app failed .*no such thing"):
        go(grid, "fedavg all", tmp_path)


def failing(place, kind, code, reason):
    def spoilt(at, request, records):
        return Error(code, reason) if (at, request.metadata.message_type) == (place, kind) else records

    return spoilt


def test_a_turn_that_crashes_again_and_again_is_given_up(tmp_path):
    grid = Grid(tmp_path)
    grid.spoilt = failing(1, "train", CRASHED, "killed")
    with pytest.raises(TrainingError, match=r"client svhn: its app failed \(killed\)"):
        go(grid, "fedavg all", tmp_path)
    assert len([1 for place, kind, _ in grid.log if (place, kind) == (1, "train")]) == exchange.MAX_CRASHES
    grid = Grid(tmp_path / "again")
    grid.spoilt = failing(1, "train", CRASHED, "killed")
    summary = go(grid, "fedavg all", tmp_path / "again", server={"on_client_failure": "skip"})
    assert [one["client"] for one in summary["skipped"]] == ["svhn"] * 3


def test_a_node_that_cannot_be_a_client_is_told_if_too_few_come(tmp_path):
    grid = Grid(tmp_path)
    grid.spoilt = failing(2, "query", UNLOADABLE, "no module named fedtrain")
    with pytest.raises(TrainingError, match=r"node 102: its app failed \(no module named fedtrain\)"):
        go(grid, "fedavg all", tmp_path)


def test_a_node_too_many_does_not_matter(tmp_path, alone):
    grid = Grid(tmp_path)
    grid.start(CLIENTS)  # there is no such client
    go(grid, "fedavg all", tmp_path)
    agree(RunFolder(tmp_path / "run"), alone("fedavg all"))


SCORES = {
    "none": lambda scores: scores.clear(),
    "too good": lambda scores: scores["svhn"]["test"]["fused"].update(accuracy=1.5),
    "no number": lambda scores: scores["svhn"]["test"]["fused"].update(accuracy=math.nan),
    "of nothing": lambda scores: scores["svhn"]["test"]["fused"].update(n=0),
    "of no branch": lambda scores: scores["svhn"]["test"].pop("fused"),
    "of another split": lambda scores: scores["svhn"].update(train=scores["svhn"]["test"]),
    "a word": lambda scores: scores["svhn"]["test"]["fused"].update(accuracy="good"),
}


@pytest.mark.parametrize("lie", SCORES)
def test_scores_that_are_none_are_refused(lie, tmp_path):
    def spoilt(place, request, records):
        note, entries = parse_record(records)
        if place == 1 and note.get("scores"):
            SCORES[lie](note["scores"])
        return build_record(note, entries)

    grid = Grid(tmp_path)
    grid.spoilt = spoilt
    with pytest.raises(TrainingError, match="client svhn: its scores are none"):
        go(grid, "fedbn all", tmp_path)


def test_a_run_goes_on_without_a_client_that_is_gone_for_good(tmp_path):
    """If so many are enough: what the client said of itself when the run began is remembered."""
    grid = Grid(tmp_path)
    with suppress(KeyboardInterrupt):
        go(grid, "fedavg all", tmp_path, callbacks=small_experiments.stop_after(1))
    grid.kill(3, missed=True)
    summary = go(grid, "fedavg all", tmp_path, least=4, patience=0.2)
    assert summary["finished"]
    assert {(one["round"], one["client"]) for one in summary["skipped"]} == {(2, "synthdigits"), (3, "synthdigits")}


def test_clients_that_do_not_come_are_said(tmp_path, monkeypatch):
    monkeypatch.setattr("fedtrain.flower.server_app.CLIENT_WAIT_TIMEOUT", 0.2)
    grid = Grid(tmp_path)
    grid.kill(0)
    with pytest.raises(InputError, match=r"5 clients are wanted and 4 came \(.*\); start their nodes"):
        go(grid, "fedavg all", tmp_path)


def test_a_server_that_was_stopped_goes_on_from_its_checkpoint(tmp_path, alone):
    """Nodes are ahead of the checkpoint, and one of them forgot all that was not on its disk."""
    for case in ("fedco2 all", "fedco2 both"):
        root = tmp_path / case
        grid = Grid(root)
        for stop in (1, 2):
            with suppress(KeyboardInterrupt):
                go(grid, case, root, callbacks=small_experiments.stop_after(stop))
            assert RunFolder(root / "run").read_last_saved_round() == stop
            grid.memory = {number: RecordDict() for number in grid.nodes}
        go(grid, case, root)
        work, folder = small_experiments.experiment(case), RunFolder(root / "alone")
        folder.begin(work.config, {})
        run_rounds(work, folder)
        agree(RunFolder(root / "run"), folder)


def test_a_server_that_is_stopped_while_clients_are_evaluated_and_train_ahead_of_it(tmp_path, alone):
    """The checkpoint is of the round before: what was kept then must still be there."""
    grid = Grid(tmp_path)

    def tamper(grid, place, request):
        if request.metadata.message_type == "train" and (place, parse_record(request.content)[0]["round"]) == (4, 2):
            grid.tamper = None
            raise KeyboardInterrupt

    grid.tamper = tamper
    with pytest.raises(KeyboardInterrupt):
        go(grid, "fedbn all", tmp_path)
    assert RunFolder(tmp_path / "run").read_last_saved_round() == 1
    grid.memory = {number: RecordDict() for number in grid.nodes}
    go(grid, "fedbn all", tmp_path)
    agree(RunFolder(tmp_path / "run"), alone("fedbn all"))


def test_a_node_without_what_it_kept_is_refused(tmp_path):
    grid = Grid(tmp_path)
    with suppress(KeyboardInterrupt):
        go(grid, "fedbn all", tmp_path, callbacks=small_experiments.stop_after(2))
    grid.memory = {number: RecordDict() for number in grid.nodes}
    for path in (tmp_path / "node 2").rglob("*.safetensors"):
        path.unlink()
    with pytest.raises(InputError, match="client usps: client usps: what it kept after round 2 is not in"):
        go(grid, "fedbn all", tmp_path)


def test_a_node_keeps_no_more_than_is_needed(tmp_path):
    go(Grid(tmp_path), "fedbn some", tmp_path)
    for place in range(CLIENTS):
        assert 1 <= len([*(tmp_path / f"node {place}").rglob("*.safetensors")]) <= 3
