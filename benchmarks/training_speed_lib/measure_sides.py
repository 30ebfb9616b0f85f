"""Both sides in turn, and what their times come to."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from training_speed_lib.child import Task
from training_speed_lib.timing import FlopRate, count_useful_flops, measure_sgemm_rate

SCRIPT = Path(__file__).resolve().parents[1] / "training_speed.py"


class SideProcess:
    """A process that makes one side's rounds, each on a signal."""

    def __init__(self, name: str, task: Task) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), "--child", name, json.dumps(asdict(task))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(task.threads)},
        )

    def __enter__(self) -> SideProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error:
            self.process.kill()
        self.process.communicate()  # closes its stdin: it ends by itself

    def run_round(self) -> dict[str, float]:
        """Start a round, and wait for its measurements."""
        assert self.process.stdin
        assert self.process.stdout
        with suppress(BrokenPipeError):
            print(file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"error: the process of the {self.name} side ended early; its output is above")
        found: dict[str, float] = json.loads(line)
        return found


def measure(task: Task) -> dict[str, Any]:
    """One workload with one method."""
    torch.set_num_threads(task.threads)
    load = os.getloadavg()[0]
    useful = count_useful_flops(task.build_experiment(), task.workload_spec.splits, task.rounds)
    turns: dict[str, list[dict[str, float]]] = {"plain": [], "fast": []}
    rates = []
    with SideProcess("plain", task) as plain, SideProcess("fast", task) as fast:
        for round in range(task.rounds):
            for side in (plain, fast) if round % 2 else (fast, plain):  # drift is nobody's advantage
                turns[side.name].append(side.run_round())
            rates.append(measure_sgemm_rate(512 if task.small else 2048))
    with SideProcess("profile", task) as alone:
        goes = alone.run_round()
    around = [FlopRate(*((a + b) / 2 for a, b in zip(*both, strict=True))) for both in pairwise(rates)]
    return summarise_times(turns["plain"][1:], turns["fast"][1:], useful, around) | {
        "workload": task.workload, "method": task.method, "small": task.small, "what": task.workload_spec.title,
        "evaluated": task.workload_spec.splits,
        "plain_data": task.reference_data, "fast_path": task.fast_path, "backend": task.backend,
        "repeats": task.rounds - 1, "threads": task.threads, "torch": torch.__version__, "cpu": read_cpu_name(),
        "rival": task.rival, "samples": task.samples, "time_goes": goes, "load_before": load,
        "rounds": {"plain": turns["plain"][1:], "fast": turns["fast"][1:], "sgemm": around, "useful": useful},
    }  # fmt: skip


def summarise_times(
    plain: list[dict[str, float]], fast: list[dict[str, float]], useful: list[float], rates: list[FlopRate]
) -> dict[str, float]:
    """Medians over the rounds, each of which is judged by itself."""
    median = statistics.median
    ratios = [slow["wall"] / quick["wall"] for slow, quick in zip(plain, fast, strict=True)]
    least = [flops / rate.wall for flops, rate in zip(useful, rates, strict=True)]
    shares = [seconds / turn["wall"] for seconds, turn in zip(least, fast, strict=True)]
    by_cpu = [flops / rate.cpu / turn["cpu"] for flops, rate, turn in zip(useful, rates, fast, strict=True)]
    return {
        "plain_s": median(turn["wall"] for turn in plain),
        "fast_s": median(turn["wall"] for turn in fast),
        "ratio": median(ratios),
        "ratio_low": min(ratios),
        "ratio_high": max(ratios),
        "gemm_share": median(shares),
        "gemm_share_low": min(shares),
        "gemm_share_high": max(shares),
        "gemm_share_cpu": median(by_cpu),
        "plain_gemm_share": median(seconds / turn["wall"] for seconds, turn in zip(least, plain, strict=True)),
        "peak_mb": max(turn["peak_mb"] for turn in fast),
        "plain_peak_mb": max(turn["peak_mb"] for turn in plain),
        "plain_cpu_s": median(turn["cpu"] for turn in plain),
        "fast_cpu_s": median(turn["cpu"] for turn in fast),
        "ratio_cpu": median(slow["cpu"] / quick["cpu"] for slow, quick in zip(plain, fast, strict=True)),
        "ratio_limit": median(turn["wall"] / seconds for turn, seconds in zip(plain, least, strict=True)),
        "gemm_gflops": median(rate.wall for rate in rates) / 1e9,
        "useful_gflop": median(useful) / 1e9,
    }


def read_cpu_name() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
