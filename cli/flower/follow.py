"""Look on while a run goes on in a deployment: what the server tells, and how it ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from fedtrain.errors import TrainingError
from fedtrain.flower.deployment.superlink_control import SuperLinkControl
from fedtrain.runs.folder import RunFolder

LOG_INTERVAL, STATUS_INTERVAL = 0.5, 10.0
"""Seconds between two looks at the log, and at what the SuperLink says, which costs a second or two."""


def follow_run(
    control: SuperLinkControl, run_id: str, folder: RunFolder, log: Path, say: Callable[[str], None]
) -> None:
    """Until the run is over; an error if it was not completed."""
    read, looked = log.stat().st_size if log.exists() else 0, time.monotonic()
    while True:
        if log.exists():
            with log.open(encoding="utf-8") as file:
                file.seek(read)
                text = file.read()
                read = file.tell()
            if text:
                say(text.rstrip("\n"))
        if folder.is_finished or time.monotonic() - looked > STATUS_INTERVAL:
            state, looked = control.get_run(run_id), time.monotonic()
            if state.is_finished and state.is_completed:
                return
            if state.is_finished:
                why = state.details.removeprefix("ServerApp failed with exception: ") or state.status
                raise TrainingError(f"the run did not end well: {why}")
        time.sleep(LOG_INTERVAL)
