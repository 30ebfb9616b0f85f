"""``fedco2 train --backend distributed`` as a user meets it: on processes of its own, or of torchrun."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.main import main
from fedtrain.backends.distributed import launch
from fedtrain.errors import TrainingError
from fedtrain.runs.folder import METRICS_FILE, RunFolder

ROOT = Path(__file__).resolve().parents[2]
TINY = ["--set", "model.name=two-layer", "--set", "model.width=8", "--set", "data.percent=0.02", "--threads", "1"]
TRAIN = ["train", "--dataset", "digits", "--data", "standin", *TINY]
PARTS = ["--method", "fedbn", "--rounds", "3", "--participation", "0.6", "--json"]
LIMIT = 300
"""Seconds; a run takes a twentieth of it on a quiet machine."""


def start(command, **more):
    """A process that leads a group of its own, as one that a shell has started."""
    environment = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "default", **more}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def fedco2(*arguments):
    return start([sys.executable, "-m", "cli", *map(str, arguments)])


def ended(process):
    """Exit code, stdout, stderr; nothing of its group is left."""
    try:
        out, err = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert not group(process.pid)
    return process.returncode, out, err


def group(leader):
    """The processes of a group that live."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                state, _, pgrp = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
            except OSError:  # it has ended just now
                continue
            if int(pgrp) == leader and state != "Z":
                found.append(int(entry.name))
    return found


@pytest.fixture(scope="module")
def in_turn(tmp_path_factory):
    """A run in one process, to compare others with; without figures, which take longer than all the rest."""
    folder = tmp_path_factory.mktemp("in turn") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedtrain.report.run_figures.draw_run_figures", lambda folder, summary: [])
        assert main([*TRAIN, *PARTS, "--backend", "serial", "--out", str(folder)]) == 0
    return folder


def check(out, err, folder, in_turn):
    """One summary and not a word more, and the rows of one process."""
    assert err == ""
    assert json.loads(out)["finished"] is True
    assert (folder / METRICS_FILE).read_bytes() == (in_turn / METRICS_FILE).read_bytes()
    summaries = [json.loads((each / "summary.json").read_text()) | {"seconds": 0} for each in (folder, in_turn)]
    assert summaries[0] == summaries[1]


