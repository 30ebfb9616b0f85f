"""Where clients may be: each backend runs a case in processes of its own, and its meters record what happened."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path

from distributed_cost_lib.cases import Case
from distributed_cost_lib.event_log import (
    LOG_VARIABLE,
    EnoughRounds,
    Event,
    build_round_logger,
    install_meters,
    read_events,
)
from distributed_cost_lib.flower_backends import run_cold_deployment, run_deployment, run_simulation
from fedtrain.backends.distributed.process_group import STORE_VARIABLE, Rank, exit_process
from fedtrain.runs.distributed import open_distributed_backend, serve_rank
from fedtrain.runs.folder import RunFolder
from fedtrain.runs.loop import run_rounds
from fedtrain.utils.malloc import keep_freed_memory

EVENTS_FILE = "meters.jsonl"
WORLD_SIZES = {"torchrun-1": 1, "torchrun-2": 2}
"""Ranks."""


def run_on_backend(backend: str, case: Case, folder: Path) -> list[Event]:
    """Start its processes and wait for them; what the meters say."""
    folder.mkdir(parents=True)
    world, meters = WORLD_SIZES.get(backend, 0), folder / EVENTS_FILE
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    environment = {
        **os.environ,
        LOG_VARIABLE: str(meters),
        "PYTHONPATH": path,
        "OMP_NUM_THREADS": "1",
        STORE_VARIABLE: str(folder / "store"),
    }
    command = [sys.executable, "-m", "distributed_cost_lib.backends", backend, json.dumps(asdict(case)), str(folder)]
    ranks = [{"RANK": str(k), "LOCAL_RANK": str(k), "WORLD_SIZE": str(world)} for k in range(world)] or [{}]
    with ExitStack() as started:
        processes = [subprocess.Popen(command, env={**environment, **own}) for own in ranks]
        for process in processes:
            started.callback(_terminate, process)
        if any([process.wait() for process in processes]):  # noqa: C419 - of all
            raise SystemExit(f"{backend}: a process failed; its output is above, the rest is in {folder}")
    return read_events(meters)


def _terminate(process: subprocess.Popen[bytes]) -> None:
    """Nothing stays behind."""
    process.terminate()
    process.wait()


def run_serial(case: Case, folder: Path) -> None:
    """One client after the other."""
    work, out = case.build_experiment(), RunFolder(folder / "run")
    out.begin(work.config, {})
    with suppress(EnoughRounds):
        run_rounds(work, out, [build_round_logger(case.rounds)])


def run_distributed(case: Case, folder: Path) -> None:
    """This process is one of them."""
    work, out, place = case.build_experiment(), RunFolder(folder / "run"), Rank.from_environment()
    if place is None or place.rank:
        serve_rank(work, place or Rank(0, 1, 0))
        return
    out.begin(work.config, {})
    with open_distributed_backend(work, place, out) as backend, suppress(EnoughRounds):
        run_rounds(work, out, [build_round_logger(case.rounds)], backend)


BACKENDS: dict[str, Callable[[Case, Path], None]] = {
    "in-process": run_serial,
    "torchrun-1": run_distributed,
    "torchrun-2": run_distributed,
    "simulation": run_simulation,
    "deployment-cold": run_cold_deployment,
    "deployment": run_deployment,
}


def run_child(backend: str, case: str, folder: str) -> None:
    """What a process of `run_on_backend` does."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # else nobody would end what it has deployed
    keep_freed_memory()  # as the command does
    install_meters()
    BACKENDS[backend](Case(**json.loads(case)), Path(folder))
    if backend in WORLD_SIZES:
        exit_process(0)


if __name__ == "__main__":
    run_child(*sys.argv[1:])
