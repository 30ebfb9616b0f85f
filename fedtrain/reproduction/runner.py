"""Run each as a process of its own, some at a time; one that fails leaves the others alone."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedtrain.reproduction.jobs import Job
from fedtrain.runs.folder import LOCK_FILE, RunFolder
from theory.errors import InputError

PAUSE = 0.2
"""Seconds between looks at the processes."""
GRACE = 60.0
"""Seconds for a process that was asked to end: it saves its last round."""
LOG_TAIL_BYTES = 4000


@dataclass(eq=False)
class RunningJob:
    """A process at work on a cell; None: another program has it."""

    job: Job
    process: subprocess.Popen[bytes] | None
    start: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class JobOutcome:
    """What became of a cell."""

    job: Job
    code: int
    seconds: float


CommandBuilder = Callable[[Job], list[str]]
"""How to begin a job, or go on with it, as a process."""
ProgressCallback = Callable[[Sequence[RunningJob], Sequence[JobOutcome], int], None]
"""Called now and then with what runs, what ended, and how many wait."""


def run_jobs(
    jobs: Sequence[Job], build_command: CommandBuilder, at_once: int, watch: ProgressCallback
) -> list[JobOutcome]:
    """Run every job by its command. Ends all if interrupted."""
    waiting, running, done = list(jobs), list[RunningJob](), list[JobOutcome]()
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                running.append(start_job(waiting.pop(0), build_command))
            watch(running, done, len(waiting))
            time.sleep(PAUSE)
            for one in [one for one in running if has_ended(one)]:
                running.remove(one)
                code = 0 if one.process is None else one.process.returncode
                left = one.process is None and not one.job.finished  # whoever had it left it unfinished
                if left or (code and is_locked(one.job.folder)):  # or was quicker than we
                    waiting.insert(0, one.job)
                else:
                    done.append(JobOutcome(one.job, code, time.monotonic() - one.start))
        watch(running, done, 0)
    except BaseException:
        stop_processes([one.process for one in running if one.process is not None])
        raise
    return done


def start_job(job: Job, build_command: CommandBuilder) -> RunningJob:
    """Begin or go on; if another program is at work in the folder, wait for it instead."""
    if is_locked(job.folder):
        return RunningJob(job, None)
    job.log.parent.mkdir(parents=True, exist_ok=True)
    with job.log.open("ab") as log:
        process = subprocess.Popen(
            build_command(job),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},  # the log tells how far it is
            start_new_session=True,  # Ctrl-C is for us; we ask our processes to end, once
        )
    return RunningJob(job, process)


def has_ended(one: RunningJob) -> bool:
    """Whether it is over."""
    return not is_locked(one.job.folder) if one.process is None else one.process.poll() is not None


def is_locked(folder: Path) -> bool:
    """Whether a living process is at work there; the lock of a dead one is free."""
    if not (folder / LOCK_FILE).exists():
        return False
    try:
        with RunFolder(folder).exclusive_lock():
            return False
    except InputError:
        return True


def stop_processes(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ask them to save and end; kill those that do not, or all if the user insists."""
    for process in processes:
        process.terminate()
    try:
        for process in processes:
            process.wait(GRACE)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        for process in processes:
            process.kill()
            process.wait()


def read_rounds_done(job: Job) -> int:
    """As its log says."""
    try:
        with job.log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_TAIL_BYTES))
            found = re.findall(rb"^round +(\d+)/", file.read(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[-1]) if found else 0


def read_last_log_line(job: Job) -> str:
    """The last line of its log."""
    try:
        lines = job.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1] if lines else "it printed nothing"