def test_processes_of_its_own_give_the_same_and_one_speaks_and_others_can_read_it(tmp_path, in_turn, capsys):
    folder = tmp_path / "mein Lauf é"
    code, out, err = ended(fedco2(*TRAIN, *PARTS, "--backend", "distributed", "--nproc", 2, "--out", folder))
    assert code == 0, err
    check(out, err, folder, in_turn)
    found = []
    for each in (folder, in_turn):
        assert main(["evaluate", str(each), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        found.append(told["rows"])
    assert found[0] == found[1]


def test_torchrun_gives_the_same(tmp_path, in_turn):
    """Torchrun's own words, if it has any, are on stderr."""
    torchrun, folder = Path(sys.executable).with_name("torchrun"), tmp_path / "run"
    command = [str(torchrun), "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", "2", "-m", "cli"]
    process = start([*command, *TRAIN, *PARTS, "--backend", "distributed", "--out", str(folder)])
    code, out, err = ended(process)
    assert code == 0, err
    check(out, "", folder, in_turn)


def listening(pids):
    """Addresses, in hexadecimal, at which these processes listen."""
    sockets = set()
    for pid in pids:
        for handle in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                sockets.add(os.readlink(handle))
            except OSError:  # closed or ended just now
                continue
    rows = [line.split() for kind in ("tcp", "tcp6") for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]]
    return {row[1].split(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets}


def test_a_run_listens_on_loopback_alone_and_is_stopped_by_ctrl_c_with_all_that_is_safe(tmp_path):
    """Ctrl-C goes to all processes of a terminal's group."""
    folder, heard = tmp_path / "run", set()
    process = fedco2(
        *TRAIN, "--method", "fedbn", "--rounds", 100000, "--eval-every", 2, "--backend", "distributed", "--nproc", 2,
        "--json", "--out", folder,
    )  # fmt: skip
    end = time.monotonic() + LIMIT
    while not (folder / METRICS_FILE).exists() or not (folder / METRICS_FILE).stat().st_size:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        heard |= listening(group(process.pid))
        time.sleep(0.02)
    heard |= listening(group(process.pid))
    assert heard == {"0100007F"}  # 127.0.0.1
    began = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    code, out, err = ended(process)
    assert time.monotonic() - began < 30
    assert (code, out) == (130, "")
    said = err.strip().splitlines()
    assert len(said) == 1
    assert said[0].startswith("interrupted after ")
    rounds = RunFolder(folder).read_last_saved_round()
    assert f"{rounds} rounds, which are saved" in said[0]
    assert len(list(folder.glob("checkpoints/own/*/*.safetensors"))) == 5
    done = rounds + 2
    code, out, err = ended(fedco2("train", "--resume", folder, "--rounds", done, "--backend", "serial", "--json"))
    assert (code, json.loads(out)["rounds"]) == (0, done), err


# --- refusals, each said once


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--nproc", "2"], "--nproc is for --backend distributed; add that or leave it out"),
        (["--backend", "distributed"], "start this with torchrun, or add --nproc 2"),
        (["--backend", "distributed", "--nproc", "0"], "x>=1"),
    ],
)
def test_wrong_use_is_refused_with_a_way_out(options, words, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    assert main([*TRAIN, *options, "--out", str(tmp_path / "run")]) == 2
    assert words in capsys.readouterr().err.strip().splitlines()[-1]
    assert not (tmp_path / "run").exists()


def test_an_error_is_said_once_with_its_code_and_ends_all(tmp_path):
    """Before the ranks are there (no data), and when rank 0 alone has it (a folder that is taken)."""
    (tmp_path / "taken" / "figures").mkdir(parents=True)
    cases = {
        3: ["train", "--dataset", "digits", "--data", "real", "--data-dir", tmp_path, "--out", tmp_path / "run"],
        2: [*TRAIN, "--rounds", 2, "--out", tmp_path / "taken"],
    }
    processes = {code: fedco2(*each, "--backend", "distributed", "--nproc", 2) for code, each in cases.items()}
    for code, process in processes.items():
        found, out, err = ended(process)
        assert (found, out) == (code, "")
        assert len(err.strip().splitlines()) == 1, err
        assert err.startswith("error: ")


def test_ranks_but_the_first_keep_silent(tmp_path):
    """Torchrun starts them all alike; what is wrong is wrong for all of them."""
    command = [sys.executable, "-m", "cli", "train", "--backend", "distributed"]
    command += ["--dataset", "digits", "--data", "real", "--data-dir", str(tmp_path)]
    processes = [start(command, RANK=str(rank), WORLD_SIZE="2") for rank in (0, 1)]
    (first, _, said), (second, out, err) = map(ended, processes)
    assert first == second == 3
    assert said.startswith("error: ")
    assert (out, err) == ("", "")


# --- processes that are lost


def lasting(code):
    return subprocess.Popen([sys.executable, "-c", code])


def test_a_leader_that_waits_for_a_lost_rank_is_ended(monkeypatch):
    monkeypatch.setattr(launch, "LEADER_EXIT_TIMEOUT", 0.2)
    leader, other = lasting("import time; time.sleep(60)"), lasting("raise SystemExit(1)")
    with pytest.raises(TrainingError, match="rank 0 was ended by SIGTERM; resume the run"):
        launch._wait_for_leader([leader, other])
    assert other.returncode == 1


def test_others_do_not_wait_for_a_leader_that_has_failed():
    leader, other = lasting("raise SystemExit(2)"), lasting("import time; time.sleep(60)")
    assert launch._wait_for_leader([leader, other]) == 2
    assert launch._stop_process(other) == -signal.SIGTERM
