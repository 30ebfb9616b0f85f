"""Seconds of a round: the plain literal loop beside fedtrain's backend.

Usage: python benchmarks/training_speed.py --workload w1 --json

The loop is `benchmarks/reference.py`: what the published code does, one client after the other, a DataLoader that
prepares one sample at a time, a deep copy wherever one is handy, SGD of torch. Each side has a process of its own; they
make their rounds in turn, and between them, while both wait, a large matrix product is timed. The first round warms up
and is not counted (Fed-CO2 distils from the second on). A round is training, averaging and evaluation at the same
schedule.

  ratio        plain / backend, of rounds made one after the other: the median, the lowest and the highest
  gemm_share   useful flops a second, as a share of a large float32 product's on as many threads. Useful are products of
               convolutions and linear layers: no gradients of frozen weights or of images, nothing elementwise
               (gemm_share_cpu: the same of processor time, on a machine that others use too)
  ratio_limit  the ratio that a backend would reach at the speed of that product
  time_goes    shares of a backend's round, seen by torch's profiler, on one thread and one client after the other
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import get_args

os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # before torch is loaded, and for both sides: as the command does

from training_speed_lib.child import Task, run_side
from training_speed_lib.measure_sides import measure
from training_speed_lib.report import format_table, plot
from training_speed_lib.workloads import WORKLOADS

from fedtrain.config.schema import BackendName

METHODS = ("fedavg", "fedbn", "fedco2")


def main() -> None:
    """Measure, print."""
    options = parse_arguments()
    if options.child:
        side, task = options.child
        run_side(side, Task(**json.loads(task)))
        return
    first = Task(
        options.workload, options.method, options.repeats + 1, options.threads, options.small, options.plain_data,
        not options.no_fast_path, options.backend, options.rival or "", options.code or "", options.samples,
    )  # fmt: skip
    chosen = product(
        WORKLOADS if options.workload == "all" else [options.workload],
        METHODS if options.method == "all" else [options.method],
    )
    found = [] if options.seen else [measure(replace(first, workload=w, method=m)) for w, m in chosen]
    for path in options.seen or ():
        seen = json.loads(path.read_text(encoding="utf-8"))
        found += seen.get("cases", [seen])
    if options.json:
        print(json.dumps(found[0] if len(found) == 1 else {"cases": found}))
    else:
        print(format_table(found))
    if options.plot:
        plot(found, options.plot)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=[*WORKLOADS, "all"], default="w1")
    parser.add_argument("--method", choices=[*METHODS, "all"], default="fedco2")
    parser.add_argument("--repeats", type=int, default=3, help="rounds that are counted")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of each side")
    how = "how the plain loop gets its images: through Pillow, Office's from their files; or from memory"
    parser.add_argument("--plain-data", choices=("as-published", "memory"), default="as-published", help=how)
    parser.add_argument("--no-fast-path", action="store_true", help="train with plain steps")
    parser.add_argument("--backend", choices=get_args(BackendName), default="auto")
    parser.add_argument("--small", action="store_true", help="toy sizes, to see that it works")
    parser.add_argument("--json", action="store_true", help="print one JSON object; of several cases, {cases: [...]}")
    parser.add_argument("--plot", type=Path, help="draw it")
    parser.add_argument("--seen", type=Path, nargs="+", help="files of --json to show instead of measuring")
    whose = "race other people's code instead of the plain loop (training_speed_lib/others.py says which)"
    parser.add_argument("--rival", choices=("authors", "pfllib"), help=whose)
    parser.add_argument("--code", help="the folder with the rival's code, as git clones it")
    parser.add_argument("--samples", type=int, help="training samples of each client, and half as many to test")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if bool(asked.rival) != bool(asked.code):
        parser.error("--rival and --code go together")
    return asked


if __name__ == "__main__":
    main()
