"""One side in a process of its own: a line on stdin begins a round, a line on stdout says what it took."""

from __future__ import annotations

import json
import resource
import sys
import time
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from fedtrain.runs.experiment import Experiment
from fedtrain.utils.malloc import keep_freed_memory
from training_speed_lib.others import run_authors_rounds, run_pfllib_rounds
from training_speed_lib.sides import run_backend_rounds, run_reference_rounds
from training_speed_lib.timing import profile_round
from training_speed_lib.workloads import TOY_WORKLOADS, WORKLOADS, Workload


@dataclass(frozen=True)
class Task:
    """What both sides are to do, and what concerns only one of them."""

    workload: str
    method: str
    rounds: int
    threads: int
    small: bool = False
    reference_data: str = "as-published"
    fast_path: bool = True
    backend: str = "auto"
    rival: str = ""
    """Whose code takes the place of the plain loop."""
    code: str = ""
    """The folder of that code."""
    samples: int | None = None
    """Of each client's training data, half as many of its test data; None: as the workload has them."""

    @property
    def workload_spec(self) -> Workload:
        """The workload."""
        spec = (TOY_WORKLOADS if self.small else WORKLOADS)[self.workload]
        if self.samples is None:
            return spec
        clients, tested = len(spec.train), max(1, self.samples // 2)
        title = f"{spec.title.partition(':')[0]}: {clients} clients x {self.samples} images, {tested} test images each"
        return replace(spec, title=title, train=(self.samples,) * clients, test=(tested,) * clients)

    def build_experiment(self) -> Experiment:
        """The clients with their data; not augmented where the plain loop takes them as they are."""
        machine = {"device": "cpu", "fast_path": self.fast_path, "backend": self.backend}
        given = {"machine": machine} | ({} if self.reads_published_data else {"data": {"augment": False}})
        if self.rival == "pfllib":  # as it trains
            given |= {"local": {"momentum": 0.0, "weight_decay": 0.0, "last_batch": "drop"}}
            given |= {"data": {"augment": False}}
        return self.workload_spec.build_experiment(self.method, given)

    @property
    def reads_published_data(self) -> bool:
        """Whether the plain loop reads its data as the published code does."""
        return self.reference_data == "as-published"


class RoundSignal:
    """Waits for the signal to begin a round, and reports the round at the next call."""

    def __init__(self) -> None:
        self.told = sys.stdout

    def __call__(self, round: int) -> None:
        """A round begins: the one before it is over."""
        if round:
            self.report_round()
        if not sys.stdin.readline():
            raise SystemExit  # the parent process is gone
        self.wall, self.cpu = time.perf_counter(), read_cpu_seconds()

    def report_round(self) -> None:
        """Say what the round took."""
        took = {
            "wall": time.perf_counter() - self.wall,
            "cpu": read_cpu_seconds() - self.cpu,
            "peak_mb": read_peak_memory(),
        }
        print(json.dumps(took), flush=True, file=self.told)


def run_side(side: str, task: Task) -> None:
    """Make the rounds of one side; or, one client after the other, profile where the time of a backend's round goes."""
    task = replace(task, threads=1, backend="serial") if side == "profile" else task
    torch.set_num_threads(task.threads)
    experiment, splits, turns = task.build_experiment(), task.workload_spec.splits, RoundSignal()
    if side == "plain" and task.rival:
        run_rounds = {"authors": run_authors_rounds, "pfllib": run_pfllib_rounds}[task.rival]
        with redirect_stdout(sys.stderr):  # they talk
            run_rounds(experiment, splits, task.rounds, turns, task.code)
        turns.report_round()
    elif side == "plain":
        run_reference_rounds(experiment, splits, task.rounds, turns, task.reads_published_data)
        turns.report_round()
    else:
        keep_freed_memory()  # as `fedco2 train` does
        if side == "profile":
            print(json.dumps(profile_round(experiment, splits)), flush=True)
            return
        run_backend_rounds(experiment, splits, task.rounds, turns)
        turns.report_round()
    sys.stdin.read()  # to clean up takes time as well, which must not fall into the other side's last round


def read_cpu_seconds() -> float:
    """Of all threads, and of processes that were started here and have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def read_peak_memory() -> float:
    """Most memory so far, in MB. Not ru_maxrss, which begins with that of the parent process."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1000
