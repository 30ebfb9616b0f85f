"""What distribution costs: python benchmarks/distribution.py overhead | wire | heads | faults [--json].

  overhead  seconds of a round beyond training, for clients in one process, on the ranks of torchrun, on simulated nodes
            of Flower and on a real SuperLink with SuperNodes on 127.0.0.1. Training is measured inside the client; of
            processes that work at the same time the one counts that trains longest. The first round is left out, and
            none is evaluated.
  wire      bytes that pass between a SuperNode and its SuperLink, or between ranks, beside those of the ledger
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
from distributing import heads as heading
from distributing import overhead as beyond
from distributing import paper, shown, traffic
from distributing.cases import Case
from distributing.engines import ENGINES, METERS, WORLDS, run_on
from distributing.flower import TRAFFIC
from distributing.meters import Event, events

CASES = (("small", "fedbn"), ("small", "fedco2"), ("large", "fedbn"))
WIRED = ("deployment", "torchrun-2")
CLIENTS = (10, 20, 50, 100, 200)
SITES = 1000
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
rounds = click.option(
    "--rounds", type=click.IntRange(2), default=4, show_default=True, help="The first is not counted."
)
of_cases = click.option(
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
@of_cases
@click.option("--engine", "engines", multiple=True, type=click.Choice(list(ENGINES)), help="Only this, as --case.")
@rounds
@click.option("--keep", type=click.Path(path_type=Path), help="Leave what was measured here, for `wire --seen`.")
@as_json
def overhead(chosen: tuple[str, ...], engines: tuple[str, ...], rounds: int, keep: Path | None, as_json: bool) -> None:
    """Seconds of a round beyond training."""
    found = []
    for (size, method), engine in product(cases(chosen), engines or ENGINES):
        load = os.getloadavg()[0]
        happened, _ = run(engine, Case(size, method, rounds), keep)
        found.append({"size": size, "method": method, "engine": engine, **beyond.beyond(happened), "load": load})
    tell(found, beyond.table(found), as_json)


@main.command()
@of_cases
@rounds
@click.option("--seen", type=click.Path(path_type=Path, exists=True), help="What `overhead --keep` has left.")
@as_json
def wire(chosen: tuple[str, ...], rounds: int, seen: Path | None, as_json: bool) -> None:
    """Bytes on the wire beside those of the ledger."""
    found = []
    for (size, method), engine in product(cases(chosen), WIRED):
        case = Case(size, method, rounds)
        happened, counted = look(seen / named(engine, case)) if seen else run(engine, case)
        ranks = engine in WORLDS
        rows = [traffic.of_ranks(happened, WORLDS[engine])] if ranks else traffic.of_deployment(happened, counted)
        found += [{"size": size, "method": method, **row} for row in rows]
    tell(found, traffic.table(found), as_json)


@main.command()
@click.option(
    "--peers", type=click.IntRange(1), default=5, show_default=True, help="Heads a client is sent, if not all."
)
@click.option("--megabytes", default=1.0, show_default=True, help="Of a second kind of head, beside that for CIFAR.")
@click.option("--point", hidden=True)
@as_json
def heads(peers: int, megabytes: float, point: str | None, as_json: bool) -> None:
    """What all heads to all clients are to the server."""
    if point is not None:
        click.echo(json.dumps(heading.point(**json.loads(point))))
        return
    ways = list(product((0.0, megabytes), (0, peers)))
    measured = [
        alone({"clients": clients, "peers": few, "megabytes": size}) for size, few in ways for clients in CLIENTS
    ]
    sites = [paper.on_paper(network, SITES, few) for network, few in product(paper.NETWORKS, (0, peers))]
    found = {"measured": measured, "fitted": shown.fitted(measured, SITES), "on_paper": sites}
    tell(found, shown.tables(found), as_json)


@main.command()
@click.option("--rounds", type=click.IntRange(4), default=6, show_default=True, help="Of each run.")
@as_json
def faults(rounds: int, as_json: bool) -> None:
    """How long a run is held up when a part of a deployment is killed."""
    from distributing import faults as striking

    with TemporaryDirectory(prefix="fedco2-") as scratch:
        found = striking.measured(Case("small", "fedbn", rounds), Path(scratch))
    tell(found, striking.table(found), as_json)


def cases(chosen: tuple[str, ...]) -> list[tuple[str, str]]:
    """Those that were asked for."""
    return [case for case in CASES if not chosen or " ".join(case) in chosen]


def named(engine: str, case: Case) -> str:
    """The folder of what was measured."""
    return f"{case.size}-{case.method}-{engine}"


def run(engine: str, case: Case, keep: Path | None = None) -> tuple[list[Event], dict[str, Any]]:
    """What the meters say, and of a deployment what was counted on the way."""
    click.echo(f"{engine}: {case.size}, {case.method} ...", err=True)
    with TemporaryDirectory(prefix="fedco2-") as scratch:
        folder = Path(scratch) / "it"
        run_on(engine, case, folder)
        if keep is not None:
            shutil.copytree(folder, keep / named(engine, case), ignore=lambda _, names: {*names} - {METERS, TRAFFIC})
        return look(folder)


def look(folder: Path) -> tuple[list[Event], dict[str, Any]]:
    """The same, from its files."""
    counted = folder / TRAFFIC
    return events(folder / METERS), json.loads(counted.read_text()) if counted.exists() else {}


def alone(where: dict[str, float]) -> heading.Point:
    """One point, in a process of its own."""
    command = [sys.executable, __file__, "heads", "--point", json.dumps(where)]
    return dict(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout))


def tell(found: Any, table: str, as_json: bool) -> None:
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
