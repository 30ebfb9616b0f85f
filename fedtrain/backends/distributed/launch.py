"""Start the processes of a distributed run on this machine, and see that none outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

import torch

from fedtrain.backends.distributed.process_group import STORE_VARIABLE
from fedtrain.errors import TrainingError
from fedtrain.utils.signals import handle_signals

EXIT_TIMEOUT = 10.0
"""Seconds that a process has to see for itself that it is over."""
LEADER_EXIT_TIMEOUT = 60.0
"""Seconds that rank 0 has to see that another is lost, or to draw its figures if it had no more need of it."""


def launch_ranks(command: Sequence[str], ranks: int, threads: int | None) -> int:
    """Run a command as so many processes of this machine; the exit code of the first, which speaks for all.

    They find each other by a file, where torchrun would have a port open to the network.
    """
    with TemporaryDirectory(prefix="fedco2-") as folder:
        shared = {STORE_VARIABLE: str(Path(folder) / "store"), "WORLD_SIZE": str(ranks)}
        shared["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))  # -P: no `cli` of the current folder's
        if threads is None:  # else every process has so many
            shared["OMP_NUM_THREADS"] = str(max(1, torch.get_num_threads() // ranks))
        processes: list[subprocess.Popen[bytes]] = []
        passed = False

        def pass_on(number: int, frame: FrameType | None) -> None:
            """A terminal's Ctrl-C reaches the ranks by itself; who stops only this process means them too, once."""
            nonlocal passed
            for process in processes if number == signal.SIGTERM and not passed else []:
                process.send_signal(signal.SIGINT)
            passed = passed or number == signal.SIGTERM

        with handle_signals(pass_on):
            try:
                for rank in range(ranks):
                    own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
                    heard = subprocess.DEVNULL if rank else None
                    environment = {**os.environ, **shared, **own}
                    processes.append(subprocess.Popen(command, env=environment, stdout=heard, stderr=heard))
                return _wait_for_leader(processes)
            finally:
                for process in processes:
                    _stop_process(process)


def _wait_for_leader(processes: list[subprocess.Popen[bytes]]) -> int:
    """Wait for the first of them, but no longer than it may take it to see that another is lost; its exit code."""
    leader, *others = processes
    while leader.poll() is None and not any(process.poll() for process in others):
        time.sleep(0.05)
    if (code := _stop_process(leader, LEADER_EXIT_TIMEOUT)) < 0:
        raise TrainingError(f"rank 0 was ended by {signal.Signals(-code).name}; resume the run", options=("resume",))
    for process in others if code else []:
        process.terminate()  # it may wait for a leader that will never come
    return code


def _stop_process(process: subprocess.Popen[bytes], patience: float = EXIT_TIMEOUT) -> int:
    """Wait, then ask, then insist; the exit code."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(subprocess.TimeoutExpired):
            return process.wait(patience)
        process.send_signal(number)
    return process.wait()
