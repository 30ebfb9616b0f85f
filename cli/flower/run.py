"""What ``fedco2 flower simulate`` and ``fedco2 flower run`` do once their options are read."""

from __future__ import annotations

import json
import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from cli.console import make_console
from cli.interrupt import Interrupted, handle_interrupts
from cli.train.resume import describe_resume
from cli.train.run import NotesView, build_watchers
from cli.train.view import show_summary
from fedtrain.config.old_names import upgrade_tables
from fedtrain.config.options import SETTING_FOR_OPTION, nest_options
from fedtrain.config.presets import resolve_preset
from fedtrain.config.references import load_references
from fedtrain.config.schema import Config, load_toml
from fedtrain.config.toml import TomlTable, merge_tables
from fedtrain.data.build import count_clients
from fedtrain.flower.allowed_code import ALLOW_VARIABLE, list_code
from fedtrain.flower.environment import require_flower
from fedtrain.report.progress_view import ProgressView
from fedtrain.run import Run
from fedtrain.runs.experiment import plan_experiment
from fedtrain.runs.folder import RunFolder
from fedtrain.runs.resume import resume_config
from fedtrain.training import check_alpha_is_used, choose_preset
from fedtrain.utils.new_folder import choose_new_folder
from theory.errors import InputError

require_flower()  # before what needs it is loaded

from fedtrain.flower.app_project import write_app  # noqa: E402
from fedtrain.flower.server_app import SIMULATION_COST, run_server  # noqa: E402
from fedtrain.flower.server_plan import ServerPlan  # noqa: E402
from fedtrain.flower.sites import SITES_DATASET  # noqa: E402


def build_plan(options: dict[str, Any]) -> ServerPlan:
    """What the run is to be, where it is written, and how many clients it has; nodes find their data themselves."""
    tables = nest_options(
        {name: options[name] for name in SETTING_FOR_OPTION if options.get(name) is not None}, options["sets"]
    )
    if options["resume"] is not None:
        folder = RunFolder(options["resume"])
        config = resume_config(folder, load_references(tables))
    else:
        config = resolve_new_run(tables, options)
        folder = RunFolder(options["out"] or choose_new_folder(f"{config.data.short_name}-{config.method_name}"))
    if config.machine.backend not in ("auto", "serial"):
        raise InputError(f"machine.backend is {config.machine.backend}; on Flower each client has a node: leave it out")
    if config.data.dataset == SITES_DATASET:
        clients = count_sites(config, options)
    else:
        clients = count_clients(config.data, options["data_dir"])
    command = shlex.join(["fedco2", *sys.argv[1:]])
    return ServerPlan(config, folder, clients, options["min_clients"] or clients, options["timeout"], command)


def count_sites(config: Config, options: dict[str, Any]) -> int:
    """How many sites a run waits for: so many as were asked for, or all nodes of the deployment."""
    from fedtrain.flower.deployment.local_deployment import Deployment

    if config.data.clients:
        return config.data.clients
    if options.get("deployment") is None or options.get("app") is not None:
        raise InputError("the server does not know how many sites there are; say how many", options=("clients",))
    return Deployment(options["deployment"]).num_clients


def resolve_new_run(tables: TomlTable, options: dict[str, Any]) -> Config:
    """What a new run is to be. Real data are the nodes'; without a word on it, what is here decides for all of them."""
    own = load_references(
        merge_tables(upgrade_tables(load_toml(options["config"])) if options["config"] else {}, tables)
    )
    preset = choose_preset(own, options["preset"])
    config = resolve_preset(preset, own)
    if config.data.source != "real":
        unsaid = config.data.source == "auto"
        config, found = plan_experiment(preset, own, options["data_dir"])
        if unsaid and found.standin:
            words = f"{found.notes[0]}; nodes that have real ones use them with --data real"
            make_console(stderr=True).print(f"STAND-IN DATA: {words}", style="bold yellow", soft_wrap=True)
        # said to all, or nodes that have other data would train on those
        config = replace(config, data=config.data.with_resolved_source(standin=found.standin))
    check_alpha_is_used(config, tables)
    return config


def run_on_simulation(plan: ServerPlan, options: dict[str, Any]) -> Run:
    """On nodes of this process's."""
    from fedtrain.flower.simulation import simulate

    folder, view = plan.folder, NotesView() if options["as_json"] else ProgressView(make_console(), SIMULATION_COST)
    tell, watchers = view.on_note, [view, *build_watchers(options)]
    if options["data_dir"] is not None:  # nodes have no settings of their own here
        os.environ["FEDCO2_DATA"] = str(options["data_dir"].absolute())
    os.environ[ALLOW_VARIABLE] = list_code(plan.config)  # nodes of this process may load what it has loaded
    machine = replace(plan.config.machine, threads=plan.config.machine.threads or 1)
    plan = replace(plan, config=replace(plan.config, machine=machine))
    workers = options["workers"] or min(plan.num_clients, max(1, (os.cpu_count() or 1) // (machine.threads or 1)))
    try:
        simulate(plan.num_clients, workers, lambda grid: run_server(grid, plan, watchers, tell), plan.stop_requested)
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted {describe_resume(folder, options['data_dir'], ['flower', 'simulate'], options)}"
        ) from None
    return Run(folder.path)


def run_on_deployment(plan: ServerPlan, options: dict[str, Any]) -> Run:
    """On the nodes of a deployment."""
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
        command = ["flower", "run", "--dir", str(options["deployment"])]
        return describe_resume(folder, options["data_dir"], command, options)

    control = deployment.control
    with TemporaryDirectory(prefix="fedco2-") as app:
        write_app(Path(app), plan, log)
        run_id = control.submit(Path(app))
    with handle_interrupts(state):
        follow_run(
            control,
            run_id,
            folder,
            log,
            lambda text: None if options["as_json"] else screen.print(text, soft_wrap=True),
        )
    return Run(folder.path)


def write_app_folder(plan: ServerPlan, app: Path) -> None:
    """The app alone, and what to do with it."""
    if app.exists():
        raise InputError(f"{app} is there already and is not overwritten; choose another --write-app")
    app.mkdir(parents=True)
    log = plan.folder.path.with_name(f"{plan.folder.path.name}.log")
    write_app(app, plan, log)
    click.echo(f"Written to {app}. Where the SuperLink is: flwr run {app} CONNECTION --stream")
    click.echo(
        f"There the run will be in {plan.folder.path.absolute()}, its story in {plan.folder.path.name}.log beside it."
    )


def print_summary(run: Run, options: dict[str, Any]) -> None:
    """The table, or JSON."""
    if options["as_json"]:
        click.echo(json.dumps({**run.summary, "out": str(run.path)}, ensure_ascii=False))
    else:
        show_summary(make_console(), run)
