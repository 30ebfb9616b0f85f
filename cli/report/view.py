"""How ``fedco2 report`` shows results and comparisons on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from fedtrain.report.compare import ComparisonResult, PairedSampleTests
from fedtrain.report.formatting import format_p_value, format_percent, format_points
from fedtrain.report.page_tables import Cell, format_results
from fedtrain.report.score_rows import format_score_rows
from fedtrain.report.tables import RULE_DESCRIPTIONS, ResultTable
from fedtrain.utils.terminal import print_paragraph
from fedtrain.utils.terminal_table import Grid, GridRow, print_grid


def show_result_tables(screen: Console, tables: Sequence[ResultTable]) -> None:
    """A table for each set of data, the best of each column marked."""
    for table in tables:
        print_paragraph(screen, f"Test accuracy in %, {table.title}, {RULE_DESCRIPTIONS[table.rule]}", "bold")
        results = format_results(table)
        rows = [
            GridRow(label, [format_cell(cell, bool(table.ranked)) for cell in cells]) for label, cells in results.rows
        ]
        print_grid(screen, Grid("method", results.heads, rows, turned_corner="client"))
        if scores := format_score_rows(table):
            show_scores(screen, scores)
        if any(len(row.runs) > 1 for row in table.rows):
            screen.print("± std over seeds (ddof 1)")
        if table.ranked:
            among = " among finished runs" * (len(table.ranked) < len(table.rows))
            print_paragraph(screen, f"* the highest on this client, or the highest mean{among}")
        _show_notes(screen, table.standin, [*table.cautions, *table.notes])
        screen.print()


def show_scores(screen: Console, scores: Sequence[tuple[str, str, list[str]]]) -> None:
    """Means over the clients that have a score; the page has all clients."""
    names = list(dict.fromkeys(name for _, name, _ in scores))
    found = {(label, name): cells[-1] for label, name, cells in scores}
    labels = list(dict.fromkeys(label for label, _, _ in scores))
    rows = [GridRow(label, [found.get((label, name), "") for name in names]) for label in labels]
    print_grid(screen, Grid("mean of clients", names, rows))


def format_cell(cell: Cell, with_mark: bool) -> str:
    """The mean, its std if there are several seeds, and a mark (or room for one) if it is the best."""
    return cell.text + ("" if cell.std is None else f"±{cell.std}") + ("*" if cell.best else " " * with_mark)


def show_comparison(screen: Console, comparison: ComparisonResult) -> None:
    """A row a client: both accuracies, the difference, its interval and p values."""
    a, b = comparison["a"]["label"], comparison["b"]["label"]
    print_paragraph(
        screen,
        f"{b} (B) against {a} (A): test accuracy in %, {comparison['title']}, {comparison['rule_words']}",
        "bold",
    )
    paired = comparison["paired"]
    tests = ("std", "p, paired t", "p, Wilcoxon") if paired else ("p, approximate",)
    rows = []
    for row in comparison["rows"]:
        between = "–" if row["low"] is None else f"{format_points(row['low'])} to {format_points(row['high'])}"
        judged = (
            [
                "–" if row["std"] is None else format_percent(row["std"]),
                format_p_value(row["p"]),
                format_p_value(row["wilcoxon"]),
            ]
            if paired
            else [format_p_value(row["p"])]
        )
        cells = [format_percent(row["a"]), format_percent(row["b"]), format_points(row["difference"]), between, *judged]
        last = row is comparison["rows"][-1]
        rows.append(GridRow(row["name"], cells, "bold" * last, new_section=last))
    print_grid(screen, Grid("client", ["A", "B", "B - A", "95 % interval", *tests], rows))
    for test in comparison["samples"]:
        show_sample_test(screen, test)
    screen.print(f"B is higher on {comparison['higher']} of {len(comparison['rows']) - 1} clients")
    corrected = "p values are two-sided, and not corrected for the number of clients."
    print_paragraph(screen, f"{comparison['test']} {corrected}")
    _show_notes(screen, comparison["standin"], comparison["notes"])


def show_sample_test(screen: Console, test: PairedSampleTests) -> None:
    """On how many samples only one of the two runs is right."""
    a, b = test["pair"]
    print_paragraph(screen, f"Sample by sample with the last weights, seed {a if a == b else f'{a} and {b}'}", "bold")
    rows = []
    for one in test["rows"]:
        counts = (one["samples"], one["only_a"], one["only_b"])
        cells = [*(f"{count:,}" for count in counts), format_p_value(one["p"])]
        last = one is test["rows"][-1]
        rows.append(GridRow(one["name"], cells, "bold" * last, new_section=last))
    print_grid(screen, Grid("client", ["samples", "only A right", "only B right", "p, McNemar"], rows))


def _show_notes(screen: Console, standin: bool, notes: Sequence[str]) -> None:
    if standin:
        print_paragraph(screen, "STAND-IN DATA: these numbers say nothing about the real data set", "bold yellow")
    for note in notes:
        print_paragraph(screen, f"note: {note}", "yellow", indent=len("note: "))
