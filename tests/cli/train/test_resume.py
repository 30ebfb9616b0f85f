"""Runs that are stopped, go on, or are in the way of others."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tomllib

import numpy as np
import pytest
import torch
from quick_runs import FILES, QUICK_TRAIN, SMALL_MODEL, assert_refused, read_contents, start_command
from safetensors import safe_open

from cli.main import main
from fedtrain.runs.folder import RunFolder
from fedtrain.runs.resume import resume_config


def test_a_finished_run_is_refused_and_left_as_it_is(finished, capsys):
    before = read_contents(finished)
    assert_refused(capsys, [*QUICK_TRAIN, "--out", str(finished)], "finished after 2 rounds", "--rounds", "--out")
    assert_refused(capsys, ["train", "--resume", str(finished)], "finished after 2 rounds")
    assert read_contents(finished) == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (["--lr", "0.5"], ("local.lr 0.01 -> 0.5",)),
        (["--seed", "7"], ("seed 1 -> 7",)),
        (["--method", "fedbn"], ("fedco2", "fedbn")),
        (["--set", "method.intra=none"], ("method.intra 'both' -> 'none'",)),
        (["--set", "data.percent=0.04"], ("data.percent 0.02 -> 0.04",)),
    ],
)
def test_another_run_in_the_same_folder_is_refused(change, words, finished, capsys):
    before = read_contents(finished)
    assert_refused(
        capsys,
        [*QUICK_TRAIN, "--rounds", "3", *change, "--out", str(finished)],
        "was begun with other settings",
        *words,
    )
    assert_refused(capsys, ["train", "--resume", str(finished), "--rounds", "3", *change], *words)
    assert read_contents(finished) == before


def test_a_longer_run_goes_on_where_the_shorter_one_ended(tmp_path, capsys, no_figures):
    base = [*QUICK_TRAIN, "--method", "fedbn", "--json"]
    for name, rounds in (("whole", "3"), ("parts", "1")):
        assert main([*base, "--rounds", rounds, "--out", str(tmp_path / name)]) == 0
    assert main(["train", "--resume", str(tmp_path / "parts"), "--rounds", "2", "--json"]) == 0
    assert main([*base, "--rounds", "3", "--out", str(tmp_path / "parts")]) == 0  # the same command resumes too
    whole, parts = ((tmp_path / name / "metrics.jsonl").read_bytes() for name in ("whole", "parts"))
    assert whole == parts
    summaries = [json.loads((tmp_path / name / "summary.json").read_text()) for name in ("whole", "parts")]
    assert summaries[0]["rules"] == summaries[1]["rules"]
    assert tomllib.loads((tmp_path / "parts" / "config.toml").read_text())["server"]["rounds"] == 3
    assert_refused(capsys, ["train", "--resume", str(tmp_path / "parts"), "--rounds", "2"], "finished after 3 rounds")


def test_other_data_under_the_same_settings_are_noticed(finished, tmp_path, capsys):
    before = (finished / "manifest.json").read_bytes()
    told = json.loads(before)
    told["data"]["sha256"] = "0" * 64
    try:
        (finished / "manifest.json").write_text(json.dumps(told))
        assert_refused(capsys, ["train", "--resume", str(finished), "--rounds", "9"], "begun with other data")
    finally:
        (finished / "manifest.json").write_bytes(before)


def test_a_damaged_checkpoint_is_named(tmp_path, capsys, no_figures):
    out = tmp_path / "out"
    assert main([*QUICK_TRAIN, "--method", "fedavg", "--rounds", "1", "--json", "--out", str(out)]) == 0
    (out / "checkpoints" / "last.safetensors").write_bytes(b"x")
    capsys.readouterr()
    assert_refused(capsys, ["train", "--resume", str(out), "--rounds", "2"], "last.safetensors", "not a checkpoint")


@pytest.fixture
def real(tmp_path):
    """A data folder with a CIFAR-10 of 60 images, and the command that trains on it."""
    images = np.random.default_rng(0).integers(0, 256, (60, 32, 32, 3), dtype=np.uint8)
    labels = np.arange(60, dtype=np.uint8) % 10
    np.savez(tmp_path / "cifar10.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    folder = ["--data-dir", str(tmp_path / "data")]
    assert main(["data", "add", "cifar10", str(tmp_path / "cifar10.npz"), *folder]) == 0
    few = ["--skew", "iid", "--clients", "3", "--participation", "1", "--local-epochs", "1"]
    few += ["--set", "evaluation.window=1"]
    command = ["train", "--dataset", "cifar10", *SMALL_MODEL, *few, "--threads", "1", "--method", "fedavg", *folder]
    return command, tmp_path / "data" / "cifar10" / "cifar10.safetensors"


@pytest.mark.parametrize("damage", ["cut off", "an image", "a label"])
def test_data_that_change_between_start_and_resume(damage, real, tmp_path, capsys, no_figures):
    command, path = real
    out = ["--out", str(tmp_path / "out")]
    assert main([*command, "--rounds", "1", *out, "--json"]) == 0
    whole, before = path.read_bytes(), read_contents(tmp_path / "out")
    spoilt = bytearray(whole)
    with safe_open(path, "np") as file:
        few = file.get_tensor("train_labels").tobytes()
    spoilt[whole.index(few) if damage == "a label" else len(whole) - 9] ^= 1
    path.write_bytes(whole[:-9] if damage == "cut off" else spoilt)
    resume = ["train", "--resume", str(tmp_path / "out"), "--rounds", "2", *command[-2:]]
    for again in ([*command, "--rounds", "2", *out], resume):
        assert_refused(capsys, again, str(path), "fedco2 data", code=3)
    assert read_contents(tmp_path / "out") == before
    path.write_bytes(whole)
    assert main(resume) == 0


def test_records_without_weights_are_left_alone(tmp_path, capsys, no_figures):
    out = tmp_path / "out"
    assert main([*QUICK_TRAIN, "--method", "fedavg", "--rounds", "1", "--out", str(out), "--json"]) == 0
    capsys.readouterr()
    (out / "checkpoints" / "last.safetensors").unlink()
    before = read_contents(out)
    for rounds in ("1", "2"):
        assert_refused(
            capsys, ["train", "--resume", str(out), "--rounds", rounds], "records of a finished run", "--out"
        )
    assert_refused(capsys, ["evaluate", str(out)], "without its weights")
    assert read_contents(out) == before


def test_a_stand_in_run_goes_on_when_real_data_were_added(real, tmp_path, capsys, no_figures):
    command, _ = real
    out, data = str(tmp_path / "out"), command[-2:]
    assert main([*command[:-2], "--data-dir", str(tmp_path / "empty"), "--rounds", "1", "--out", out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["standin"]
    assert_refused(capsys, [*command, "--rounds", "2", "--out", out], "stand-in images", f"fedco2 train --resume {out}")
    assert main(["train", "--resume", out, "--rounds", "2", *data, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["standin"]


def test_a_run_of_a_machine_with_a_gpu_goes_on_without(tmp_path, capsys, no_figures):
    out = tmp_path / "out"
    assert main([*QUICK_TRAIN, "--method", "fedavg", "--rounds", "1", "--out", str(out), "--json"]) == 0
    config = out / "config.toml"
    config.write_text(config.read_text().replace('device = "auto"', 'device = "cuda:0"'))
    resume = ["train", "--resume", str(out), "--rounds", "2", "--json"]
    if not torch.cuda.is_available():
        assert_refused(capsys, resume, "sees no CUDA", "use cpu (--device)")
    assert main([*resume, "--device", "cpu"]) == 0


def test_other_processes_share_the_cores_anew(tmp_path, no_figures):
    out = tmp_path / "out"
    assert main([*QUICK_TRAIN, "--method", "fedavg", "--rounds", "1", "--out", str(out), "--json"]) == 0
    threads = [
        resume_config(RunFolder(out), {"machine": machine}).machine.threads
        for machine in ({}, {"backend": "distributed"}, {"backend": "distributed", "threads": 3})
    ]
    assert threads == [1, None, 3]


def test_a_second_process_is_refused(tmp_path, capsys, no_figures):
    out = ["--out", str(tmp_path / "out")]
    with RunFolder(tmp_path / "out").exclusive_lock():
        assert_refused(capsys, [*QUICK_TRAIN, *out], "another process is at work here")
    assert main([*QUICK_TRAIN, "--method", "fedavg", "--rounds", "1", *out]) == 0
    before = read_contents(tmp_path / "out")
    with RunFolder(tmp_path / "out").exclusive_lock():
        assert_refused(capsys, ["train", "--resume", out[1], "--rounds", "2"], "another process is at work here")
    assert read_contents(tmp_path / "out") == before


def test_other_threads_are_said_and_written_down(tmp_path, capsys, no_figures):
    out = str(tmp_path / "out")
    assert main([*QUICK_TRAIN, "--method", "fedavg", "--rounds", "1", "--out", out]) == 0
    capsys.readouterr()
    try:
        assert main(["train", "--resume", out, "--rounds", "2", "--json"]) == 0  # as many as it was begun with
        assert capsys.readouterr().err == ""
        assert main(["train", "--resume", out, "--rounds", "3", "--threads", "2", "--json"]) == 0
    finally:
        torch.set_num_threads(1)
    assert "note: machine.threads was 1 and is 2 now: the last digits may differ" in capsys.readouterr().err
    told = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert told["machine"]["threads"] == 1
    assert [(one["round"], one["machine"]["threads"]) for one in told["resumed"]] == [(1, 1), (2, 2)]


def test_every_so_many_checkpoints_are_kept(tmp_path, capsys, no_figures):
    out = tmp_path / "out"
    keep = ["--checkpoint-every", "2", "--set", "checkpoints.keep=2"]
    assert main([*QUICK_TRAIN, "--method", "fedavg", "--rounds", "7", *keep, "--out", str(out), "--json"]) == 0
    names = ["last.safetensors", "round-000004.safetensors", "round-000006.safetensors"]
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == names
    with (out / "checkpoints" / "last.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x99")
    capsys.readouterr()
    resume = ["train", "--resume", str(out)]
    assert_refused(
        capsys,
        [*resume, "--rounds", "8"],
        "its checksum is wrong",
        "rename round-000006.safetensors to last.safetensors",
    )
    os.replace(out / "checkpoints" / names[2], out / "checkpoints" / names[0])
    assert main([*resume, "--rounds", "7", "--json"]) == 0  # back to round 6, although the run was finished
    assert json.loads(capsys.readouterr().out)["rounds"] == 7


def test_a_longer_run_that_died_before_its_summary_is_not_taken_for_finished(tmp_path, capsys, monkeypatch):
    def dies(folder, summary):
        raise KeyboardInterrupt

    out = ["--out", str(tmp_path / "out")]
    command = [*QUICK_TRAIN, "--method", "fedavg", "--json", *out]
    monkeypatch.setattr("fedtrain.report.run_figures.draw_run_figures", lambda folder, summary: [])
    assert main([*command, "--rounds", "1"]) == 0
    with monkeypatch.context() as patch:
        patch.setattr("fedtrain.report.run_figures.draw_run_figures", dies)
        assert main([*command, "--rounds", "2"]) == 130
    capsys.readouterr()
    assert main([*command, "--rounds", "2"]) == 0
    assert json.loads(capsys.readouterr().out)["rules"]["last"]["round"] == 2
    assert_refused(capsys, [*command, "--rounds", "2"], "finished after 2 rounds")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_ends_a_run_that_can_go_on(number, tmp_path, capsys, no_figures):
    out = tmp_path / "mein Lauf"
    arguments = [*QUICK_TRAIN, "--method", "fedbn", "--rounds", "100000", "--out", str(out)]
    process = start_command(arguments, stdout=subprocess.PIPE)
    shown = []
    for line in process.stdout:
        shown.append(line)
        if line.startswith("round      1/"):
            process.send_signal(number)
            break
    rest, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    reached = int(re.search(r"interrupted after (\d+) rounds, which are saved", said)[1])
    assert reached >= 1
    assert f"fedco2 train --resume '{out}'" in said
    assert "\x1b" not in "".join(shown) + rest + said
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["last.safetensors"]
    assert sorted(path.name for path in out.iterdir()) == [name for name in FILES if name != "summary.json"]
    more = ["--rounds", str(reached + 1), "--json"]
    assert main(["train", "--resume", str(out), *more]) == 0
    assert json.loads(capsys.readouterr().out)["rounds"] == reached + 1
    rounds = [json.loads(line)["round"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert sorted(set(rounds)) == list(range(1, reached + 2))


@pytest.fixture
def stop(monkeypatch):
    """Let Ctrl-C be pressed when the line of a round would be shown, or (0) while the first client trains."""

    def at(round):
        def press(*arguments, **options):
            if not round or arguments[1].round == round:
                raise KeyboardInterrupt

        first = "fedtrain.federated.client.ClientTrainer.train_locally"
        monkeypatch.setattr("fedtrain.report.progress_view.ProgressView.on_round_end" if round else first, press)

    return at


def test_before_the_first_round_there_is_nothing_to_save_and_a_way_to_go_on(tmp_path, capsys, stop, monkeypatch):
    out, data = str(tmp_path / "out"), str(tmp_path / "my data")
    stop(0)
    assert main([*QUICK_TRAIN, "--method", "fedavg", "--out", out, "--data-dir", data]) == 130
    said = capsys.readouterr().err
    assert "interrupted before the first round was over" in said
    assert f"--resume {out} --data-dir '{data}'" in said
    monkeypatch.undo()
    monkeypatch.setattr("fedtrain.report.run_figures.draw_run_figures", lambda folder, summary: [])
    assert main(["train", "--resume", out, "--data-dir", data, "--json"]) == 0


def test_a_run_cannot_end_where_it_has_been_already(tmp_path, capsys, stop, monkeypatch):
    """It was not evaluated there."""
    out = str(tmp_path / "out")
    stop(2)
    assert main([*QUICK_TRAIN, "--method", "fedavg", "--rounds", "5", "--eval-every", "5", "--out", out]) == 130
    monkeypatch.undo()
    monkeypatch.setattr("fedtrain.report.run_figures.draw_run_figures", lambda folder, summary: [])
    capsys.readouterr()
    for rounds in ("1", "2"):
        assert_refused(
            capsys, ["train", "--resume", out, "--rounds", rounds], "has made 2 of its 5 rounds", "more than 2"
        )
    assert main(["train", "--resume", out, "--rounds", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rules"]["last"]["round"] == 3


FULL = """
import resource, sys
from cli.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
sys.exit(main(sys.argv[1:]))
"""
"""A disk that is full after so many bytes: more than the settings, less than a checkpoint."""


def test_a_full_disk_is_one_line_and_leaves_no_half_file(tmp_path, capsys, no_figures):
    out = tmp_path / "out"
    process = start_command([*QUICK_TRAIN, "--out", str(out)], "-c", FULL, stdout=subprocess.PIPE)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 2, said
    assert "Traceback" not in said
    assert len(said.strip().splitlines()) == 1
    assert "File too large" in said
    assert list((out / "checkpoints").iterdir()) == []
    assert sorted(path.name for path in out.iterdir()) == [name for name in FILES if name != "summary.json"]
    assert main(["train", "--resume", str(out), "--json"]) == 0  # with room on the disk it goes on


def test_a_run_whose_reader_goes_away_can_go_on(tmp_path):
    out = tmp_path / "out"
    process = start_command(
        [*QUICK_TRAIN, "--method", "fedbn", "--rounds", "100000", "--out", str(out)], stdout=subprocess.PIPE
    )
    with process.stdout as shown:
        next(line for line in shown if line.startswith("round      1/"))
    with process.stderr as said:
        assert said.read() == ""
    assert process.wait(timeout=60) == 141
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["last.safetensors"]
