"""What ``fedco2 evaluate`` does once its options are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import torch
from rich import box
from rich.console import Console
from rich.table import Table

from cli.console import make_console
from fedtrain.federated.server import Split
from fedtrain.inference.evaluate import evaluate_clients, load_run_data
from fedtrain.inference.trained_run import TrainedRun, load_trained_run
from fedtrain.report.formatting import format_percent
from fedtrain.runs.json_types import MetricRow
from fedtrain.runs.selection import summarise_clients


def run_evaluate(
    folder: Path, client: str | None, split: Split, data_dir: Path | None, device: str | None, as_json: bool
) -> None:
    """Open, evaluate, show."""
    run = load_trained_run(folder, device)
    if client is not None:
        run.get_client(client)  # refused before the data are read
    if run.config.machine.threads is not None:
        torch.set_num_threads(run.config.machine.threads)  # the last bits of a sum depend on it
    rows = evaluate_clients(run, load_run_data(run, data_dir), split, client)
    report = {**describe_run(run), "split": split, "rows": rows}
    if client is None:
        report |= summarise_clients(collect_accuracies(rows), {row["client"]: row["n"] for row in rows})
    if as_json:
        click.echo(json.dumps(report, ensure_ascii=False))
    else:
        show_evaluation(make_console(), report)


def describe_run(run: TrainedRun) -> dict[str, Any]:
    """Which model this is, and on what it was trained."""
    return {
        "run": str(run.folder.path),
        "method": run.config.method_name,
        "method_title": run.config.method.title,
        "round": run.state.message.round,
        "rounds": run.config.server.rounds,
        "reported": run.config.evaluation.report,
        "title": run.federation.title,
        "standin": run.federation.standin,
        "notes": list(run.federation.notes),
    }


def collect_accuracies(rows: list[MetricRow]) -> dict[str, dict[str, float]]:
    """By client and branch."""
    table: dict[str, dict[str, float]] = {}
    for row in rows:
        table.setdefault(row["client"], {})[row["branch"]] = row["accuracy"]
    return table


def show_heading(screen: Console, report: dict[str, Any], whose: str) -> None:
    """One line on the model, and what a reader must know of its data."""
    reached = f"after round {report['round']} of {report['rounds']}"
    screen.print(f"{report['method_title']} on {report['title']}, {whose}, {reached}", style="bold", soft_wrap=True)
    for note in report["notes"]:
        screen.print(f"note: {note}", style="yellow", soft_wrap=True)


def show_evaluation(screen: Console, report: dict[str, Any]) -> None:
    """A row a client: accuracy and loss of the prediction and of each branch."""
    rows = report["rows"]
    branches = list(dict.fromkeys(row["branch"] for row in rows))
    found = {(row["client"], row["branch"]): row for row in rows}
    show_heading(screen, report, f"{report['split']} data of each client: accuracy in % and loss")
    if report["reported"] != "last":
        screen.print(f"these are the last weights; the run itself reports by the rule {report['reported']!r}")
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    table.add_column("\nclient", no_wrap=True)
    for kind in ("%", "loss"):
        for branch in branches:
            table.add_column(f"{kind}\n{branch}", justify="right")
    table.add_column("\nimages", justify="right", no_wrap=True)
    for client, size in {row["client"]: row["n"] for row in rows}.items():
        mine = [found[client, branch] for branch in branches]
        losses = (f"{row['loss']:.4g}" for row in mine)
        table.add_row(client, *(format_percent(row["accuracy"]) for row in mine), *losses, f"{size:,}")
    if "mean" in report:
        table.add_section()
        for kind in ("mean", "worst"):
            table.add_row(
                kind, *(format_percent(report[kind][branch]) for branch in branches), style="bold" * (kind == "mean")
            )
    screen.print()
    screen.print(table)
