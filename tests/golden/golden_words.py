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
    name: "--" + name.replace("_", "-")
    for name in (
        "method dataset data skew alpha beta clients sample peers rounds local_epochs eval_every seed data_seed threads "
        "engine fleet personal preset out resume samples dim width steps covariance projection claims file target "
        "network_seed classes_per_client divide percent train_size least draws heterogeneity"
    ).split()
}
"""Options with a value."""

SWITCHES = {"json": "--json", "certify": "--certify"}
"""Options without one."""

SETTINGS = {
    "network": "model.name",
    "hidden": "model.width",
    "share": "data.percent",
    "noise": "data.noise",
    "noise_unit": "data.noise_unit",
    "dtype": "machine.dtype",
    "intra": "method.intra",
    "inter": "method.inter",
    "augment": "data.augment",
    "val_size": "data.val_size",
    "first": "data.train_size",
}
"""What has no option of its own: ``--set section.key=value``."""

SET = "--set"

FIGURES = "fedtrain.run.draw_figures"
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
    from fedtrain.fleets.group import leave

    leave(code)
