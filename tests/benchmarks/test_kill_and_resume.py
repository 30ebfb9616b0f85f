"""Processes that are killed and resumed leave what undisturbed ones leave, and the judge of that would notice."""

import json
import os
import shutil

import pytest

from benchmarks.kill_and_resume import Tally, compare_runs, read_run_files, run_stress_test


@pytest.fixture
def surroundings(monkeypatch):
    """The program sets variables for its processes."""
    monkeypatch.setattr(os, "environ", os.environ.copy())


def test_three_kills(tmp_path, surroundings, capsys):
    tally = run_stress_test(tmp_path, kills=3, each=3, rounds=6, seed=0)
    assert (tally.kills, sum(tally.hit.values())) == (3, 3)
    assert tally.differences == []
    assert tally.identical == tally.runs >= 1
    assert (tally.half_rows_left, tally.stray_files_left) == (0, 0)
    whole = tmp_path / "whole-0"
    found = read_run_files(whole)
    assert {"metrics.jsonl", "summary.json", "checkpoints/last.safetensors", "figures/accuracy.png"} < set(found)
    assert len([name for name in found if name.startswith("checkpoints/round-")]) == 3
    for number, (spoil, words) in enumerate(SPOILT.items()):
        torn = tmp_path / f"torn-{number}"
        shutil.copytree(whole, torn)
        spoil(torn)
        again = Tally()
        compare_runs("case", whole, torn, again)
        assert (again.runs, again.identical, again.differences) == (1, 0, [f"case: {words}"])


def one_digit(torn):
    metrics = torn / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes().replace(b'"loss": 1', b'"loss": 2').replace(b'"loss": 2', b'"loss": 3'))


def a_stray_file(torn):
    (torn / "checkpoints" / ".tmpQx71ab").touch()


def a_kept_checkpoint_less(torn):
    (torn / "checkpoints" / "round-000005.safetensors").unlink()


def an_older_checkpoint(torn):
    (torn / "checkpoints" / "last.safetensors").unlink()
    shutil.copy(torn / "checkpoints" / "round-000005.safetensors", torn / "checkpoints" / "last.safetensors")


def another_result(torn):
    summary = json.loads((torn / "summary.json").read_text())
    (torn / "summary.json").write_text(json.dumps(summary | {"rounds": 5}))


SPOILT = {
    one_digit: "metrics.jsonl",
    a_stray_file: "checkpoints/.tmpQx71ab",
    a_kept_checkpoint_less: "checkpoints/round-000005.safetensors",
    an_older_checkpoint: "checkpoints/last.safetensors",
    another_result: "summary.json",
}
