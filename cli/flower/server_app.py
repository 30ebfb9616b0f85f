"""The Flower app of the server, in a deployment: it runs where the SuperLink does, and tells its story to a file."""

from __future__ import annotations

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from rich.console import Console

from cli.train.view import TrainingView
from fedtrain.flower.app_project import parse_plan
from fedtrain.flower.server_app import run_server

LOG_WIDTH = 200
"""Columns; a file has none."""


def main(grid: Grid, context: Context) -> None:
    """One run, from the first round or from where it stopped."""
    plan, log = parse_plan(context.run_config)
    with log.open("a", encoding="utf-8", buffering=1) as file:
        screen = Console(file=file, width=LOG_WIDTH, markup=False, highlight=False, emoji=False)
        run_server(grid, plan, lambda work: TrainingView(screen, work, plan.folder, quiet=False), screen.print)


app = ServerApp()
app.main()(main)
