"""What a million clients would need, on paper: python benchmarks/million_clients.py [--json] [--clients 1000000].

Rates are measured here, in one process with one thread: drawing a cohort, averaging, checkpoints, a client's state on
disk, a client's training and evaluation. Sizes are those of the paper's networks under Fed-CO2. The rest is arithmetic:
each need of a round is divided by what one server of the assumed size can give, for a server that does as the paper
says and for one that does as each remedy says. What has the largest quotient is the bottleneck.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from math import ceil, log
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # before torch is loaded: as the command does

import torch
from distributed_cost_lib.extrapolation import NETWORKS
from distributed_cost_lib.head_exchange import build_meta_states, fill_with_random
from training_speed_lib.workloads import Workload

from fedtrain.aggregators.base import average_states
from fedtrain.federated.communication import count_bytes
from fedtrain.federated.server import sample_cohort
from fedtrain.runs.client_state import ClientStateStore
from fedtrain.serialization.checked_file import save_checked

GB = 1e9
SHOWN_CLIENTS = 100_000
"""Names that a cohort is drawn from when its speed is measured."""


@dataclass(frozen=True)
class Server:
    """What is assumed of one machine, and of a round."""

    link: float = 10 / 8 * GB
    """Bytes per second, each way."""
    memory: float = 256 * GB
    disk: float = 20_000 * GB
    cores: int = 64
    round_seconds: float = 300.0
    cohort: int = 1000
    """Clients that train in a round."""
    local_images: int = 500
    """Of one client, for its evaluation on the server's side."""


@dataclass(frozen=True)
class Rates:
    """What was measured, on one core."""

    names_drawn: float
    """Names per second from which a cohort is drawn."""
    averaged: float
    """Bytes per second that go into the mean."""
    checkpointed: float
    """Bytes per second of a checkpoint, with its checksum and fsync."""
    states_loaded: float
    """Clients' states read from disk per second."""
    images_evaluated: float
    """Images per second, both branches of Fed-CO2 on the network for CIFAR."""
    client_seconds: float
    """Local training of one client: 500 images, one epoch, Fed-CO2 on the network for CIFAR."""


@dataclass(frozen=True)
class Sizes:
    """Bytes of one network under Fed-CO2."""

    shared: int
    head: int
    personal: int
    """What a client keeps between rounds: its offline model and its batch norm."""


@dataclass(frozen=True)
class Design:
    """How a federation is run."""

    title: str
    heads_held: str = "each"
    """each: the last head of every client; cluster: one for each of ``clusters``."""
    heads_sent: int = 0
    """To each client in the cohort; 0 for all that are held."""
    clusters: int = 100
    states: str = "server"
    """Where a client's personal entries rest: server or device."""
    evaluated: int = 0
    """Clients that are evaluated in a round; 0 for all."""
    fan_in: int = 0
    """Updates that one aggregator sums; 0 for the server alone."""


PAPER = Design("as the paper says")
DESIGNS = (
    PAPER,
    few := replace(PAPER, title="+ five heads for each client", heads_sent=5),
    sampled := replace(few, title="+ evaluation on the cohort", evaluated=1000),
    devices := replace(sampled, title="+ state on devices", states="device"),
    clustered := replace(devices, title="+ one head for each of 100 clusters", heads_held="cluster"),
    replace(clustered, title="+ a tree of aggregators", fan_in=32),
)


@dataclass(frozen=True)
class Load:
    """Each need of a round as a multiple of what the server has; above 1 it does not fit."""

    link: float
    memory: float
    disk: float
    checkpoint: float
    averaging: float
    evaluation: float
    drawing: float

    @property
    def bottleneck(self) -> str:
        """The name of the largest."""
        return max(fields(self), key=lambda one: float(getattr(self, one.name))).name


def compute_load(design: Design, sizes: Sizes, rates: Rates, server: Server, clients: int) -> Load:
    """Needs of one round divided by what there is; see the page for each line."""
    cohort = min(server.cohort, clients)
    held = clients if design.heads_held == "each" else min(design.clusters, clients)
    sent = min(design.heads_sent or held, held)
    down = cohort * (sizes.shared + sent * sizes.head)
    up = cohort * (sizes.shared + sizes.head)
    states = clients * sizes.personal if design.states == "server" else 0
    kept = sizes.shared + held * sizes.head + states
    tested = min(design.evaluated or clients, clients)
    at_once = server.round_seconds
    # A node of the tree serves fan_in others; the root is one of them. Without a tree the server serves the cohort.
    share = min(design.fan_in, cohort) / cohort if design.fan_in else 1.0
    return Load(
        link=share * max(down, up) / server.link / at_once,
        memory=(sizes.shared * 2 + held * sizes.head) / server.memory,
        disk=kept / server.disk,
        checkpoint=kept / rates.checkpointed / at_once,
        averaging=share * up / rates.averaged / server.cores / at_once,
        evaluation=0.0
        if design.states == "device"
        else tested * (1 / rates.states_loaded + server.local_images / rates.images_evaluated) / server.cores / at_once,
        drawing=clients / rates.names_drawn / at_once,
    )


