"""How a run that was stopped goes on."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedtrain.config.references import SETTINGS
from fedtrain.extensions.references import is_reference
from fedtrain.runs.folder import RunFolder


def describe_resume(
    folder: RunFolder,
    data_dir: Path | None,
    command: Sequence[str] = ("train",),
    code: Mapping[str, Any] | None = None,
) -> str:
    """How far an interrupted run came, and the command that goes on; ``code`` has the options that may name code."""
    rounds = folder.read_last_saved_round()
    when = f"after {rounds} rounds, which are saved" if rounds else "before the first round was over"
    more = ["--data-dir", str(data_dir)] if data_dir else []
    for name in (*SETTINGS, "track", "callbacks"):
        given = (code or {}).get(name) or ()
        for one in [given] if isinstance(given, str) else given:
            more += [f"--{name.removesuffix('s')}", one] if is_reference(one) else []
    return f"{when}; go on with: {shlex.join(['fedco2', *command, '--resume', str(folder.path), *more])}"
