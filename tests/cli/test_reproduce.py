"""``fedco2 reproduce`` as a user meets it."""

from __future__ import annotations

import csv
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import click
import pytest

from cli.main import main
from cli.reproduce import reproduce
from cli.train import train
from cli.train.run import get_keywords
from fedtrain.reproduction.jobs import Job
from fedtrain.reproduction.paper_item import PAPER_ITEM_NAMES
from fedtrain.reproduction.plan import build_plan, make_dataset_finder
from fedtrain.reproduction.request import Request
from fedtrain.runs.folder import RunFolder
from fedtrain.training import plan

ROOT = Path(__file__).resolve().parents[2]
TINY = ["--data", "standin", "--set", "model.name=two-layer", "--set", "model.width=8", "--set", "data.train_size=20"]
ONE = ["T7", "--methods", "fedavg", "--seeds", "1", *TINY]


@pytest.fixture
def ask(capsys, monkeypatch, tmp_path):
    """Runs the command away from the source tree; (code, out, err)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("FEDCO2_DATA", str(tmp_path / "no data"))

    def run(*arguments):
        code = main(["reproduce", *map(str, arguments)])
        out = capsys.readouterr()
        return code, out.out, out.err

    return run


def test_the_list_has_everything_in_the_papers_order(ask):
    code, out, err = ask("--list", "--json")
    items = json.loads(out)
    assert (code, err) == (0, "")
    assert [item["name"] for item in items] == list(PAPER_ITEM_NAMES)
    assert all(item["estimated_seconds"] > 0 and item["runs"] > 0 for item in items)
    t7 = items[PAPER_ITEM_NAMES.index("T7")]
    assert t7["data"] == {"digits": "stand-in"}
    assert (t7["rounds"], t7["paper_rounds"], t7["seeds"], t7["runs"]) == ([20], [300], 5, 45)


@pytest.mark.parametrize(("columns", "name"), [(80, "cifar10*"), (140, "CIFAR-10*")])
def test_the_list_for_people(ask, terminal, columns, name):
    terminal(columns)
    code, out, _ = ask("--list", "T1", "T7", "F4", "F7")
    assert code == 0
    assert "20 of 300" in out
    assert name in out
    assert "* stand-in images" in out
    assert "an estimate" in out
    assert max(map(len, out.splitlines())) <= columns
    assert "Office-Caltech10," in out.split()  # no name is broken


def test_a_dry_run_shows_every_command_and_writes_nothing(ask, tmp_path):
    code, out, _ = ask("T7", "F2", "--methods", "fedavg,fedbn", "--seeds", "2", "--dry-run", "--jobs", "2")
    *commands, last = out.splitlines()
    assert code == 0
    assert len(commands) == len(set(commands)) == 8  # four of Table 7, of which Figure 2 has all, and four on Office
    assert all(line.startswith("fedco2 train --preset") for line in commands)
    assert last.startswith("# dry run: 8 of 8 runs")
    assert "roughly" in last
    assert list(tmp_path.iterdir()) == []
    told = json.loads(ask("T7", "--dry-run", "--json")[1])
    assert len(told) == 45
    assert not told[0]["finished"]
    assert all(one["estimated_seconds"] > 0 for one in told)


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("name", ["T3", "T10", "F3", "F6", "F7"])
def test_a_command_by_hand_and_a_call_are_the_same_run(name, legacy, tmp_path):
    request = Request(source="standin", seeds="3,", legacy=legacy, rounds=50)
    look = make_dataset_finder(request)
    for cell in build_plan(name, request, look).run_specs.values():
        options = train.make_context("train", shlex.split(shlex.join(cell.build_arguments()))).params
        config = plan(**get_keywords(options), load_images=False).config
        assert replace(config, machine=replace(config.machine, threads=None)) == cell.config
        keywords = Job(cell, tmp_path / "run").build_keywords(1)
        config = plan(**json.loads(json.dumps(keywords)), load_images=False).config
        assert replace(config, machine=replace(config.machine, threads=None)) == cell.config


def test_runs_are_made_one_that_fails_is_named_and_the_same_command_mends_it(ask, tmp_path):
    both = ["T7", "--methods", "fedavg,fedbn", "--seeds", "1", *TINY, "--rounds", "1", "--jobs", "2", "--out", "mine"]
    dry = json.loads(ask(*both, "--dry-run", "--json")[1])
    bad = next(Path(one["folder"]) for one in dry if "fedavg" in one["folder"])
    bad.mkdir(parents=True)
    (bad / "metrics.jsonl").write_text("somebody else's")
    code, out, err = ask(*both)
    assert code == 1
    assert f"failed: {bad}: error: {bad} holds metrics.jsonl already" in err
    assert str(bad.with_name(f"{bad.name}.log")) in err
    assert "1 of 2 runs" in out.replace("\n", " ")
    assert "stand-in images" in out
    text = (tmp_path / "mine" / "T7" / "table.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    assert {row["row"] for row in rows if row["ours"]} == {"FedBN"}

    (bad / "metrics.jsonl").unlink()
    code, out, _ = ask(*both)
    assert code == 0
    assert "1 of 2 runs" not in out
    told = json.loads((tmp_path / "mine" / "T7" / "table.json").read_text(encoding="utf-8"))
    (panel,) = told["panels"]
    assert panel["reduced"][:3] == ["1 of 300 rounds", "1 of 5 seeds", "Digits stand-in images"]
    assert [row["label"] for row in panel["rows"]] == ["FedAvg", "FedBN"]

    code, out, err = ask(*both, "--json")  # all is there: nothing runs, and a folder is used where it lies
    assert (code, err, json.loads(out)["failed"]) == (0, "", [])
    assert json.loads(out)["experiments"][0] == told
    code, out, err = ask(*both[:-1], "other", "--adopt", "mine/runs", "--json")
    assert json.loads(out)["experiments"][0] == told
    assert not (tmp_path / "other" / "runs").exists()

    (tmp_path / "mine" / "T7" / "table.md").write_text("notes of my own")
    code, _, err = ask(*both)
    assert code == 2
    assert "not overwritten" in err


def test_only_what_is_finished_is_laid_out(ask, monkeypatch, tmp_path):
    monkeypatch.setattr("fedtrain.reproduction.reproduce.run_jobs", lambda *_: pytest.fail("a run was begun"))
    code, out, err = ask(*ONE, "--only-finished")
    assert (code, err) == (0, "")
    assert "0 of 1 runs" in out
    assert "FedAvg" in out
    assert (tmp_path / "reproduce" / "T7" / "table.md").exists()
    assert not (tmp_path / "reproduce" / "runs").exists()


def test_killed_in_the_middle_the_same_command_goes_on(ask, tmp_path):
    rounds = 300
    command = [*ONE, "--rounds", str(rounds), "--eval-every", "100", "--out", "kept"]
    program = subprocess.Popen(
        [sys.executable, "-m", "cli", "reproduce", *command], cwd=tmp_path, stderr=subprocess.DEVNULL
    )
    wait_for(lambda: any("round  20/" in log.read_text() for log in (tmp_path / "kept").glob("runs/*.log")))
    os.kill(program.pid, signal.SIGKILL)
    program.wait()
    (folder,) = (log.with_suffix("") for log in (tmp_path / "kept" / "runs").glob("*.log"))
    wait_for(lambda: not (folder / ".lock").exists())  # the run itself has noticed, saved and gone
    saved = RunFolder(folder).read_last_saved_round()
    assert 20 <= saved < rounds
    assert not RunFolder(folder).is_finished
    assert "--resume" in ask(*command, "--dry-run")[1]
    code, out, _ = ask(*command)
    assert code == 0
    assert "FedAvg" in out
    manifest = json.loads((folder / "manifest.json").read_text())
    assert [one["round"] for one in manifest["resumed"]] == [saved]


def wait_for(what, seconds=60):
    limit = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < limit
        time.sleep(0.05)


def test_interrupted_it_says_how_to_go_on(ask, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedtrain.reproduction.reproduce.run_jobs", interrupted)
    code, out, err = ask(*ONE)
    assert (code, out) == (130, "")
    assert "interrupted after 0 of 1 runs" in err
    assert "go on with: fedco2" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "name tables or figures"),
        (["T14"], "unknown table or figure 'T14'"),
        (["t6"], "T6 has nothing to be run for"),
        (["T7", "--seeds", "x"], "seeds 'x': say how many"),
        (["T7", "--methods", "fedbm"], "did you mean 'fedbn'"),
        (["T3", "--dataset", "office"], "cannot be run on office"),
        (["T7", "--set", "local.lrr=1"], "did you mean 'lr'"),
        (["T7", "--adopt", "nowhere"], "no run is here"),
        (["T7", "--paper", "nowhere.toml"], "cannot be read"),
        (["T7", "--rounds", "0"], "--rounds"),
        (["T7", "--set", "seed=3"], "seed is not for other settings: use seeds for it (--seeds)"),
        (["T7", "--set", "data.source=standin"], "data.source is not for other settings: use data for it (--data)"),
        (
            ["T7", "--set", "method.name=fedavg"],
            "method.name is not for other settings: use methods for it (--methods)",
        ),
        (["T7", "--set", "server.rounds=3"], "server.rounds is not for other settings: use rounds for it (--rounds)"),
        (["F2", "--rule", "last"], "rule last: F2 shows rounds as they come; leave it out (--rule)"),
        (["T7", "--rule", "best-by-validation"], "use last, or leave it out (--rule)"),
    ],
)
def test_what_is_refused(ask, arguments, words):
    code, out, err = ask(*arguments)
    assert (code, out) == (2, "")
    assert words in err


def test_a_file_of_the_papers_numbers_may_hold_more_than_is_shown(ask, tmp_path):
    entry = '[[{}]]\nrow = "FedAvg"\nsource = "read by me"\nvalues = {{ {} = 50 }}\n'
    text = "".join(entry.format(*each) for each in (("T1", "amazon"), ("T7", "mnist"), ("F2", "100")))
    (tmp_path / "paper.toml").write_text(text)
    asked = ["T7", "F2", "--dataset", "digits", "--rounds", "50", "--dry-run", "--paper", "paper.toml"]
    assert ask(*asked)[0] == 0
    (tmp_path / "paper.toml").write_text(text.replace("100", "101"))
    code, _, err = ask(*asked)
    assert code == 2
    assert "F2 has no column '101'" in err


def test_real_data_that_are_not_there(ask):
    code, _, err = ask("T7", "--data", "real")
    assert code == 3
    assert "fedco2 data get digits" in err


def test_every_option_has_a_help_text():
    with click.Context(reproduce) as context:
        assert all(
            option.get_help_record(context)[1] for option in reproduce.params if isinstance(option, click.Option)
        )