def count_aggregators(cohort: int, fan_in: int) -> tuple[int, int]:
    """Levels above the clients and machines in a tree where each sums ``fan_in`` answers."""
    levels, machines, width = 0, 0, cohort
    while width > 1:
        width = ceil(width / fan_in)
        levels, machines = levels + 1, machines + width
    return levels, machines


def find_sizes(network: str) -> Sizes:
    """Of a network of the paper; the client keeps an offline model as large as the online one, and its batch norm."""
    shared, head = map(count_bytes, build_meta_states(network))
    return Sizes(shared, head, personal=shared)  # without the batch norm, which is a few kB


def time_per_call(
    work: Callable[[], object], clock: Callable[[], float] = time.process_time, seconds: float = 0.5
) -> float:
    """Seconds of one call: the fastest of three means over so long, after one call that does not count.

    Processor time, unless the disk is waited for: other work on the machine has less of a say in it.
    """
    work()

    def measure() -> Iterator[float]:
        for _ in range(3):
            calls, begun = 0, clock()
            while (passed := clock() - begun) < seconds:
                work()
                calls += 1
            yield passed / calls

    return min(measure())


def measure_rates(folder: Path) -> Rates:
    """Every rate, in this process with one thread."""
    torch.set_num_threads(1)
    names = [f"client{i:07}" for i in range(SHOWN_CLIENTS)]
    state = fill_with_random({**build_meta_states("cifar")[0]})
    states = [fill_with_random(state) for _ in range(20)]
    size = count_bytes(state)
    store = ClientStateStore(folder / "states")
    for i in range(50):
        store.save(f"client{i}", 1, state)
    work = Workload("million", "cifar10", 32, (500,), (500,), evaluate_train=False).build_experiment(
        "fedco2", {"local": {"epochs": 1}, "machine": {"backend": "serial"}}
    )
    backend = work.build_backend()
    message, cohort = backend.initial_broadcast(), backend.client_names
    tested = len(work.federation.clients[0].test)
    return Rates(
        names_drawn=len(names) / time_per_call(lambda: sample_cohort(names, 0.01, 0, 1)),
        averaged=len(states) * size / time_per_call(lambda: average_states(states, [1.0] * len(states))),
        checkpointed=50
        * size
        / time_per_call(
            lambda: save_checked(folder / "all", {f"{i}/{k}": v for i in range(50) for k, v in state.items()}, {}),
            time.perf_counter,
        ),
        states_loaded=50 / time_per_call(lambda: [store.load(f"client{i}", 1) for i in range(50)], time.perf_counter),
        images_evaluated=tested / time_per_call(lambda: backend.evaluate(message, ["test"])),
        client_seconds=time_per_call(lambda: backend.train(message, cohort)),
    )


def compute_tables(rates: Rates, server: Server, clients: int) -> dict[str, list[dict[str, object]]]:
    """For each network, each design: its loads and its bottleneck."""
    return {
        network: [
            {"design": design.title, **asdict(load), "bottleneck": load.bottleneck}
            for design in DESIGNS
            for load in [compute_load(design, find_sizes(network), rates, server, clients)]
        ]
        for network in NETWORKS
    }


def format_report(rates: Rates, server: Server, clients: int, tables: dict[str, list[dict[str, object]]]) -> str:
    """In Markdown."""
    levels, machines = count_aggregators(server.cohort, DESIGNS[-1].fan_in)
    rounds = ceil(log(1e-2) / log(1 - min(1.0, server.cohort / clients)))
    lines = [
        "Measured, one core:",
        "",
        *(f"- {name}: {value:.4g}" for name, value in asdict(rates).items()),
        "",
        f"{clients:,} clients, {server.cohort:,} in each round of {server.round_seconds:g} s. "
        f"The tree: {levels} levels, {machines} aggregators.",
        f"Rounds until 99 % of the clients have trained once: {rounds:,}.",
    ]
    names = [one.name for one in fields(Load)]
    for network, rows in tables.items():
        sizes = find_sizes(network)
        lines += ["", f"{network}: shared {sizes.shared / 1e6:.4g} MB, head {sizes.head / 1e6:.4g} MB", ""]
        lines += [f"| design | {' | '.join(names)} | bottleneck |", "|---" * (len(names) + 2) + "|"]
        for row in rows:
            values = " | ".join(f"{row[name]:.2g}" for name in names)
            lines.append(f"| {row['design']} | {values} | {row['bottleneck']} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, compute, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--clients", type=int, default=1_000_000, help="how many there are")
    options = parser.parse_args()
    server = Server()
    with TemporaryDirectory(prefix="fedco2-") as scratch:
        rates = measure_rates(Path(scratch))
    tables = compute_tables(rates, server, options.clients)
    if options.json:
        about = {"torch": torch.__version__, "server": asdict(server), "rates": asdict(rates)}
        print(json.dumps({**about, "clients": options.clients, "loads": tables}))
    else:
        print(format_report(rates, server, options.clients, tables))


if __name__ == "__main__":
    main()
