"""How a round grows: python benchmarks/scaling.py [--json] [--plot FILE.png] [--repeats 3].

Seconds and peak memory of a round of Fed-CO2 against the number of clients (5 train in each round, all are evaluated),
against their data and against the width of the network; each point in a process of its own. Beside the peak stands what
must be in memory: what clients keep, and their data.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # before torch is loaded: as the command does

import torch
from training_speed_lib.child import read_peak_memory
from training_speed_lib.workloads import Workload

from fedtrain.federated.server import federate
from fedtrain.utils.malloc import keep_freed_memory

CLIENTS_PER_ROUND = 5
"""Clients that train in a round."""
SWEEPS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "clients": ("clients", [{"clients": n} for n in (5, 10, 20, 50, 100, 200, 500)]),
    "images": ("training images a client", [{"images": n} for n in (50, 100, 200, 400, 800, 1600)]),
    "width": ("hidden units of two-layer", [{"width": n} for n in (128, 256, 512, 1024, 2048, 4096)]),
}
ScalingPoint = dict[str, float]


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--repeats", type=int, default=3, help="rounds that are counted, after one that is not")
    parser.add_argument("--plot", type=Path, help="draw it")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.point:
        print(json.dumps(measure_point(options.repeats, **json.loads(options.point))))
        return
    found = {
        name: [measure_in_subprocess(where, options.repeats) for where in points]
        for name, (_, points) in SWEEPS.items()
    }
    if options.json:
        print(json.dumps({"threads": torch.get_num_threads(), "torch": torch.__version__, **found}))
    else:
        print("\n\n".join(format_table(name, points) for name, points in found.items()))
    if options.plot:
        plot(found, options.plot)


def measure_in_subprocess(where: dict[str, Any], repeats: int) -> ScalingPoint:
    """One point, in a process of its own."""
    command = [sys.executable, __file__, "--repeats", str(repeats), "--point", json.dumps(where)]
    found: ScalingPoint = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return {**where, **found}


def measure_point(repeats: int, clients: int = 5, images: int = 50, width: int = 0) -> ScalingPoint:
    """Rounds in this process; with a ``width`` of the two-layer network, else of the one for CIFAR."""
    bare = read_peak_memory()
    keep_freed_memory()
    model = {"model": {"name": "two-layer", "width": width}} if width else {}
    sizes = Workload("growth", "cifar10", 32, (images,) * clients, (10,) * clients, evaluate_train=False)
    work = sizes.build_experiment(
        "fedco2", {"server": {"participation": CLIENTS_PER_ROUND / clients}, "local": {"epochs": 1}, **model}
    )
    backend, server = work.build_backend(), work.config.server
    training, evaluation = [], []
    coming = federate(
        backend, backend.initial_broadcast(), repeats + 1, participation=server.participation, weights=server.weights
    )
    for _ in range(repeats + 1):
        begun = time.perf_counter()
        message = next(coming).message
        trained = time.perf_counter()
        backend.evaluate(message, sizes.splits)
        training.append(trained - begun)
        evaluation.append(time.perf_counter() - trained)
    kept = sum(value.nbytes for state in backend.client_states.values() for value in state.values())
    data = sum(part.inputs.nbytes for client in work.federation.clients for part in (client.train, client.test))
    return {
        "train_s": statistics.median(training[1:]),
        "evaluate_s": statistics.median(evaluation[1:]),
        "peak_mb": read_peak_memory(),
        "bare_mb": bare,
        "kept_mb": kept / 1e6,
        "data_mb": data / 1e6,
    }


def format_table(name: str, points: Sequence[ScalingPoint]) -> str:
    """In Markdown."""
    heads = (
        SWEEPS[name][0],
        "training, s",
        "evaluation, s",
        "peak, MB",
        "torch alone, MB",
        "clients keep, MB",
        "data, MB",
    )
    keys = (name, "train_s", "evaluate_s", "peak_mb", "bare_mb", "kept_mb", "data_mb")
    rows = [f"| {' | '.join(f'{one[key]:.4g}' for key in keys)} |" for one in points]
    return "\n".join([f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *rows])


def plot(found: dict[str, list[ScalingPoint]], path: Path) -> None:
    """Three panels of seconds, and under each its memory."""
    from theory.report.plot_style import (
        DASHED,
        FULL_WIDTH,
        create_canvas,
        save_figure,
        set_log_axis,
        set_x_ticks,
        use_plot_style,
    )

    blue, orange, green = "#0072B2", "#D55E00", "#009E73"
    with use_plot_style():
        body = create_canvas(
            f"A round of Fed-CO2 in which {CLIENTS_PER_ROUND} clients train and all are evaluated "
            "(all axes logarithmic)",
            FULL_WIDTH,
            6.0,
        )
        for column, (name, points) in enumerate(found.items()):
            x = [one[name] for one in points]
            seconds, memory = body.add_subplot(2, 3, column + 1), body.add_subplot(2, 3, column + 4)
            parts = {"training": ("train_s", blue, "o-"), "evaluation": ("evaluate_s", orange, "s-")}
            for label, (key, colour, look) in parts.items():
                seconds.plot(x, [one[key] for one in points], look, color=colour, label=label)
            set_log_axis(seconds, [one[key] for one in points for key in ("train_s", "evaluate_s")])
            needed = [one["kept_mb"] + one["data_mb"] for one in points]
            above = [one["peak_mb"] - one["bare_mb"] for one in points]
            memory.plot(x, above, "o-", color=blue, label="peak, above torch alone")
            memory.plot(x, needed, "^", ls=DASHED, color=green, label="kept by clients, and data")
            set_log_axis(memory, above + needed)
            for axes in (seconds, memory):
                set_log_axis(axes, x, "x")
                set_x_ticks(axes, x, panels=3)
            seconds.set_title(f"against {SWEEPS[name][0]}")
            memory.set_xlabel(SWEEPS[name][0])
            if not column:
                seconds.set_ylabel("seconds a round")
                memory.set_ylabel("MB")
                seconds.legend()
            elif name == "images":
                memory.legend(loc="center")  # where no curve is
        save_figure(body, path)


if __name__ == "__main__":
    main()
