"""How ``fedco2 forecast`` shows what it predicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from fedtrain.analysis.forecast_report import ForecastReport, GainSummary
from fedtrain.report.formatting import format_points

MAX_CLIENTS_SHOWN = 24
"""Of more clients those are shown who gain least by federation and those who gain most, a dozen each."""


def show_forecast(screen: Console, report: ForecastReport) -> None:
    """A row a client, then the verdict in words."""
    screen.print(f"Foretold, nothing trained: {report.title}", style="bold", soft_wrap=True)
    screen.print(f"{report.score}, in %, each training sample predicted from three folds of four")
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    table.add_column("client", no_wrap=True)
    methods, has_pair = report.methods, report.federation is not None
    for name in ("samples", *methods):
        table.add_column(name, justify="right")
    if has_pair:
        table.add_column("FedBN - SingleSet", justify="right")
        table.add_column("federation")
    rows, many = report.clients, has_pair and len(report.clients) > MAX_CLIENTS_SHOWN
    if many:
        order = sorted(rows, key=lambda row: row.federation.gain if row.federation else 0.0)
        rows = [*order[: MAX_CLIENTS_SHOWN // 2], *order[-MAX_CLIENTS_SHOWN // 2 :]]
    for k, row in enumerate(rows, 1):
        part = k == len(rows) or (many and k == MAX_CLIENTS_SHOWN // 2)
        table.add_row(
            row.name,
            f"{row.samples:,}",
            *format_cells(methods, row.scores, row.federation),
            end_section=part,
        )
    table.add_row("mean of all", "", *format_cells(methods, report.mean, report.federation), style="bold")
    screen.print(table)
    if many:
        few, all_of_them = MAX_CLIENTS_SHOWN // 2, len(report.clients)
        screen.print(f"The {few} clients of {all_of_them} who gain least by federation and the {few} who gain most;")
        screen.print("--json has all.")
    if report.order:
        screen.print(report.describe(), style="bold")
    if has_pair:
        screen.print("± standard error over samples. Beyond two of them federation is said to help or to hurt,")
        screen.print("which chance alone makes of one client in twenty.")
    if report.standin:
        screen.print("STAND-IN DATA: this says nothing about the real data set", style="bold yellow")
    for note in report.notes:
        screen.print(f"note: {note}", style="yellow", soft_wrap=True)


def format_cells(methods: Sequence[str], scores: Mapping[str, float], federation: GainSummary | None) -> list[str]:
    """Scores of the methods, and what federation does."""
    shown = [f"{100 * scores[method]:.1f}" for method in methods]
    if federation is None:
        return shown
    return [*shown, f"{format_points(federation.gain)} ± {100 * federation.error:.1f}", federation.word]
