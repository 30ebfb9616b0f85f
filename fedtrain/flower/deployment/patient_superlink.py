"""``python -m fedtrain.flower.deployment.patient_superlink``: Flower's SuperLink, which waits for its own database.

Large tensors pass through its SQLite file in pieces, one writer at a time, in no fair order. Who has not had its turn
after five seconds is told "database is locked", with status 500, which Flower never tries again: an answer is thrown
away, a node's heartbeat ends for good, no further run is started. So it waits longer here, by one setting alone.
"""

from __future__ import annotations

from flwr.supercore import sql_mixin
from flwr.superlink.cli import flower_superlink

BUSY_TIMEOUT = 25.0
"""Seconds; Flower's processes wait 30 for an answer, and ask again then."""


def wait_for_database() -> None:
    """Every connection to the database that is made from now on."""
    module = vars(sql_mixin)
    wanted = dict(module["SQLITE_PRAGMAS"]) | {"busy_timeout": str(round(1000 * BUSY_TIMEOUT))}
    module["SQLITE_PRAGMAS"] = tuple(wanted.items())


if __name__ == "__main__":
    wait_for_database()
    flower_superlink()
