"""``fedco2 flower``: the same training on Flower's nodes, simulated or real."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import click

from cli.console import INTERRUPTED
from cli.flower.deployment import down, status, up
from cli.flower.node import node
from cli.train import train

EXCLUDED_TRAIN_OPTIONS = {"backend", "nproc", "client_state", "dry_run"}
"""Options of `fedco2 train` that mean nothing here."""


@click.group(short_help="Train on Flower's nodes: simulated, or a real deployment.")
def flower() -> None:
    """Train as `fedco2 train` does, with every client on a Flower node of its own: the same numbers, bit by bit.

    What is personal never leaves its node, but for heads that the method shows to other clients. Needs Flower, the
    extra `flower` of fedco2: pip install -c constraints.txt -e '.[flower]' in the folder of its source.

    \b
    Examples:
      fedco2 flower simulate --dataset digits --rounds 5
      fedco2 flower up --clients 5
      fedco2 flower run --dataset digits --rounds 5
      fedco2 flower status
      fedco2 flower down
    """


WATCHING_OPTIONS = {"track", "callbacks"}
"""They look on where the server is, which in a deployment is another process."""


def select_train_options(*more: click.Parameter, without: Collection[str] = ()) -> list[click.Parameter]:
    """What a run is, is said as for `fedco2 train`."""
    excluded = {*EXCLUDED_TRAIN_OPTIONS, *without}
    return [*(option for option in train.params if option.name not in excluded), *more]


MIN_CLIENTS_OPTION = click.Option(
    ["--min-clients"], type=click.IntRange(1), help="Go on when so many have answered in time.  [default: all]"
)
TIMEOUT_OPTION = click.Option(
    ["--timeout"],
    type=click.FloatRange(min=0),
    default=600.0,
    show_default=True,
    help="Seconds of a round after which nobody is waited for but --min-clients.",
)
DEPLOYMENT_DIR_OPTION = click.Option(
    ["--dir", "deployment"],
    type=click.Path(path_type=Path),
    default=Path("flower"),
    show_default=True,
    help="Folder of the deployment.",
)
WORKERS_OPTION = click.Option(
    ["--workers"], type=click.IntRange(1), help="Clients that train at the same time.  [default: one a core]"
)


@flower.command(params=select_train_options(MIN_CLIENTS_OPTION, TIMEOUT_OPTION, WORKERS_OPTION))
@click.pass_context
def simulate(ctx: click.Context, /, **options: Any) -> None:
    """Train on simulated nodes of this machine.

    \b
    Example:
      fedco2 flower simulate --dataset digits --method fedbn --rounds 5
    """
    train_on_flower(ctx, options, simulated=True)


WRITE_APP_OPTION = click.Option(
    ["--write-app", "app"],
    type=click.Path(path_type=Path),
    help="Only write a Flower app into this new folder, for `flwr run` on several hosts.",
)


@flower.command(
    "run",
    params=select_train_options(
        MIN_CLIENTS_OPTION, TIMEOUT_OPTION, DEPLOYMENT_DIR_OPTION, WRITE_APP_OPTION, without=WATCHING_OPTIONS
    ),
)
@click.pass_context
def run_command(ctx: click.Context, /, **options: Any) -> None:
    """Train on the nodes of a deployment that is up, and look on.

    \b
    Example:
      fedco2 flower up --clients 5
      fedco2 flower run --dataset digits --method fedbn --rounds 5
    """
    train_on_flower(ctx, options, simulated=False)


def train_on_flower(ctx: click.Context, options: dict[str, Any], *, simulated: bool) -> None:
    """As `fedco2 train` goes about it."""
    from cli.flower import run
    from cli.interrupt import Interrupted

    plan = run.build_plan(options)
    if options.get("app") is not None:
        run.write_app_folder(plan, options["app"])
        return
    try:
        finished = (run.run_on_simulation if simulated else run.run_on_deployment)(plan, options)
    except Interrupted as stop:
        click.echo(str(stop), err=True)
        ctx.exit(INTERRUPTED)
    run.print_summary(finished, options)


for command in (up, node, status, down):
    flower.add_command(command)
