"""How ``fedco2 forecast`` shows what it foretells."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from fedtrain.report.formatting import format_points
from theory.forecast import FEDBN, FEDCO2, SINGLESET

SHOWN_METHODS = (SINGLESET, FEDBN, FEDCO2)
MAX_CLIENTS_SHOWN = 24
"""Of more clients those are shown who gain least by federation and those who gain most, a dozen each."""


def show_forecast(screen: Console, report: dict[str, Any]) -> None:
    """A row a client, then the verdict in words."""
    screen.print(f"Foretold, nothing trained: {report['title']}", style="bold", soft_wrap=True)
    screen.print(f"{report['score']}, in %, each training sample predicted from three folds of four")
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    table.add_column("client", no_wrap=True)
    for name in ("samples", *SHOWN_METHODS, "FedBN - SingleSet"):
        table.add_column(name, justify="right")
    table.add_column("federation")
    rows, many = report["clients"], len(report["clients"]) > MAX_CLIENTS_SHOWN
    if many:
        order = sorted(rows, key=lambda row: row["federation"]["gain"])
        rows = [*order[: MAX_CLIENTS_SHOWN // 2], *order[-MAX_CLIENTS_SHOWN // 2 :]]
    for k, row in enumerate(rows, 1):
        part = k == len(rows) or (many and k == MAX_CLIENTS_SHOWN // 2)
        table.add_row(
            row["name"], f"{row['samples']:,}", *format_cells(row["scores"], row["federation"]), end_section=part
        )
    table.add_row("mean of all", "", *format_cells(report["mean"], report["federation"]), style="bold")
    screen.print(table)
    if many:
        few, all_of_them = MAX_CLIENTS_SHOWN // 2, len(report["clients"])
        screen.print(f"The {few} clients of {all_of_them} who gain least by federation and the {few} who gain most;")
        screen.print("--json has all.")
    first = report["first"]
    clear = "ahead of" if first["word"] == "helps" else "level with"
    screen.print(
        f"{first['method']} is {clear} {first['second']}: "
        f"{format_points(first['gain'])} ± {100 * first['error']:.1f} points",
        style="bold",
    )
    screen.print("± standard error over samples. Beyond two of them federation is said to help or to hurt,")
    screen.print("which chance alone makes of one client in twenty.")
    if report["standin"]:
        screen.print("STAND-IN DATA: this says nothing about the real data set", style="bold yellow")
    for note in report["notes"]:
        screen.print(f"note: {note}", style="yellow", soft_wrap=True)


def format_cells(scores: dict[str, float], federation: dict[str, Any]) -> list[str]:
    """Scores of the three methods, and what federation does."""
    gain = f"{format_points(federation['gain'])} ± {100 * federation['error']:.1f}"
    return [*(f"{100 * scores[method]:.1f}" for method in SHOWN_METHODS), gain, federation["word"]]
