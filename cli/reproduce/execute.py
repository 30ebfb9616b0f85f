"""How ``fedco2 reproduce`` has its runs made, and how it is stopped."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence

from cli.console import make_console
from cli.interrupt import handle_interrupts
from cli.reproduce.view import JobsProgress
from fedtrain.reproduce.estimate import estimate_run_seconds
from fedtrain.reproduce.jobs import Job
from fedtrain.reproduce.plan import Plan
from fedtrain.reproduce.runner import JobOutcome, run_jobs


def count_cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_unfinished_jobs(
    plans: Sequence[Plan], todo: Sequence[Job], threads: int, extra: Sequence[str], at_once: int
) -> list[JobOutcome]:
    """Run what is not finished."""
    if not todo:
        return []
    weights = estimate_job_seconds(plans, todo)
    command = [sys.executable, "-m", "cli.reproduce.child_process", str(os.getpid())]
    watch = JobsProgress(make_console(stderr=True), weights)
    longest_first = sorted(todo, key=lambda job: -weights[job])  # or it would be the last one, alone
    with handle_interrupts(lambda: describe_resume(todo)), watch:
        return run_jobs(longest_first, command, extra, at_once, threads, watch)


def estimate_job_seconds(plans: Sequence[Plan], todo: Sequence[Job]) -> dict[Job, float]:
    """Seconds that each will take from its first round to its last, roughly; none if it is finished."""
    found = {name: data for one in plans for name, data in one.sources.items()}
    return {
        job: 0.0 if job.finished else estimate_run_seconds(job.spec, found[job.spec.config.data.dataset])
        for job in todo
    }


def describe_resume(todo: Sequence[Job]) -> str:
    """How far it came, and the command that goes on."""
    done = sum(job.finished for job in todo)
    way = shlex.join(["fedco2", *sys.argv[1:]])
    return f"after {done} of {len(todo)} runs, the others are saved; go on with: {way}"
