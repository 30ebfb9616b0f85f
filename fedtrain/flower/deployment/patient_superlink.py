"""``python -m fedtrain.flower.deployment.patient_superlink``: Flower's SuperLink, with more patience in two places.

Large tensors pass through its SQLite file in pieces, one writer at a time, in no fair order. Who has not had its turn
after five seconds is told "database is locked", with status 500, which Flower never tries again: an answer is thrown
away, a node's heartbeat ends for good, no further run is started. So it waits longer here, by one setting alone.

The server of a run that has not started after half a minute is started a second time, and the first one's words are
refused. On a machine that is busy enough this goes on for ever, so here it has two minutes.
"""

from __future__ import annotations

from flwr.supercore import sql_mixin
from flwr.supercore.corestate import sql_corestate
from flwr.superlink.cli import flower_superlink

BUSY_TIMEOUT = 25.0
"""Seconds; Flower's processes wait 30 for an answer, and ask again then."""

START_LIMIT = 120.0
"""Seconds in which the server of a run has started on the slowest of machines."""


def wait_for_database() -> None:
    """Every connection to the database that is made from now on."""
    module = vars(sql_mixin)
    wanted = dict(module["SQLITE_PRAGMAS"]) | {"busy_timeout": str(round(1000 * BUSY_TIMEOUT))}
    module["SQLITE_PRAGMAS"] = tuple(wanted.items())


def wait_for_start() -> None:
    """Every run that is started from now on; how long one that has started may be silent stays as it is."""
    module = vars(sql_corestate)
    silent = module["HEARTBEAT_PATIENCE"] * module["HEARTBEAT_DEFAULT_INTERVAL"]
    module["HEARTBEAT_DEFAULT_INTERVAL"] = START_LIMIT
    module["HEARTBEAT_PATIENCE"] = silent / START_LIMIT


if __name__ == "__main__":
    wait_for_database()
    wait_for_start()
    flower_superlink()
