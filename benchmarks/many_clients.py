#!/usr/bin/env python
"""What a run costs as clients become many: python benchmarks/many_clients.py [--json] [--plot FILE.png].

FedBN on a two-layer network; clients of 50 samples each (numbers drawn here), whose state is on disk. Ten train in each
round and as many are evaluated, however many others there are: seconds of a round, of what comes before the first one
and of resuming, peak memory and the size of the run folder, each number of clients in a process of its own. Then one
run of --most clients with 1 % of them in each round, interrupted half-way and resumed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # before torch is loaded: as the command does

import torch
from training_speed_lib.child import read_peak_memory

import fedtrain
from fedtrain.data.client_data import ClientData, Samples
from fedtrain.runs.callbacks import RoundProgress, RunStart

ROOT = Path(__file__).resolve().parents[1]
NUMBERS = (10, 100, 1000, 10_000)
"""Clients."""
SAMPLES, TEST_SAMPLES, FEATURES, CLASSES, WIDTH = 50, 20, 64, 10, 64
AT_ONCE = 10
"""Clients that train in a round, and as many that are evaluated."""
Point = dict[str, Any]


class Stopwatch(fedtrain.Callback):
    """Seconds of each round, as the run itself measures them, and when the first one began."""

    def __init__(self) -> None:
        self.begun, self.seconds = time.perf_counter(), list[float]()

    def on_run_start(self, start: RunStart) -> None:
        """Everything is ready."""
        self.ready_seconds, self.resumed = time.perf_counter() - self.begun, start.rounds_done

    def on_round_end(self, progress: RoundProgress) -> None:
        """One more."""
        self.seconds.append(progress.seconds)


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=20, help="rounds with ten clients each (default: 20)")
    parser.add_argument("--most", type=int, default=10_000, help="clients of the long run (default: 10,000)")
    parser.add_argument("--long-rounds", type=int, default=100, help="its rounds (default: 100)")
    parser.add_argument("--plot", type=Path, help="draw it")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.point:
        print(json.dumps(measure_point(**json.loads(asked.point))))
        return
    points = [measure_apart(number, asked.rounds, min(1.0, AT_ONCE / number)) for number in NUMBERS]
    long = measure_apart(asked.most, asked.long_rounds, 0.01)
    if asked.json:
        print(json.dumps({"points": points, "long": long}))
    else:
        print(format_table([*points, long]))
    if asked.plot:
        plot(points, asked.plot)


def measure_apart(clients: int, rounds: int, participation: float) -> Point:
    """A run and its resumption, each in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        where = {"clients": clients, "participation": participation, "folder": f"{folder}/run"}
        first, second = (call_point({**where, "rounds": rounds // 2 * half}) for half in (1, 2))
    return {
        "clients": clients,
        "per_round": max(1, int(clients * participation)),
        "rounds": rounds,
        "round_s": statistics.median([*first["seconds"][1:], *second["seconds"][1:]]),
        "processor_s": (first["processor_s"] + second["processor_s"]) / rounds,
        "start_s": first["ready_s"],
        "resume_s": second["ready_s"],
        "peak_mb": max(first["peak_mb"], second["peak_mb"]),
        "folder_mb": second["folder_mb"],
    }


def call_point(where: dict[str, Any]) -> Point:
    """One process."""
    command = [sys.executable, __file__, "--point", json.dumps(where)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    found: Point = json.loads(done.stdout.splitlines()[-1])
    return found


def measure_point(clients: int, rounds: int, participation: float, folder: str) -> Point:
    """Begin a run here, or go on with it."""
    data, watch = build_clients(clients), Stopwatch()
    begun = time.process_time()
    is_there = Path(folder).exists()
    fedtrain.train(
        clients=data,
        callbacks=[watch],
        rounds=rounds,
        quiet=True,
        backend="serial",
        threads=1,
        **({"resume": folder} if is_there else describe_run(participation, folder)),
    )
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    return {
        "seconds": watch.seconds,
        "ready_s": watch.ready_seconds,
        "processor_s": time.process_time() - begun,
        "peak_mb": read_peak_memory(),
        "folder_mb": sum(path.stat().st_size for path in files) / 1e6,
    }


def describe_run(participation: float, folder: str) -> dict[str, Any]:
    """What is said of a new run."""
    return {
        "method": "fedbn",
        "model": "two-layer",
        "participation": participation,
        "local_epochs": 1,
        "batch_size": 25,
        "client_state": "disk",
        "eval_every": 10,
        "eval_clients": AT_ONCE,
        "settings": {"model.width": WIDTH},
        "out": folder,
    }


def build_clients(number: int) -> list[ClientData]:
    """Clients whose inputs differ by a shift; what is right is the largest of some of the numbers."""
    generator = torch.Generator().manual_seed(0)

    def draw(samples: int) -> Samples:
        inputs = torch.randn(samples, FEATURES, generator=generator) + torch.randn(FEATURES, generator=generator)
        return Samples(inputs, inputs[:, :CLASSES].argmax(1))

    return [ClientData(f"client{k:05}", draw(SAMPLES), draw(TEST_SAMPLES)) for k in range(number)]


HEADS = {
    "clients": "clients",
    "per_round": "train in a round",
    "rounds": "rounds",
    "round_s": "a round, s",
    "processor_s": "processor time a round, all told, s",
    "start_s": "before the first, s",
    "resume_s": "to resume, s",
    "peak_mb": "peak memory, MB",
    "folder_mb": "run folder, MB",
}


def format_table(points: Sequence[Point]) -> str:
    """In Markdown."""
    rows = [f"| {' | '.join(format_number(one[key]) for key in HEADS)} |" for one in points]
    return "\n".join([f"| {' | '.join(HEADS.values())} |", "|---" * len(HEADS) + "|", *rows])


def format_number(value: float) -> str:
    """Three digits, or a whole number."""
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def plot(points: Sequence[Point], path: Path) -> None:
    """Three panels: seconds, memory, the folder."""
    from theory.report.plot_style import FULL_WIDTH, create_canvas, save_figure, set_log_axis, use_plot_style

    panels = {
        "seconds": {"round_s": "a round", "start_s": "before the first round", "resume_s": "to resume"},
        "MB of memory at most": {"peak_mb": "the process"},
        "MB on disk": {"folder_mb": "the run folder"},
    }
    colours = ("#0072B2", "#D55E00", "#009E73")
    with use_plot_style():
        body = create_canvas(f"{AT_ONCE} of so many clients train in a round (axes logarithmic)", FULL_WIDTH, 3.4)
        for axes, (title, lines) in zip(body.subplots(1, 3), panels.items(), strict=True):
            x = [one["clients"] for one in points]
            for colour, (key, label) in zip(colours, lines.items(), strict=False):
                axes.plot(x, [one[key] for one in points], color=colour, marker="o", markersize=3.5, label=label)
            set_log_axis(axes, x, "x")
            set_log_axis(axes, [one[key] for one in points for key in lines])
            axes.set_title(title)
            axes.set_xlabel("clients")
            axes.legend(fontsize=8)
        save_figure(body, path)


if __name__ == "__main__":
    main()
