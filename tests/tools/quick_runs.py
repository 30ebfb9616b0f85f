"""Runs of `fedco2 train` that are over in a second, and how their refusals are looked at."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from cli.main import main

ROOT = Path(__file__).resolve().parents[2]
SMALL_MODEL = ["--set", "model.name=two-layer", "--set", "model.width=8"]
TINY = [*SMALL_MODEL, "--set", "data.percent=0.02"]
QUICK_TRAIN = ["train", "--dataset", "digits", "--data", "standin", *TINY, "--rounds", "2", "--threads", "1"]
FILES = ["checkpoints", "config.toml", "figures", "manifest.json", "metrics.jsonl", "summary.json"]


def read_contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_refused(capsys, arguments, *words, code=2):
    """The exit code, one line, and the words in it."""
    assert main(arguments) == code
    shown = capsys.readouterr()
    said = shown.err.strip().splitlines()[-1]
    assert "Traceback" not in shown.err
    for word in words:
        assert word in said, said
    return said


def start_command(arguments, *python, **options):
    """The real command in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, *(python or ("-m", "cli")), *arguments]
    return subprocess.Popen(command, env=environment, text=True, stderr=subprocess.PIPE, **options)
