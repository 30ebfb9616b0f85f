"""What ``fedco2 flower up``, ``status`` and ``down`` do once their options are read."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from cli.console import make_console
from cli.interrupt import handle_interrupts
from cli.word_table import Column, print_word_table
from fedtrain.flower.deployment.local_deployment import Deployment
from fedtrain.flower.deployment.multi_host import format_multi_host_guide
from fedtrain.flower.deployment.status import DeploymentStatus
from fedtrain.flower.site_keys import list_sites


def start_deployment(
    folder: Path, clients: int | None, sites_folder: Path | None, tls: bool, data_dir: Path | None, threads: int
) -> None:
    """Start all of it, with so many clients or one for each site."""
    sites = [] if sites_folder is None else list_sites(sites_folder)
    number = clients or len(sites)

    def tell(line: str) -> None:
        click.echo(line, err=True)

    with handle_interrupts(lambda: "before all nodes were online; nothing is left running"):
        Deployment(folder).up(number, data_dir=data_dir, sites=sites, tls=tls, threads=threads, tell=tell)
    click.echo(f"{number} nodes are online; fedco2 flower down --dir {folder} ends them")


def print_status(folder: Path, as_json: bool) -> bool:
    """Look at it; whether all is well."""
    seen = Deployment(folder).status()
    if as_json:
        click.echo(json.dumps(asdict(seen) | {"well": seen.is_healthy}, ensure_ascii=False))
    else:
        _print_status_tables(seen)
    return seen.is_healthy


def _print_status_tables(seen: DeploymentStatus) -> None:
    security = "TLS, nodes known by their keys" if seen.tls else "not encrypted"
    click.echo(f"SuperLink on {seen.address} ({security}): {f'process {seen.pid}' if seen.alive else 'not running'}")
    rows = [
        (node.client, node.pid if node.alive else "not running", node.node_id or "-", "yes" if node.online else "no")
        for node in seen.nodes
    ]
    screen = make_console()
    print_word_table(screen, [Column(name, whole=True) for name in ("client", "process", "node id", "online")], rows)
    if seen.runs:
        columns = [Column("run", whole=True), Column("status", whole=True), Column("details")]
        print_word_table(screen, columns, [(run.id, run.status, run.details) for run in seen.runs])


def stop_deployment(folder: Path) -> None:
    """End all of it."""
    ended = Deployment(folder).down()
    click.echo(f"{ended} processes ended" if ended else f"{folder}: nothing runs here")


def print_multi_host_guide(clients: int, host: str, threads: int, data_dir: Path | None) -> None:
    """Print the commands for several hosts."""
    click.echo(format_multi_host_guide(clients, host, threads=threads, data_dir=data_dir))
