"""How a run that was stopped goes on."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from fedtrain.runs.folder import RunFolder


def describe_resume(folder: RunFolder, data_dir: Path | None, command: Sequence[str] = ("train",)) -> str:
    """How far an interrupted run came, and the command that goes on."""
    rounds = folder.read_last_saved_round()
    when = f"after {rounds} rounds, which are saved" if rounds else "before the first round was over"
    data = ["--data-dir", str(data_dir)] if data_dir else []
    return f"{when}; go on with: {shlex.join(['fedco2', *command, '--resume', str(folder.path), *data])}"
