"""What ``fedco2 evaluate`` does once its options are read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NotRequired, TypedDict, cast

import click
import torch
from rich.console import Console

from cli.console import make_console
from cli.score_table import show_metrics
from fedtrain.config.schema import parse_metrics
from fedtrain.federated.messages import Split
from fedtrain.inference.evaluate import change_fusion, collect_predictions, evaluate_clients, load_run_data
from fedtrain.inference.trained_run import TrainedRun, load_trained_run
from fedtrain.report.formatting import format_percent, format_points
from fedtrain.runs.json_types import ByBranch, GapSummary, MetricRow, MetricStatistics
from fedtrain.runs.predictions import save_predictions
from fedtrain.runs.selection import measure_gap, summarise_clients, summarise_gaps, summarise_metrics
from fedtrain.utils.atomic_files import check_new_file
from fedtrain.utils.terminal import print_paragraph
from fedtrain.utils.terminal_table import Grid, GridRow, print_grid


def run_evaluate(
    folder: Path,
    client: str | None,
    split: Split,
    metrics: str | None,
    save_to: Path | None,
    data_dir: Path | None,
    device: str | None,
    fusion: str | None,
    as_json: bool,
) -> None:
    """Open, evaluate, show."""
    if save_to is not None:
        check_new_file(save_to, ".npz", "predictions are an archive of NumPy arrays")
    run = load_trained_run(folder, device)
    wanted = None if metrics is None else parse_metrics(metrics, len(run.federation.classes))
    if client is not None:
        run.get_client(client)  # refused before the data are read
    if run.config.machine.threads is not None:
        torch.set_num_threads(run.config.machine.threads)  # the last bits of a sum depend on it
    data = load_run_data(run, data_dir)
    if fusion is not None:
        run = change_fusion(run, data, fusion)
    rows = evaluate_clients(run, data, split, client, wanted)
    if save_to is not None:
        save_predictions(save_to, collect_predictions(run, data))
    report = cast(EvaluationReport, {**describe_run(run), "split": split, "rows": rows})
    if client is None:
        accuracies = collect_accuracies(rows)
        statistics = summarise_clients(accuracies, {row["client"]: row["n"] for row in rows})
        report["mean"], report["micro"] = statistics["mean"], statistics["micro"]
        report["worst"], report["std"] = statistics["worst"], statistics["std"]
        if gap := summarise_gaps(accuracies, report["mean"]):
            report["gap"] = gap
        if summary := summarise_metrics(rows):
            report["metrics"] = summary
    if as_json:
        click.echo(json.dumps(report, ensure_ascii=False))
    else:
        show_evaluation(make_console(), report)


class RunDescription(TypedDict):
    """Which model is looked at, and on what it was trained."""

    run: str
    method: str
    method_title: str
    round: int
    rounds: int
    reported: str
    title: str
    standin: bool
    notes: list[str]


class EvaluationReport(RunDescription):
    """What ``fedco2 evaluate`` found; of all clients together only if all were evaluated."""

    split: Split
    rows: list[MetricRow]
    mean: NotRequired[ByBranch]
    micro: NotRequired[ByBranch]
    worst: NotRequired[ByBranch]
    std: NotRequired[ByBranch]
    gap: NotRequired[GapSummary]
    metrics: NotRequired[dict[str, MetricStatistics]]


def describe_run(run: TrainedRun) -> RunDescription:
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


def show_heading(screen: Console, report: RunDescription, whose: str) -> None:
    """One line on the model, and what a reader must know of its data."""
    reached = f"after round {report['round']} of {report['rounds']}"
    print_paragraph(screen, f"{report['method_title']} on {report['title']}, {whose}, {reached}", "bold")
    for note in report["notes"]:
        print_paragraph(screen, f"note: {note}", "yellow", indent=len("note: "))


def show_evaluation(screen: Console, report: EvaluationReport) -> None:
    """A row a client: accuracy of the prediction and of each branch, its gap to the better one, and the losses."""
    rows = report["rows"]
    branches = list(dict.fromkeys(row["branch"] for row in rows))
    found = {(row["client"], row["branch"]): row for row in rows}
    show_heading(screen, report, f"{report['split']} data of each client: accuracy in % and loss")
    if report["reported"] != "last":
        print_paragraph(
            screen, f"these are the last weights; the run itself reports by the rule {report['reported']!r}"
        )
    names = [""] if branches == ["fused"] else branches  # a method with one model has nothing to fuse
    several = len(branches) > 1
    heads = [*(f"% {name}".rstrip() for name in names), *(["gap"] if several else [])]
    heads += [f"loss {name}".rstrip() for name in names]

    def format_accuracies(values: Mapping[str, float]) -> list[str]:
        gap = measure_gap(dict(values))
        return [format_percent(values[name]) for name in branches] + ([] if gap is None else [format_points(gap)])

    lines = []
    for client, size in {row["client"]: row["n"] for row in rows}.items():
        mine = [found[client, branch] for branch in branches]
        accuracies = format_accuracies({row["branch"]: row["accuracy"] for row in mine})
        lines.append(GridRow(client, [*accuracies, *(f"{row['loss']:.4g}" for row in mine), f"{size:,}"]))
    if "mean" in report:
        blank = [""] * (len(branches) + 1)
        no_gap = [""] * several
        lines.append(GridRow("mean", [*format_accuracies(report["mean"]), *blank], "bold", new_section=True))
        worst = [format_percent(report["worst"][branch]) for branch in branches]
        lines.append(GridRow("worst", [*worst, *no_gap, *blank]))
    screen.print()
    print_grid(screen, Grid("client", [*heads, "images"], lines))
    if metrics := summarise_metrics(rows):
        screen.print()
        show_metrics(screen, metrics)
