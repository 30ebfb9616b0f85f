"""Kill training processes at random moments and resume them.

Usage: python benchmarks/kill_and_resume.py --kills 50 --seed 0 [--json]

Each case is a random method under one of the two conventions, run by the real command in processes of its own on a
tiny data set, with a checkpoint after every round. (They are forked from one that has loaded torch, so that the time
in which they can be killed is that of the work, not of its imports.) A process is killed (SIGKILL) at a moment drawn
uniformly from the time that the run takes when it is let be; every third time, from its first half, the blow waits for
the next checkpoint to be written, so that these are hit too. The same command is given again until a case has had its
kills, and then until it ends. What it leaves must be what an undisturbed run leaves: metrics.jsonl and figures byte by
byte, tensors of all checkpoints bit by bit, the summary but for the seconds, and no file more or less. Exit code 1 if
anything differs.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np

REPO_ROOT = Path(__file__).resolve().parents[1]
FORK_SERVER = multiprocessing.get_context("forkserver")
PRELOADED_MODULES = ["cli.train.run", "cli.data.run", "fedtrain.report.run_figures", "matplotlib.backends.backend_agg"]
METHODS = ("singleset", "fedavg", "fedprox", "fedper", "moon", "fedrod", "copa", "fedbn", "fedco2")
CONVENTION_OPTIONS = {
    "feature": ["--dataset", "digits", "--set", "data.percent=none"],
    "label": ["--dataset", "cifar10", "--skew", "pathological", "--clients", "5", "--participation", "0.6"],
}
SMALL_RUN_OPTIONS = ["--data", "real", "--set", "model.name=two-layer", "--set", "model.width=32", "--threads", "1"]
CHECKPOINT_OPTIONS = ["--checkpoint-every", "1", "--eval-every", "1", "--set", "evaluation.window=4"]
KILL_PHASES = ("start", "training", "checkpoint", "figures", "other files", "end")
"""Where a kill can hit; the last three after the last round, or (other files) while settings or summary are written."""


@dataclass
class Tally:
    """What was done and what came of it."""

    kills: int = 0
    runs: int = 0
    identical: int = 0
    hit: Counter[str] = field(default_factory=Counter)
    half_rows_at_the_kill: int = 0
    half_rows_left: int = 0
    stray_files_left: int = 0
    differences: list[str] = field(default_factory=list)


def main() -> int:
    """Print what came of it; 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="how many in all")
    parser.add_argument("--each", type=int, default=5, help="how many a run suffers")
    parser.add_argument("--rounds", type=int, default=60, help="of each run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        tally = run_stress_test(Path(place), options.kills, options.each, options.rounds, options.seed)
    if options.json:
        print(json.dumps(asdict(tally)))
    else:
        print_tally(tally)
    return int(bool(tally.differences))


def run_stress_test(place: Path, kills: int, each: int, rounds: int, seed: int) -> Tally:
    """Case after case until there were so many kills; every method once, then again under the other convention."""
    rng, tally = random.Random(seed), Tally()
    os.environ |= {"PYTHONPATH": str(REPO_ROOT), "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    FORK_SERVER.set_forkserver_preload(PRELOADED_MODULES)
    make_data(place)
    deck: list[tuple[str, str]] = []
    while tally.kills < kills:
        if not deck:
            methods, conventions = (
                rng.sample(METHODS, len(METHODS)),
                rng.sample(list(CONVENTION_OPTIONS), len(CONVENTION_OPTIONS)),
            )
            deck = [(method, conventions[(i + turn) % 2]) for turn in (0, 1) for i, method in enumerate(methods)]
        method, convention = deck.pop()
        settings = [
            *SMALL_RUN_OPTIONS,
            *CHECKPOINT_OPTIONS,
            *CONVENTION_OPTIONS[convention],
            "--method",
            method,
            "--rounds",
            str(rounds),
        ]
        whole, torn = place / f"whole-{tally.runs}", place / f"killed-{tally.runs}"
        begun = time.monotonic()
        wait_for_exit(start_training(place, settings, whole))
        takes = time.monotonic() - begun
        wanted, ended = min(each, kills - tally.kills), False
        while wanted and not ended:  # a process that ends before its blow was not killed
            ended = not kill_process(start_training(place, settings, torn), torn, takes * rng.random(), tally, rounds)
            wanted -= not ended
        if not ended:
            over = (torn / "summary.json").exists()  # killed after its last word: refused as finished
            wait_for_exit(start_training(place, settings, torn), code=2 if over else 0)
        compare_runs(f"{method} {convention}", whole, torn, tally)
        print(f"{tally.kills:4} kills, {tally.identical} of {tally.runs} runs identical", file=sys.stderr)
    return tally


def make_data(place: Path) -> None:
    """Forty images a client: noise will do, since what is compared is bits."""
    rng, files = np.random.default_rng(0), {"cifar10": [("cifar10", 32, 200)]}
    files["digits"] = [(name, 28, 40) for name in ("mnist", "svhn", "usps", "synthdigits", "mnist_m")]
    for dataset, domains in files.items():
        for name, side, count in domains:
            images = rng.integers(0, 256, (2, count, side, side, 3), dtype=np.uint8)
            labels = np.arange(count, dtype=np.uint8) % 10
            np.savez(place / f"{name}.npz", x_train=images[0], y_train=labels, x_test=images[1], y_test=labels)
        paths = [str(place / f"{name}.npz") for name, _, _ in domains]
        wait_for_exit(start_command(place, ["data", "add", dataset, *paths], place / f"{dataset}.log"))


def start_command(place: Path, arguments: list[str], log: Path) -> BaseProcess:
    """``fedco2`` in a process of its own."""
    process = FORK_SERVER.Process(target=run_command, args=([*arguments, "--data-dir", str(place / "data")], log))
    process.start()
    return process


def run_command(arguments: list[str], log: Path) -> None:
    """What the process does."""
    from cli.main import main as fedco2

    with log.open("wb", buffering=0) as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.argv[1:] = arguments
    sys.exit(fedco2(arguments))


def start_training(place: Path, settings: list[str], out: Path) -> BaseProcess:
    """Begin, or go on: the command is the same."""
    return start_command(place, ["train", *settings, "--out", str(out)], get_log_path(out))


def get_log_path(out: Path) -> Path:
    """What the process that is at work in a folder says."""
    return out.with_name(f"{out.name}.log")


def wait_for_exit(process: BaseProcess, code: int = 0) -> None:
    """Let it come to its end, which must be this one."""
    process.join(600)
    if process.exitcode != code:
        raise SystemExit(f"exit code {process.exitcode} instead of {code}; see its log")


def kill_process(process: BaseProcess, out: Path, after: float, tally: Tally, rounds: int) -> bool:
    """Kill the process in so many seconds, or (every third time) in its next checkpoint; False if it ended before."""
    aimed = tally.kills % 3 == 2
    process.join(after / 2 if aimed else after)
    while aimed and process.is_alive() and not any((out / "checkpoints").glob(".*")):
        time.sleep(0.0002)
    process.kill()
    process.join()
    if process.exitcode != -signal.SIGKILL:
        wait_for_exit(process)
        return False
    tally.kills += 1
    tally.hit[classify_kill(out, rounds)] += 1
    tally.half_rows_at_the_kill += has_half_row(out)
    return True


def list_temporary_files(out: Path) -> list[Path]:
    """Temporary files."""
    return [part for pattern in (".*.part", "figures/.*.part", "checkpoints/.*") for part in out.glob(pattern)]


def has_half_row(out: Path) -> bool:
    """Whether the last row of the metrics was cut off."""
    metrics = out / "metrics.jsonl"
    text = metrics.read_bytes() if metrics.exists() else b""
    return bool(text) and not text.endswith(b"\n")


def classify_kill(out: Path, rounds: int) -> str:
    """What a process was doing when it was killed, judged by what it was writing, else by its log."""
    written = {part.parent.name for part in list_temporary_files(out)}
    if "checkpoints" in written:
        return "checkpoint"
    if "figures" in written:
        return "figures"
    if written:
        return "other files"
    log = get_log_path(out).read_text()
    return "end" if f"round {rounds}/{rounds}" in log else "training" if "\nseeds " in log else "start"


def compare_runs(name: str, whole: Path, torn: Path, tally: Tally) -> None:
    """Compare what two runs left."""
    one, other = read_run_files(whole), read_run_files(torn)
    strays = set(other) - set(one)
    wrong = sorted(strays | {key for key in one if one[key] != other.get(key)})
    tally.runs += 1
    tally.identical += not wrong
    tally.stray_files_left += len(strays)
    tally.half_rows_left += has_half_row(torn)
    tally.differences += [f"{name}: {key}" for key in wrong]


def read_run_files(out: Path) -> dict[str, Any]:
    """Every file of a run by its name: what must be equal of it."""
    return {
        str(path.relative_to(out)): read_comparable_content(path) for path in sorted(out.rglob("*")) if path.is_file()
    }


def read_comparable_content(path: Path) -> object:
    """The content of a file without what may differ: the clock, and how often a run was resumed."""
    from fedtrain.runs.checkpoint import load_checkpoint

    if path.suffix == ".safetensors":
        state = load_checkpoint(path)
        groups = {f"own {name}": entries for name, entries in state.client_states.items()}
        groups |= {f"published {name}": entries for name, entries in state.message.peers.items()}
        groups["shared"] = state.message.shared
        bits = {(g, k): (v.shape, v.numpy().tobytes()) for g, entries in groups.items() for k, v in entries.items()}
        return bits, state.message.round, state.communication, state.rows_end
    if path.suffix == ".json":
        content = json.loads(path.read_text())
        return {key: value for key, value in content.items() if key not in ("seconds", "command", "started", "resumed")}
    return path.read_bytes()


def print_tally(tally: Tally) -> None:
    """As a table."""
    counts = {
        "kills": tally.kills,
        **{f"  during {place}": tally.hit[place] for place in KILL_PHASES},
        "runs": tally.runs,
    }
    counts |= {"identical": tally.identical, "half rows at the kill": tally.half_rows_at_the_kill}
    counts |= {"half rows left": tally.half_rows_left, "stray files left": tally.stray_files_left}
    for what, count in counts.items():
        print(f"{what:<24}{count:>5}")
    for difference in tally.differences:
        print(f"differs: {difference}")


if __name__ == "__main__":
    sys.exit(main())
