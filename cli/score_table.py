"""Further scores on a terminal: a row for each client and branch, or only the means if there are many clients."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console

from fedtrain.report.formatting import format_score
from fedtrain.runs.json_types import MetricStatistics
from fedtrain.utils.terminal import print_paragraph
from fedtrain.utils.terminal_table import Grid, GridRow, print_grid

MAX_CLIENTS = 12


def show_metrics(screen: Console, metrics: Mapping[str, MetricStatistics]) -> None:
    """Clients, their branches below them, and the mean over the clients that have a score."""
    first = next(iter(metrics.values()))
    rows: list[GridRow] = []
    for client in first["clients"] if len(first["clients"]) <= MAX_CLIENTS else ():
        for branch in first["clients"][client]:
            name = client if branch == "fused" else f"  {branch}"
            rows.append(GridRow(name, [format_score(one["clients"][client][branch]) for one in metrics.values()]))
    for branch in first["mean"]:
        is_first = branch == "fused"
        cells = [format_score(one["mean"][branch]) for one in metrics.values()]
        rows.append(GridRow("mean" if is_first else f"  {branch}", cells, "bold" * is_first, new_section=is_first))
    print_grid(screen, Grid("client", [name.replace("_", " ") for name in metrics], rows))
    clients = len(first["clients"])
    lacking = [name.replace("_", " ") for name, one in metrics.items() if clients > min(one["defined"].values())]
    if lacking:
        text = f"undefined (–) for clients whose data are of one class: {', '.join(lacking)}; the means leave these out"
        print_paragraph(screen, text)
