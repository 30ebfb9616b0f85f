"""What ``fedco2 flower simulate`` and ``fedco2 flower run`` do once their options are read."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from cli.console import console
from cli.folders import new_folder
from cli.stopping import Interrupted, stopping
from cli.train_resume import way_on
from cli.train_run import nested, planned
from cli.train_view import View, show_summary
from fedtrain.data.federation import assemble
from fedtrain.data.source import find
from fedtrain.flower.environment import require_flower
from fedtrain.folder import SUMMARY, Folder
from fedtrain.resume import continued
from theory.errors import InputError

require_flower()  # before what needs it is loaded

from fedtrain.flower.app import write_app  # noqa: E402
from fedtrain.flower.conduct import Plan, conduct  # noqa: E402


def prepared(given: Mapping[str, Any], options: dict[str, Any]) -> Plan:
    """What the run is to be, where it is written, and how many clients it has; nodes find their data themselves."""
    tables = nested(given, options["sets"])
    if options["resume"] is not None:
        folder = Folder(options["resume"])
        config = continued(folder, tables)
        found = find(config.data, options["data_dir"])
    else:
        config, found = planned(tables, options)
        folder = Folder(options["out"] or new_folder(f"{config.data.dataset}-{config.method_name}"))
    if config.machine.fleet not in ("auto", "in-turn"):
        raise InputError(f"machine.fleet is {config.machine.fleet}; on Flower every client has a node: leave it out")
    # what is here decides, or nodes that have other data would train on those
    data = replace(config.data, source="standin" if found.standin else "real")
    config = replace(config, data=data, machine=replace(config.machine, threads=config.machine.threads or 1))
    clients = len(assemble(data, found.without_images()).clients)
    command = shlex.join(["fedco2", *sys.argv[1:]])
    return Plan(config, folder, clients, options["min_clients"] or clients, options["timeout"], command)


def in_simulation(plan: Plan, options: dict[str, Any]) -> dict[str, Any]:
    """On nodes of this process's; the summary."""
    from fedtrain.flower.simulate import simulate

    screen, quiet, folder = console(stderr=options["as_json"]), options["as_json"], plan.folder
    workers = options["workers"] or min(
        plan.clients, max(1, (os.cpu_count() or 1) // (plan.config.machine.threads or 1))
    )
    try:
        return dict(
            simulate(
                plan.clients,
                workers,
                lambda grid: conduct(grid, plan, lambda work: View(screen, work, folder, quiet), screen.print),
                plan.halt,
            )
        )
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted {way_on(folder, options['data_dir'], 'flower simulate')}") from None


def on_deployment(plan: Plan, options: dict[str, Any]) -> dict[str, Any]:
    """On the nodes of a deployment; the summary."""
    from cli.flower_follow import follow
    from fedtrain.flower.deployment import Deployment

    deployment, folder = Deployment(options["deployment"]), plan.folder
    nodes = deployment.clients
    if nodes < plan.clients:
        raise InputError(f"this run has {plan.clients} clients and the deployment {nodes} nodes; see fedco2 flower up")
    log = deployment.folder / "logs" / f"{folder.path.name}.log"
    screen = console(stderr=options["as_json"])

    def state() -> str:
        control.stop_run(run_id)
        where = ["flower", "run", "--dir", str(options["deployment"])]
        return way_on(folder, options["data_dir"], " ".join(where))

    control = deployment.control
    with TemporaryDirectory(prefix="fedco2-") as app:
        write_app(Path(app), plan, log)
        run_id = control.submit(Path(app))
    with stopping(state):
        follow(
            control,
            run_id,
            folder,
            log,
            lambda text: None if options["as_json"] else screen.print(text, soft_wrap=True),
        )
    return folder.read_json(SUMMARY)


def write(plan: Plan, app: Path) -> None:
    """The app alone, and what to do with it."""
    if app.exists():
        raise InputError(f"{app} is there already and is not overwritten; choose another --write-app")
    app.mkdir(parents=True)
    write_app(app, plan, plan.folder.path.with_name(f"{plan.folder.path.name}.log"))
    click.echo(f"Written to {app}. Where the SuperLink is: flwr run {app} CONNECTION --stream")
    click.echo(
        f"There the run will be in {plan.folder.path.absolute()}, its story in {plan.folder.path.name}.log beside it."
    )


def show(summary: dict[str, Any], plan: Plan, options: dict[str, Any]) -> None:
    """The table, or JSON."""
    if options["as_json"]:
        click.echo(json.dumps({**summary, "out": str(plan.folder.path)}, ensure_ascii=False))
    else:
        show_summary(console(), summary, plan.folder.path)
