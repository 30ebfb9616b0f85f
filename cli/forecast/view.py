"""How ``fedco2 forecast`` shows what it predicts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table

from fedtrain.analysis.forecast_report import ForecastReport, GainSummary
from fedtrain.report.formatting import format_points

MAX_CLIENTS_SHOWN = 24
"""Of more clients those are shown who gain least by federation and those who gain most, a dozen each."""


MEAN = "mean of all"
GAP = 3
"""Between two columns."""


@dataclass(frozen=True)
class Column:
    """A column of the table, and how wide it is with the gap beside it."""

    head: str
    cells: list[str]

    @property
    def width(self) -> int:
        """Of the longest cell or word of the head."""
        return max(map(len, [*self.head.split(), *self.cells])) + GAP


def show_forecast(screen: Console, report: ForecastReport) -> None:
    """A row a client, in as many tables as the methods need beside each other, then the verdict in words."""
    screen.print(f"Foretold, nothing trained: {report.title}", style="bold", soft_wrap=True)
    screen.print(f"{report.score}, in %, each training sample predicted from three folds of four")
    methods, has_pair = report.methods, report.federation is not None
    rows, many = report.clients, has_pair and len(report.clients) > MAX_CLIENTS_SHOWN
    if many:
        order = sorted(rows, key=lambda row: row.federation.gain if row.federation else 0.0)
        rows = [*order[: MAX_CLIENTS_SHOWN // 2], *order[-MAX_CLIENTS_SHOWN // 2 :]]
    names = [*(row.name for row in rows), MEAN]
    cells = [format_cells(methods, row.scores, row.federation) for row in rows]
    cells.append(format_cells(methods, report.mean, report.federation))
    heads = [*methods, *(["FedBN - SingleSet", "federation"] if has_pair else [])]
    first = [Column("client", names), Column("samples", [*(f"{row.samples:,}" for row in rows), ""])]
    others = [Column(head, [row[k] for row in cells]) for k, head in enumerate(heads)]
    ends = {MAX_CLIENTS_SHOWN // 2, len(rows)} if many else {len(rows)}
    for group in divide_columns(others, screen.width + GAP - sum(column.width for column in first)):
        screen.print(build_table([*first, *group], ends))
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


def divide_columns(columns: Sequence[Column], room: int) -> list[list[Column]]:
    """As many beside each other as there is room for, at least one."""
    groups: list[list[Column]] = [[]]
    for column in columns:
        if groups[-1] and sum(one.width for one in [*groups[-1], column]) > room:
            groups.append([])
        groups[-1].append(column)
    return groups


def build_table(columns: Sequence[Column], ends: Collection[int]) -> Table:
    """A line below the rows of these numbers, and the mean in bold below all."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    for column in columns:
        is_word = column.head in ("client", "federation")
        table.add_column(column.head, justify="left" if is_word else "right", no_wrap=column.head == "client")
    rows = list(zip(*(column.cells for column in columns), strict=True))
    for k, row in enumerate(rows, 1):
        table.add_row(*row, end_section=k in ends, style="bold" if k == len(rows) else None)
    return table


def format_cells(methods: Sequence[str], scores: Mapping[str, float], federation: GainSummary | None) -> list[str]:
    """Scores of the methods, and what federation does."""
    shown = [f"{100 * scores[method]:.1f}" for method in methods]
    if federation is None:
        return shown
    return [*shown, f"{format_points(federation.gain)} ± {100 * federation.error:.1f}", federation.word]
