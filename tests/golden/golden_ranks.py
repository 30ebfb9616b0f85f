"""Cases on several processes, all of them one after the other in one launch: to load torch takes longer than a case."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from golden_cases import CASES, ON_SEVERAL
from golden_look import Seen, ask, commands, of_run
from golden_words import STORE, leave

LIMIT = 240
"""Seconds; a launch takes a tenth of it on a quiet machine."""


def look_on_ranks(names: Sequence[str], ranks: int, folder: Path) -> dict[str, Seen]:
    """Run these cases on so many processes of one thread each."""
    for name in names:
        (folder / name).mkdir()
    calls = [call for name in names for call in commands(CASES[name], folder / name, **ON_SEVERAL)]
    (folder / "calls.json").write_text(json.dumps(calls))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "WORLD_SIZE": str(ranks)}
    root = str(Path(__file__).resolve().parents[2])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-X", "faulthandler", __file__, str(folder)]
    processes = [
        subprocess.Popen(command, env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(ranks)
    ]
    end = time.monotonic() + LIMIT
    try:
        codes = [process.wait(max(0.1, end - time.monotonic())) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert not any(codes), codes
    return {name: of_run(folder / name / "out") for name in names}


def be_a_rank(folder: Path) -> None:
    """Do what rank 0 says in every case, or be it."""
    for number, call in enumerate(json.loads((folder / "calls.json").read_text())):
        os.environ[STORE] = str(folder / f"store {number}")
        ask(call)


if __name__ == "__main__":
    be_a_rank(Path(sys.argv[1]))
    leave(0)
