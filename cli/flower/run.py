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

from cli.console import make_console
from cli.interrupt import Interrupted, handle_interrupts
from cli.output_folder import choose_new_folder
from cli.train.resume import describe_resume
from cli.train.run import check_alpha_is_used, choose_preset, nest_settings
from cli.train.view import TrainingView, show_summary
from fedtrain.config.presets import resolve_preset
from fedtrain.config.schema import Config
from fedtrain.config.toml import TomlTable
from fedtrain.data.build import count_clients
from fedtrain.data.partition.assign import validate_data_settings
from fedtrain.flower.environment import require_flower
from fedtrain.runs.experiment import plan_experiment
from fedtrain.runs.folder import SUMMARY_FILE, RunFolder
from fedtrain.runs.resume import resume_config
from theory.errors import InputError

require_flower()  # before what needs it is loaded

from fedtrain.flower.app_project import write_app  # noqa: E402
from fedtrain.flower.server_app import ServerPlan, run_server  # noqa: E402

SERVER_APP = "cli.flower.server_app:app"


def build_plan(given: Mapping[str, Any], options: dict[str, Any]) -> ServerPlan:
    """What the run is to be, where it is written, and how many clients it has; nodes find their data themselves."""
    tables = nest_settings(given, options["sets"])
    if options["resume"] is not None:
        folder = RunFolder(options["resume"])
        config = resume_config(folder, tables)
    else:
        config = resolve_new_run(tables, options)
        folder = RunFolder(options["out"] or choose_new_folder(f"{config.data.dataset}-{config.method_name}"))
    if config.machine.backend not in ("auto", "serial"):
        raise InputError(f"machine.backend is {config.machine.backend}; on Flower each client has a node: leave it out")
    validate_data_settings(config.data)
    clients = count_clients(config.data)
    command = shlex.join(["fedco2", *sys.argv[1:]])
    return ServerPlan(config, folder, clients, options["min_clients"] or clients, options["timeout"], command)


def resolve_new_run(tables: TomlTable, options: dict[str, Any]) -> Config:
    """What a new run is to be. Real data are the nodes'; without a word on it, what is here decides for all of them."""
    preset, own = choose_preset(tables, options)
    config = resolve_preset(preset, own)
    if config.data.source != "real":
        unsaid = config.data.source == "auto"
        config, found = plan_experiment(preset, own, options["data_dir"])
        if unsaid and found.standin:
            words = f"{found.notes[0]}; nodes that have real ones use them with --data real"
            make_console(stderr=True).print(f"STAND-IN DATA: {words}", style="bold yellow", soft_wrap=True)
        # said to all, or nodes that have other data would train on those
        config = replace(config, data=config.data.with_resolved_source(standin=found.standin))
    check_alpha_is_used(config, options)
    return config


def run_on_simulation(plan: ServerPlan, options: dict[str, Any]) -> dict[str, Any]:
    """On nodes of this process's; the summary."""
    from fedtrain.flower.simulation import simulate

    screen, quiet, folder = make_console(stderr=options["as_json"]), options["as_json"], plan.folder
    if options["data_dir"] is not None:  # nodes have no settings of their own here
        os.environ["FEDCO2_DATA"] = str(options["data_dir"].absolute())
    machine = replace(plan.config.machine, threads=plan.config.machine.threads or 1)
    plan = replace(plan, config=replace(plan.config, machine=machine))
    workers = options["workers"] or min(plan.num_clients, max(1, (os.cpu_count() or 1) // (machine.threads or 1)))
    try:
        return dict(
            simulate(
                plan.num_clients,
                workers,
                lambda grid: run_server(
                    grid, plan, lambda work: TrainingView(screen, work, folder, quiet), screen.print
                ),
                plan.stop_requested,
            )
        )
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted {describe_resume(folder, options['data_dir'], ['flower', 'simulate'])}"
        ) from None


def run_on_deployment(plan: ServerPlan, options: dict[str, Any]) -> dict[str, Any]:
    """On the nodes of a deployment; the summary."""
    from cli.flower.follow import follow_run
    from fedtrain.flower.deployment.local_deployment import Deployment

    deployment, folder = Deployment(options["deployment"]), plan.folder
    nodes = deployment.num_clients
    if nodes < plan.num_clients:
        raise InputError(
            f"this run has {plan.num_clients} clients and the deployment {nodes} nodes; see fedco2 flower up"
        )
    log = deployment.folder / "logs" / f"{folder.path.name}.log"
    screen = make_console(stderr=options["as_json"])

    def state() -> str:
        control.stop_run(run_id)
        return describe_resume(folder, options["data_dir"], ["flower", "run", "--dir", str(options["deployment"])])

    control = deployment.control
    with TemporaryDirectory(prefix="fedco2-") as app:
        write_app(Path(app), plan, log, server_app=SERVER_APP)
        run_id = control.submit(Path(app))
    with handle_interrupts(state):
        follow_run(
            control,
            run_id,
            folder,
            log,
            lambda text: None if options["as_json"] else screen.print(text, soft_wrap=True),
        )
    return folder.read_json(SUMMARY_FILE)


def write_app_folder(plan: ServerPlan, app: Path) -> None:
    """The app alone, and what to do with it."""
    if app.exists():
        raise InputError(f"{app} is there already and is not overwritten; choose another --write-app")
    app.mkdir(parents=True)
    log = plan.folder.path.with_name(f"{plan.folder.path.name}.log")
    write_app(app, plan, log, server_app=SERVER_APP)
    click.echo(f"Written to {app}. Where the SuperLink is: flwr run {app} CONNECTION --stream")
    click.echo(
        f"There the run will be in {plan.folder.path.absolute()}, its story in {plan.folder.path.name}.log beside it."
    )


def print_summary(summary: dict[str, Any], plan: ServerPlan, options: dict[str, Any]) -> None:
    """The table, or JSON."""
    if options["as_json"]:
        click.echo(json.dumps({**summary, "out": str(plan.folder.path)}, ensure_ascii=False))
    else:
        show_summary(make_console(), summary, plan.folder.path)
