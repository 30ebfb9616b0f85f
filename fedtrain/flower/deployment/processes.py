"""Processes that outlive the command that started them: known by their id and when they began, ended by both."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from theory.errors import InputError

PROC_DIR = Path("/proc")


@dataclass(frozen=True)
class Process:
    """A process id alone may be another's by tomorrow: with its start, in ticks since boot, it is one process."""

    pid: int
    started: int

    @property
    def alive(self) -> bool:
        """Whether it runs; one that ended and waits to be asked how does not."""
        with suppress(ChildProcessError):  # it is another's child
            os.waitpid(self.pid, os.WNOHANG)
        return _find_process(self.pid) == self

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if it is still the same process."""
        if self.alive:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def spawn(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Process:
    """Start a process of its own session that reads nothing and appends all it says to ``log``."""
    if not (PROC_DIR / "self" / "stat").exists():
        raise InputError("processes are told apart by /proc, which this system lacks; use fedco2 flower simulate here")
    program = shutil.which(command[0], path=environment.get("PATH"))
    if program is None:
        raise InputError(f"there is no program {command[0]} beside this Python; install fedco2 with its extra 'flower'")
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    pid = os.posix_spawn(program, list(command), environment, file_actions=files, setsid=True)
    found = _find_process(pid)
    return found if found is not None else Process(pid, -1)  # it is over already: no process begins at -1


def find_descendants(roots: Iterable[Process]) -> set[Process]:
    """Children of processes, their children, and so on."""
    parents = {
        process: parent for pid in _list_pids() if (parent := _find_parent(pid)) and (process := _find_process(pid))
    }
    family = {root.pid for root in roots if root.alive}
    found: set[Process] = set()
    while new := {process for process, parent in parents.items() if parent in family and process not in found}:
        found |= new
        family |= {process.pid for process in new}
    return found


def find_by_environment(marks: Mapping[str, str]) -> set[Process]:
    """All processes that were started with these in their environment, but not ourselves."""
    wanted = {f"{name}={value}".encode() for name, value in marks.items()}
    found: set[Process] = set()
    for pid in _list_pids():
        with suppress(OSError):  # another user's, or over by now
            environment = set((PROC_DIR / str(pid) / "environ").read_bytes().split(b"\0"))
            if wanted <= environment and pid != os.getpid() and (process := _find_process(pid)):
                found.add(process)
    return found


def terminate(processes: Iterable[Process], patience: float = 5.0) -> int:
    """Ask processes to end, and after so many seconds make them; how many there were."""
    running = {process for process in processes if process.alive}
    for process in running:
        process.signal(signal.SIGTERM)
    left = _wait_for_exit(running, patience)
    for process in left:
        process.signal(signal.SIGKILL)
    _wait_for_exit(left, 10.0)
    return len(running)


def _wait_for_exit(processes: set[Process], seconds: float) -> set[Process]:
    until = time.monotonic() + seconds
    while (left := {process for process in processes if process.alive}) and time.monotonic() < until:
        time.sleep(0.05)
    return left


def _list_pids() -> list[int]:
    return [int(path.name) for path in PROC_DIR.iterdir() if path.name.isdecimal()]


def _read_stat_fields(pid: int) -> list[str] | None:
    """State, parent and so on: what /proc says after the name, which may hold spaces and brackets."""
    try:
        return (PROC_DIR / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def _find_process(pid: int) -> Process | None:
    fields = _read_stat_fields(pid)
    return None if fields is None or fields[0] in "ZX" else Process(pid, int(fields[19]))


def _find_parent(pid: int) -> int | None:
    fields = _read_stat_fields(pid)
    return None if fields is None else int(fields[1])
