"""Hostile files for every reader: python benchmarks/fuzz.py --count 10000 [--reader NAME] [--seed S].

Each reader works in a process of its own, with bounded memory. It may give a result or an `InputError` of one printable
line, and nothing else: no other exception, no warning, no crash, no more than 5 s, no file outside of the target, no
program called, no connection. The offending input is kept, and the exit status is 1. Input i of a reader depends on
(reader, seed, i) alone.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch are loaded

from fuzzing.dataset_files import build_idx_seeds
from fuzzing.monitor import ReaderMonitor
from fuzzing.mutate import mutate_seed
from fuzzing.readers import READERS, Reader
from fuzzing.seed_file import Seed, build_plain_seed

MEMORY_LIMIT = 3 * 2**30
"""Bytes of address space of a process; torch and NumPy take about 0.8 GiB of it."""
MAX_MUTATED_ATTACK = 2**16
"""Attacks of up to so many bytes are also damaged."""
CANARY_FILE = "canary"
BASE_TIMEOUT = 300.0
"""Seconds of a process beside 0.2 for each input."""


def fuzz_reader(name: str, count: int, seed: int, keep: Path) -> dict[str, Any]:
    """Try one reader; what came of it."""
    reader, box = READERS[name], Path.cwd()
    made = reader.attacks(str(box / CANARY_FILE))
    seeds = [*reader.seeds()]
    mixed = [
        *seeds * (1 + len(made) // len(seeds)),
        *(build_plain_seed(one) for one in made if len(one) <= MAX_MUTATED_ATTACK),
    ]
    home = box / "home" / "digits"
    home.mkdir(parents=True)
    for other, one in zip(("images", "labels"), build_idx_seeds(), strict=False):
        (home / other).write_bytes(one.content)
    file, target = home / reader.file, box / "home" / "target"
    watch = ReaderMonitor(target)
    result: dict[str, Any] = {"inputs": 0, "accepted": 0, "slowest": 0.0, "memory": 0, "wrong": []}
    for number in range(-len(made) - len(seeds), count):
        data = _build_input(reader, name, seed, number, seeds, made, mixed)
        for place in (reader.file, reader.copy or reader.file):
            (home / place).write_bytes(data)
        outcome = watch.run_reader(lambda: reader.read(file, target), box)
        shutil.rmtree(target, ignore_errors=True)
        wrong = outcome.violation or ("created a file by a call" if (box / CANARY_FILE).exists() else "")
        if number < -len(made) and not (outcome.accepted or wrong) and name != "image":  # some images are not read
            wrong = "a good file is refused"
        if wrong:
            keep.mkdir(parents=True, exist_ok=True)
            (keep / f"{name}-{seed}-{number}").write_bytes(data)
            result["wrong"].append(f"{name}-{seed}-{number}: {wrong}")
        result["inputs"] += 1
        result["accepted"] += outcome.accepted
        result["slowest"] = max(result["slowest"], outcome.seconds)
        result["memory"] += outcome.memory if result["inputs"] > len(seeds) else 0  # the first ones load libraries
    return result


def _build_input(
    reader: Reader, name: str, seed: int, number: int, seeds: list[Seed], made: list[bytes], mixed: list[Seed]
) -> bytes:
    """Good files come first, then attacks (both numbered below 0), then damage."""
    if number < -len(made):
        return seeds[number].content if not made else seeds[number + len(made)].content
    if number < 0:
        return made[number]
    return mutate_seed(mixed, Random(f"{name} {seed} {number}"), reader.words)


def fuzz_in_subprocess(name: str, count: int, seed: int, keep: Path) -> dict[str, Any]:
    """The same in a process that may die of it."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as box:
        command = [sys.executable, __file__, "--inside", "--reader", name, "--count", str(count), "--seed", str(seed)]
        limit = f"{BASE_TIMEOUT + 0.2 * count:.0f}"  # for what waits, or never lets the signal of the clock through
        whole = ["timeout", "--signal=KILL", limit, *command, "--keep", str(keep)]
        done = subprocess.run(whole, cwd=box, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
            return result
        keep.mkdir(parents=True, exist_ok=True)
        for left in Path(box).glob(f"home/digits/{READERS[name].file}"):
            shutil.copy(left, keep / f"{name}-{seed}-died")
        what = f"{name}-{seed}-died: status {done.returncode}: {done.stderr[-2000:]}"
        return {"inputs": 0, "accepted": 0, "slowest": 0.0, "memory": 0, "wrong": [what]}


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000, help="mutated inputs of each reader")
    parser.add_argument("--reader", choices=READERS, action="append", help="one reader; may be given again")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-findings"), help="where offending inputs go")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    keep = options.keep.absolute()
    if options.inside:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
        print(json.dumps(fuzz_reader(options.reader[0], options.count, options.seed, keep)))
        return 0
    print(f"{'reader':14}{'inputs':>8}{'accepted':>10}{'refused':>9}{'slowest s':>11}{'memory MiB':>12}{'wrong':>7}")
    bad: list[str] = []
    for name in options.reader or READERS:
        found = fuzz_in_subprocess(name, options.count, options.seed, keep)
        inputs, accepted, wrong = found["inputs"], found["accepted"], found["wrong"]
        line = f"{name:14}{inputs:8}{accepted:10}{inputs - accepted:9}{found['slowest']:11.2f}"
        print(f"{line}{found['memory'] / 2**20:12.0f}{len(wrong):7}", flush=True)
        bad += wrong
    for one in bad[:100]:
        print(one)
    if bad:
        print(f"{len(bad)} violations; the inputs are in {keep}")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
