"""Cases on several processes, all of them one after the other in one launch: to load torch takes longer than a case."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from golden_cases import CASES, ON_DISTRIBUTED
from golden_look import Seen, ask, commands, of_run
from golden_words import MODULE, SERIAL, STORE, leave

ROOT = str(Path(__file__).resolve().parents[2])
LIMIT = 240
"""Seconds; a launch takes a tenth of it on a quiet machine."""


def look_on_ranks(names: Sequence[str], ranks: int, folder: Path) -> dict[str, Seen]:
    """Run these cases on so many processes of one thread each."""
    for name in names:
        (folder / name).mkdir()
    calls = [call for name in names for call in commands(CASES[name], folder / name, **ON_DISTRIBUTED)]
    (folder / "calls.json").write_text(json.dumps(calls))
    command = [sys.executable, "-X", "faulthandler", __file__, str(folder)]
    processes = [
        subprocess.Popen(command, env=environment(WORLD_SIZE=str(ranks), RANK=str(rank), LOCAL_RANK=str(rank)))
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


def look_at_both(name: str, ranks: int, folder: Path) -> Seen:
    """Begin a case on processes that fedco2 itself starts, and end it in this one."""
    case = CASES[name]
    begin, _ = commands(case, folder, **ON_DISTRIBUTED, nproc=ranks)
    subprocess.run([sys.executable, "-m", MODULE, *begin], env=environment(), check=True, capture_output=True)
    _, end = commands(case, folder, backend=SERIAL)
    ask(end)
    return of_run(folder / "out")


def environment(**more: str) -> dict[str, str]:
    """For processes that find this source tree, whatever else is installed, and are no rank but by ``more``."""
    path = os.pathsep.join(filter(None, (ROOT, os.environ.get("PYTHONPATH"))))
    ours = {key: value for key, value in os.environ.items() if key not in ("RANK", "LOCAL_RANK", "WORLD_SIZE")}
    return {**ours, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, **more}


def be_a_rank(folder: Path) -> None:
    """Do what rank 0 says in every case, or be it."""
    for number, call in enumerate(json.loads((folder / "calls.json").read_text())):
        os.environ[STORE] = str(folder / f"store {number}")
        ask(call)


if __name__ == "__main__":
    be_a_rank(Path(sys.argv[1]))
    leave(0)
