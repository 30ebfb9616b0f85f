"""How ``fedco2 report`` shows results and comparisons on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from fedtrain.report.compare import ComparisonResult
from fedtrain.report.formatting import format_p_value, format_percent, format_points
from fedtrain.report.page_tables import format_results
from fedtrain.report.tables import RULE_DESCRIPTIONS, ResultTable


def show_result_tables(screen: Console, tables: Sequence[ResultTable]) -> None:
    """A table for each set of data, the best of each column in bold."""
    for board in tables:
        screen.print(
            f"Test accuracy in %, {board.title}, {RULE_DESCRIPTIONS[board.rule]}", style="bold", soft_wrap=True
        )
        grid = format_results(board)
        table = _make_table("method", *grid.heads)
        for label, cells in grid.rows:
            texts = [cell.text + ("" if cell.std is None else f"±{cell.std}") for cell in cells]
            marked = [f"{text}*" if cell.best else f"{text} " for text, cell in zip(texts, cells, strict=True)]
            table.add_row(label, *marked)
        screen.print(table)
        if any(len(row.runs) > 1 for row in board.rows):
            screen.print("± std over seeds (ddof 1)")
        if board.ranked:
            screen.print("* the highest of its column" + " among finished runs" * (len(board.ranked) < len(board.rows)))
        _show_notes(screen, board.standin, [*board.cautions, *board.notes])
        screen.print()


def show_comparison(screen: Console, comparison: ComparisonResult) -> None:
    """A row a client: both accuracies, the difference, its interval and p values."""
    a, b = comparison["a"]["label"], comparison["b"]["label"]
    screen.print(
        f"{b} (B) against {a} (A): test accuracy in %, {comparison['title']}, {comparison['rule_words']}",
        style="bold",
        soft_wrap=True,
    )
    paired = comparison["paired"]
    tests = ("\nstd", "p,\npaired t", "p,\nWilcoxon") if paired else ("p,\napproximate",)
    table = _make_table("\nclient", "\nA", "\nB", "\nB - A", "95 %\ninterval", *tests)
    for row in comparison["rows"]:
        last = row is comparison["rows"][-1]
        if last:
            table.add_section()
        between = "–" if row["low"] is None else f"{format_points(row['low'])} to {format_points(row['high'])}"
        judged = (
            [format_percent(row["std"]), format_p_value(row["p"]), format_p_value(row["wilcoxon"])]
            if paired
            else [format_p_value(row["p"])]
        )
        cells = [format_percent(row["a"]), format_percent(row["b"]), format_points(row["difference"]), between, *judged]
        table.add_row(row["name"], *cells, style="bold" * last)
    screen.print(table)
    screen.print(f"B is higher on {comparison['higher']} of {len(comparison['rows']) - 1} clients")
    screen.print(comparison["test"], "p values are two-sided, and not corrected for the number of clients.")
    _show_notes(screen, comparison["standin"], comparison["notes"])


def _make_table(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    table.add_column(first, overflow="fold", min_width=10)
    for name in others:
        table.add_column(name, justify="right", overflow="fold")
    return table


def _show_notes(screen: Console, standin: bool, notes: Sequence[str]) -> None:
    if standin:
        screen.print("STAND-IN DATA: these numbers say nothing about the real data set", style="bold yellow")
    for note in notes:
        screen.print(f"note: {note}", style="yellow", soft_wrap=True)
