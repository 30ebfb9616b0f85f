"""How fedco2 is called, and what the files that it writes are called: all names that a rename may change, in one place.

Cases speak of options by the keys below, so that a new word on the command line, a section of the configuration that
moves, or a module with a new name is one line here and nothing in the cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

TRAIN, THEORY, FORECAST, CLIENTS = ("train",), ("theory",), ("forecast",), ("data", "clients")
"""The subcommands."""

OPTIONS = {
    "method": "--method",
    "dataset": "--dataset",
    "data": "--data",
    "skew": "--skew",
    "alpha": "--alpha",
    "clients": "--clients",
    "participation": "--participation",
    "peers": "--peers",
    "rounds": "--rounds",
    "local_epochs": "--local-epochs",
    "lr": "--lr",
    "eval_every": "--eval-every",
    "seed": "--seed",
    "data_seed": "--data-seed",
    "threads": "--threads",
    "backend": "--backend",
    "nproc": "--nproc",
    "client_state": "--client-state",
    "preset": "--preset",
    "out": "--out",
    "resume": "--resume",
    "samples": "--samples",
    "dim": "--dim",
    "width": "--width",
    "steps": "--steps",
    "covariance": "--covariance",
    "draws": "--draws",
    "network_seed": "--network-seed",
    "classes_per_client": "--classes-per-client",
    "divide": "--divide",
    "percent": "--percent",
}
"""Options with a value."""

SWITCHES = {"json": "--json", "certify": "--certify"}
"""Options without one."""

SETTINGS = {
    "network": "model.name",
    "hidden": "model.width",
    "share": "data.percent",
    "noise": "data.noise",
    "dtype": "machine.dtype",
    "fast_path": "machine.fast_path",
    "intra": "method.intra",
    "inter": "method.inter",
    "val_size": "data.val_size",
    "first": "data.train_size",
}
"""What has no option of its own: ``--set section.key=value``."""

SET = "--set"

SERIAL, THREADS, VMAP, DISTRIBUTED = "serial", "threads", "vmap", "distributed"
"""Where clients may run: one after the other, side by side, as one, on several processes."""

MODULE = "cli"
"""What ``python -m`` runs as fedco2."""
FIGURES = "fedtrain.report.run_figures.draw_run_figures"
"""What draws the figures of a run, which take longer than all the rest of a small one."""

METRICS, MANIFEST, CHECKPOINT = "metrics.jsonl", "manifest.json", "checkpoints/last.safetensors"
OWN = "checkpoints/own/*/*.safetensors"
"""What clients keep where they train, if that is not in the checkpoint."""
REPORT = "report.json"

STORE = "FEDCO2_STORE"
"""Names the file by which the ranks of one machine find each other."""


def words(**options: Any) -> list[str]:
    """The command line that says this."""
    said: list[str] = []
    for key, value in options.items():
        if key in SWITCHES:
            said += [SWITCHES[key]] if value else []
        elif key in OPTIONS:
            said += [OPTIONS[key], str(value)]
        else:
            said += [SET, f"{SETTINGS[key]}={value}"]
    return said


def fedco2(arguments: Sequence[str | Path]) -> int:
    """The command, in this process; its exit code."""
    from cli.main import main

    return main([str(one) for one in arguments])


def leave(code: int) -> None:
    """End a process that was a rank."""
    from fedtrain.backends.distributed.process_group import exit_process

    exit_process(code)
