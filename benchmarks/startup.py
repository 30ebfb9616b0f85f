#!/usr/bin/env python
"""How long ``fedco2 train`` takes from its start to the end of its first step, with and without torch's compiler.

Two kinds of processes take turns: *before* makes its steps with the class ``torch.optim.SGD``, whose first instance
loads the compiler; *after* is fedco2 as it is, which calls torch's function for SGD. Both are the same run of Digits
stand-ins, in which each process ends when its first step is done.

    python benchmarks/startup.py --repeats 5
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("before", "after")
LIST = "reproduce --list"
COMPILER = ("torch._dynamo", "sympy")


def main() -> None:
    """Take turns, then show medians."""
    parser = argparse.ArgumentParser(description="Measure the time to the first step of fedco2 train.")
    parser.add_argument("--repeats", type=int, default=5, help="processes of each kind (default: 5)")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    parser.add_argument("--child", choices=KINDS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        run_to_first_step(asked.child)
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in (*KINDS, LIST)}
    for _ in range(asked.repeats):
        for kind in KINDS:
            found[kind].append(time_child(kind))
        found[LIST].append(time_list())
    if asked.json:
        print(json.dumps(found))
        return
    for kind, measured in found.items():
        wall, processor = (median(one[what] for one in measured) for what in ("seconds", "processor_seconds"))
        print(f"{kind:<17} {wall:6.2f} s, {processor:5.2f} s of processor time  (median of {len(measured)})")
    shares = [one["seconds"] / other["seconds"] for one, other in zip(found["before"], found["after"], strict=True)]
    print(f"ratio             {median(shares):6.2f}  ({min(shares):.2f} to {max(shares):.2f})")


def run_to_first_step(kind: str) -> None:
    """Begin a run, say when its first step is over, and end at once."""
    import torch

    from cli.main import main as run_command
    from fedtrain.federated import sgd

    step = sgd.OptimizerStep.__call__

    def say_and_end(self, loss):  # type: ignore[no-untyped-def]
        step(self, loss)
        compiler = any(name in sys.modules for name in COMPILER)
        print(json.dumps({"end": time.time(), "processor_seconds": time.process_time(), "compiler": compiler}))
        sys.stdout.flush()
        os._exit(0)

    def build_with_class(self, groups, local):  # type: ignore[no-untyped-def]
        return torch.optim.SGD(groups, local.lr, momentum=local.momentum, weight_decay=local.weight_decay, fused=True)

    sgd.OptimizerStep.__call__ = say_and_end  # type: ignore[method-assign]
    if kind == "before":
        sgd.SGDStep.build_optimizer = build_with_class  # type: ignore[method-assign]
        from fedtrain.federated.fast_path.fused_sgd import FusedSGDStep

        FusedSGDStep.build_optimizer = build_with_class  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        run_command(
            ["train", "--dataset", "digits", "--data", "standin", "--backend", "serial", "--out", f"{folder}/run"]
        )


def time_child(kind: str) -> dict[str, float]:
    """Seconds from the start of a process to the end of its first step."""
    start = time.time()
    done = run_python([__file__, "--child", kind])
    said = json.loads(next(line for line in done.stdout.splitlines() if line.startswith('{"end"')))
    if said["compiler"] != (kind == "before"):
        raise SystemExit(f"{kind}: torch's compiler is {'' if said['compiler'] else 'not '}loaded; nothing is compared")
    return {"seconds": said["end"] - start, "processor_seconds": said["processor_seconds"]}


def time_list() -> dict[str, float]:
    """Seconds of ``fedco2 reproduce --list``."""
    start, before = time.time(), os.times()
    run_python(["-m", "cli", "reproduce", "--list"])
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return {"seconds": time.time() - start, "processor_seconds": used}


def run_python(words: list[str]) -> subprocess.CompletedProcess[str]:
    """A process of this tree."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=True, env=environment, cwd=ROOT
    )


if __name__ == "__main__":
    main()
