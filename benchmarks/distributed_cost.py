"""What distribution costs: python benchmarks/distributed_cost.py overhead | wire | heads | faults [--json].

  overhead  seconds of a round beyond training, for clients in one process, on the ranks of torchrun, on simulated nodes
            of Flower and on a real SuperLink with SuperNodes on 127.0.0.1. Training is measured inside the client; of
            processes that work at the same time the one counts that trains longest. The first round is left out, and
            none is evaluated.
  wire      bytes that pass between a SuperNode and its SuperLink, or between ranks, beside those that a run counts
  heads     what Fed-CO2's heads of all clients to all clients are to the server, and to a thousand sites on paper
  faults    how long a run on a real deployment is held up when a part of it is killed

Needs fedco2[flower]. Every case has processes of its own, with one thread each.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # before torch is loaded: as the command does

import click
import torch
from distributed_cost_lib import extrapolation, head_exchange, head_tables, traffic
from distributed_cost_lib import overhead as overhead_table
from distributed_cost_lib.backends import BACKENDS, EVENTS_FILE, WORLD_SIZES, run_on_backend
from distributed_cost_lib.cases import Case
from distributed_cost_lib.event_log import Event, read_events
from distributed_cost_lib.flower_backends import TRAFFIC_FILE

CASES = (("small", "fedbn"), ("small", "fedco2"), ("large", "fedbn"))
TRAFFIC_BACKENDS = ("deployment", "torchrun-2")
CLIENT_COUNTS = (10, 20, 50, 100, 200)
EXTRAPOLATED_CLIENTS = 1000
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
rounds_option = click.option(
    "--rounds", type=click.IntRange(2), default=4, show_default=True, help="The first is not counted."
)
case_option = click.option(
    "--case",
    "chosen",
    multiple=True,
    type=click.Choice([" ".join(case) for case in CASES]),
    help="Only this; may be repeated.",
)


@click.group(help=__doc__)
def main() -> None:
    """See the docstring of this file."""


@main.command()
@case_option
@click.option("--backend", "backends", multiple=True, type=click.Choice(list(BACKENDS)), help="Only this, as --case.")
@rounds_option
@click.option("--keep", type=click.Path(path_type=Path), help="Leave what was measured here, for `wire --seen`.")
@json_option
def overhead(chosen: tuple[str, ...], backends: tuple[str, ...], rounds: int, keep: Path | None, as_json: bool) -> None:
    """Seconds of a round beyond training."""
    found = []
    for (size, method), backend in product(select_cases(chosen), backends or BACKENDS):
        load = os.getloadavg()[0]
        happened, _ = run_case(backend, Case(size, method, rounds), keep)
        found.append(
            {
                "size": size,
                "method": method,
                "backend": backend,
                **overhead_table.summarise_overhead(happened),
                "load": load,
            }
        )
    print_results(found, overhead_table.format_table(found), as_json)


@main.command()
@case_option
@rounds_option
@click.option("--seen", type=click.Path(path_type=Path, exists=True), help="What `overhead --keep` has left.")
@json_option
def wire(chosen: tuple[str, ...], rounds: int, seen: Path | None, as_json: bool) -> None:
    """Bytes on the wire beside those that a run counts."""
    found = []
    for (size, method), backend in product(select_cases(chosen), TRAFFIC_BACKENDS):
        case = Case(size, method, rounds)
        happened, counted = (
            load_measurements(seen / format_case_name(backend, case)) if seen else run_case(backend, case)
        )
        ranks = backend in WORLD_SIZES
        rows = (
            [traffic.summarise_ranks(happened, WORLD_SIZES[backend])]
            if ranks
            else traffic.summarise_deployment(happened, counted)
        )
        found += [{"size": size, "method": method, **row} for row in rows]
    print_results(found, traffic.format_table(found), as_json)


@main.command()
@click.option(
    "--peers", type=click.IntRange(1), default=5, show_default=True, help="Heads a client is sent, if not all."
)
@click.option("--megabytes", default=1.0, show_default=True, help="Of a second kind of head, beside that for CIFAR.")
@click.option("--point", hidden=True)
@json_option
def heads(peers: int, megabytes: float, point: str | None, as_json: bool) -> None:
    """What all heads to all clients are to the server."""
    if point is not None:
        click.echo(json.dumps(head_exchange.measure_point(**json.loads(point))))
        return
    ways = list(product((0.0, megabytes), (0, peers)))
    measured = [
        measure_in_subprocess({"clients": clients, "peers": few, "megabytes": size})
        for size, few in ways
        for clients in CLIENT_COUNTS
    ]
    sites = [
        extrapolation.compute_round_traffic(network, EXTRAPOLATED_CLIENTS, few)
        for network, few in product(extrapolation.NETWORKS, (0, peers))
    ]
    found = {"measured": measured, "fitted": head_tables.fit_growth(measured, EXTRAPOLATED_CLIENTS), "on_paper": sites}
    print_results(found, head_tables.format_tables(found), as_json)


@main.command()
@click.option("--rounds", type=click.IntRange(4), default=6, show_default=True, help="Of each run.")
@json_option
def faults(rounds: int, as_json: bool) -> None:
    """How long a run is held up when a part of a deployment is killed."""
    from distributed_cost_lib import faults as striking

    with TemporaryDirectory(prefix="fedco2-") as scratch:
        found = striking.measure_faults(Case("small", "fedbn", rounds), Path(scratch))
    print_results(found, striking.format_table(found), as_json)


def select_cases(chosen: tuple[str, ...]) -> list[tuple[str, str]]:
    """The cases that were requested."""
    return [case for case in CASES if not chosen or " ".join(case) in chosen]


def format_case_name(backend: str, case: Case) -> str:
    """The folder of what was measured."""
    return f"{case.size}-{case.method}-{backend}"


def run_case(backend: str, case: Case, keep: Path | None = None) -> tuple[list[Event], dict[str, Any]]:
    """What the meters say, and of a deployment what was counted on the way."""
    click.echo(f"{backend}: {case.size}, {case.method} ...", err=True)
    with TemporaryDirectory(prefix="fedco2-") as scratch:
        folder = Path(scratch) / "it"
        run_on_backend(backend, case, folder)
        if keep is not None:
            shutil.copytree(
                folder,
                keep / format_case_name(backend, case),
                ignore=lambda _, names: {*names} - {EVENTS_FILE, TRAFFIC_FILE},
            )
        return load_measurements(folder)


def load_measurements(folder: Path) -> tuple[list[Event], dict[str, Any]]:
    """The same, from its files."""
    counted = folder / TRAFFIC_FILE
    return read_events(folder / EVENTS_FILE), json.loads(counted.read_text()) if counted.exists() else {}


def measure_in_subprocess(where: dict[str, float]) -> head_exchange.HeadCost:
    """One point, in a process of its own."""
    command = [sys.executable, __file__, "heads", "--point", json.dumps(where)]
    return dict(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout))


def print_results(found: Any, table: str, as_json: bool) -> None:
    """JSON, or the table."""
    about = {
        "torch": torch.__version__,
        "flwr": version("flwr") if find_spec("flwr") else None,
        "cores": os.cpu_count(),
    }
    click.echo(json.dumps({**about, "found": found}) if as_json else table)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # else what was started would stay
    main()
