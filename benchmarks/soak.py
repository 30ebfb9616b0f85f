"""Does a long run stay as it was? python benchmarks/soak.py --rounds 500 [--json] [--plot FILE.png].

Fed-CO2 with full cooperation, three clients, a small convolutional network, one process: an evaluation every ten
rounds, a checkpoint every 25 of which three are kept. After every round: resident memory, open files, and how long the
round took, in processor seconds and as a multiple of a yardstick: the first round of one client, which is made anew
after each. On a machine that others use too, seconds wander with the load, and the multiple stays.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from fedtrain.config.local import LocalSettings
from fedtrain.config.schema import CheckpointSettings, Config, EvaluationSettings, ModelSettings, ServerSettings
from fedtrain.data.client_data import ClientData, Federation, Preprocessing, Samples
from fedtrain.runs.callbacks import OnRoundEnd, RoundProgress
from fedtrain.runs.experiment import Experiment
from fedtrain.runs.folder import RunFolder
from fedtrain.runs.loop import run_rounds
from fedtrain.runs.manifest import build_manifest, describe_data

EVALUATION_INTERVAL = 10
WARMUP_ROUNDS = 100
"""From this round on nothing may grow: buffers, thread pools and caches are all there."""


@dataclass(frozen=True)
class Reading:
    """After one round."""

    round: int
    memory: float
    """Resident, in MB."""
    files: int
    seconds: float
    """Of the processor."""
    yardstick: float
    """Seconds that the first round of one client took just afterwards."""
    evaluated: bool

    @property
    def relative_time(self) -> float:
        """How long the round took, whatever else the machine did."""
        return self.seconds / self.yardstick


def main() -> None:
    """Print what was read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--json", action="store_true", help="also every reading")
    parser.add_argument("--plot", type=Path, help="draw what was read")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        readings = run_soak(options.rounds, Path(place) / "run")
    found = summarise_readings(readings)
    if options.json:
        print(json.dumps({**found, "readings": [asdict(reading) for reading in readings]}))
    else:
        for what, value in found.items():
            print(f"{what:<40}{value:>10.4g}")
    if options.plot:
        plot(readings, found, options.plot)


def run_soak(rounds: int, place: Path) -> list[Reading]:
    """Train, and read the meters after every round."""
    config = Config(
        model=ModelSettings(name="cifar"),
        local=LocalSettings(batch_size=8),
        server=ServerSettings(rounds=rounds),
        evaluation=EvaluationSettings(every=EVALUATION_INTERVAL),
        checkpoints=CheckpointSettings(every=25, keep=3),
    )
    work, folder = Experiment(config, build_federation()), RunFolder(place)
    folder.begin(config, build_manifest(config, describe_data(work.federation), "soak"))
    readings: list[Reading] = []
    clock, measure = time.process_time(), build_yardstick(work)

    def read(progress: RoundProgress) -> None:
        nonlocal clock
        took = time.process_time() - clock
        files = len(os.listdir("/proc/self/fd")) - 1  # without the one that lists them
        readings.append(Reading(progress.round, read_resident_memory(), files, took, measure(), bool(progress.scores)))
        clock = time.process_time()

    run_rounds(work, folder, [OnRoundEnd(read)])
    return readings


def build_yardstick(work: Experiment) -> Callable[[], float]:
    """The same piece of work again and again, on a backend of its own; its seconds."""
    backend = work.build_backend()
    message, client = backend.initial_broadcast(), work.federation.clients[0]

    def measure() -> float:
        before = time.process_time()
        backend.trainer.train(client, backend.client_states[client.name], message)
        return time.process_time() - before

    measure()
    return measure


def build_federation() -> Federation:
    """Three clients with 8 images each: noise will do."""
    rng = torch.Generator().manual_seed(0)

    def samples(count: int) -> Samples:
        images = torch.randint(0, 256, (count, 3, 32, 32), generator=rng, dtype=torch.uint8)
        return Samples(images, torch.arange(count) % 10)

    clients = tuple(ClientData(f"client{i}", samples(8), samples(10), samples(10)) for i in range(3))
    return Federation(clients, tuple("0123456789"), "Noise", True, Preprocessing())


def read_resident_memory() -> float:
    """Memory of this process in MB."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1000


def summarise_readings(readings: list[Reading]) -> dict[str, float]:
    """What grew after the first rounds: of memory the level (a median of 20), of time a straight line."""
    later = readings[min(WARMUP_ROUNDS, len(readings) // 2) :]
    plain = [reading for reading in later if not reading.evaluated and reading.round % 25 != 1]  # 1: after a checkpoint
    halves = plain[: len(plain) // 2], plain[len(plain) // 2 :]
    early, late = (statistics.median(reading.relative_time for reading in half) for half in halves)
    first, last = (statistics.median(r.memory for r in part) for part in (later[:20], later[-20:]))
    return {
        "rounds": len(readings),
        "MB resident, at first": first,
        "MB resident, at last": last,
        "open files, fewest": min(reading.files for reading in later),
        "open files, most": max(reading.files for reading in later),
        "processor seconds a round": statistics.median(reading.seconds for reading in plain),
        "yardsticks a round, first half": early,
        "yardsticks a round, second half": late,
    }


def plot(readings: list[Reading], found: dict[str, Any], path: Path) -> None:
    """Memory, open files and seconds over rounds."""
    from theory.report.plot_style import (
        FULL_WIDTH,
        MODEL_STYLES,
        MUTED_COLOUR,
        create_canvas,
        save_figure,
        use_plot_style,
    )

    rounds = [reading.round for reading in readings]
    plain = [reading for reading in readings if not reading.evaluated]
    grown = found["MB resident, at last"] - found["MB resident, at first"]
    slower = found["yardsticks a round, second half"] / found["yardsticks a round, first half"] - 1
    since = f"since round {WARMUP_ROUNDS}: memory {grown:+.1f} MB, time {100 * slower:+.0f} %"
    title = f"{len(readings)} rounds of Fed-CO2 in one process; {since}"
    with use_plot_style():
        body = create_canvas(title, FULL_WIDTH, 3.6)
        memory, files, times = body.subplots(1, 3)
        colour = MODEL_STYLES["V"].colour
        memory.plot(rounds, [reading.memory for reading in readings], color=colour)
        memory.set(title="resident memory, MB", xlabel="round")
        files.plot(rounds, [reading.files for reading in readings], color=colour)
        files.set(title="open files", xlabel="round")
        times.plot([r.round for r in plain], [r.relative_time for r in plain], ".", color=MUTED_COLOUR, markersize=2.5)
        middle = [statistics.median(r.relative_time for r in plain[max(0, i - 15) : i + 16]) for i in range(len(plain))]
        times.plot([r.round for r in plain], middle, color=colour, label="median of 31 rounds")
        high = 2 * statistics.median(middle)
        beyond = sum(reading.relative_time > high for reading in plain)
        times.set(title="time of a round, in yardsticks", xlabel="round", ylim=(0, high))
        times.legend(loc="lower right", title=f"{beyond} rounds are beyond the edge" if beyond else None)
        for axes in (memory, files):
            axes.set_ylim(0, 1.2 * axes.get_ylim()[1])
        save_figure(body, path)


if __name__ == "__main__":
    main()
