"""Look on while a run goes on in a deployment: what the server tells, and how it ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fedtrain.errors import TrainingError
from fedtrain.flower.deployment.superlink_control import SuperLinkControl
from fedtrain.runs.folder import RunFolder

LOG_INTERVAL, STATUS_INTERVAL = 0.5, 10.0
"""Seconds between two looks at the log, and at what the SuperLink says, which costs a second or two."""
START_LIMIT = 300.0
"""Seconds in which a SuperLink has started a run on the slowest of machines."""
MAX_FAILURES = 5
"""Looks in a row that the SuperLink does not answer; it may be overloaded, and the run goes on unseen."""
WAITING_STATES = ("pending", "starting")
"""Of a run whose server is not there yet."""


def follow_run(
    control: SuperLinkControl, run_id: str, folder: RunFolder, log: Path, say: Callable[[str], None]
) -> None:
    """Until the run is over; an error if it was not completed. A run that is not looked at to its end is stopped."""
    try:
        _follow_to_the_end(control, run_id, folder, log, say)
    except RunFailedError:
        raise
    except Exception:
        with suppress(TrainingError):  # or it would go on, into the next run
            control.stop_run(run_id)
        raise


class RunFailedError(TrainingError):
    """The run came to a bad end by itself."""


def _follow_to_the_end(
    control: SuperLinkControl, run_id: str, folder: RunFolder, log: Path, say: Callable[[str], None]
) -> None:
    begun = looked = time.monotonic()
    failures = 0
    read = log.stat().st_size if log.exists() else 0
    while True:
        if log.exists():
            with log.open(encoding="utf-8") as file:
                file.seek(read)
                text = file.read()
                read = file.tell()
            if text:
                say(text.rstrip("\n"))
        if folder.is_finished or time.monotonic() - looked > STATUS_INTERVAL:
            looked = time.monotonic()
            try:
                state = control.get_run(run_id)
            except TrainingError as error:
                failures += 1
                if failures >= MAX_FAILURES:
                    raise
                say(f"{error} (asked {failures} of {MAX_FAILURES} times)")
                time.sleep(LOG_INTERVAL)
                continue
            failures, looked = 0, time.monotonic()
            if state.is_finished and state.is_completed:
                return
            if state.is_finished:
                why = state.details.removeprefix("ServerApp failed with exception: ") or state.status
                raise RunFailedError(f"the run did not end well: {why}")
            if state.status in WAITING_STATES:
                waited = looked - begun
                if waited > START_LIMIT:
                    raise TrainingError(
                        f"the SuperLink has not started the run within {START_LIMIT:.0f} s; "
                        "see its log, and start the deployment anew (fedco2 flower down, then up)"
                    )
                say(f"waiting for the SuperLink to start the run: {waited:.0f} s")
        time.sleep(LOG_INTERVAL)
