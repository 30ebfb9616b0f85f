"""How ``fedco2 data clients`` shows who holds what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NotRequired, TypedDict

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from fedtrain.utils.terminal import keep_together, print_paragraph

MAX_CLASS_COLUMNS = 12
"""Classes that get a column each."""
UNFOLDED_WIDTH = 300
"""Columns of a page that nobody folds: output that goes to a file or a pipe."""


SplitName = Literal["train", "val", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "val", "test")


class ClientRow(TypedDict):
    """How many samples of each class a client holds."""

    name: str
    train: list[int]
    val: NotRequired[list[int]]
    """Only where there are some."""
    test: list[int]


def print_clients(
    screen: Console, heading: str, notes: Sequence[str], rows: list[ClientRow], classes: Sequence[str]
) -> None:
    """Heading, notes, one line a client and the sums; class by class where there is room."""
    if not screen.is_terminal:
        screen.width = UNFOLDED_WIDTH
    print_paragraph(screen, heading, "bold")
    for note in notes:
        print_paragraph(screen, f"note: {note}", "yellow", indent=len("note: "))
    table = (
        _build_class_table(rows, classes) if len(classes) <= MAX_CLASS_COLUMNS else _build_summary_table(rows, classes)
    )
    if Measurement.get(screen, screen.options.update(max_width=UNFOLDED_WIDTH), table).maximum > screen.width:
        table = _build_summary_table(rows, classes)
    screen.print(table)
    if len(table.columns) > len(classes):
        numbered = [name if name == str(k) else keep_together(f"{k} {name}") for k, name in enumerate(classes)]
        print_paragraph(screen, f"Columns: training images of class {', '.join(numbered)}; then sums.")


def _build_class_table(rows: list[ClientRow], classes: Sequence[str]) -> Table:
    """Training images of each class, then sums."""
    kinds = _list_splits(rows)
    table = _make_table("client", *(str(k) for k in range(len(classes))), *kinds)
    for row in rows:
        last = row is rows[-1]
        table.add_row(
            row["name"],
            *map(_format_count, row["train"]),
            *(_format_row_sum(row, kind) for kind in kinds),
            end_section=last,
        )
    columns = [sum(row["train"][k] for row in rows) for k in range(len(classes))]
    table.add_row("all", *map(_format_count, columns), *(_format_total(rows, kind) for kind in kinds))
    return table


def _build_summary_table(rows: list[ClientRow], classes: Sequence[str]) -> Table:
    """How many classes a client trains on, its largest one, and sums."""
    kinds = _list_splits(rows)
    table = _make_table("client", "classes", "largest class", *kinds)
    for row in rows:
        held = sum(count > 0 for count in row["train"])
        top = max(range(len(classes)), key=row["train"].__getitem__)
        share = row["train"][top] / max(sum(row["train"]), 1)
        largest = f"{classes[top]}: {row['train'][top]:,} ({share:.0%})"
        cells = (str(held), largest, *(_format_row_sum(row, kind) for kind in kinds))
        table.add_row(row["name"], *cells, end_section=row is rows[-1])
    held = sum(any(row["train"][k] for row in rows) for k in range(len(classes)))
    table.add_row("all", str(held), "", *(_format_total(rows, kind) for kind in kinds))
    return table


def _make_table(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=0)
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _list_splits(rows: list[ClientRow]) -> list[SplitName]:
    return [kind for kind in SPLITS if any(kind in row for row in rows)]


def _format_count(count: int) -> Text:
    return Text(str(count)) if count else Text("·", style="dim")


def _format_row_sum(row: ClientRow, kind: SplitName) -> str:
    return f"{sum(row.get(kind, [])):,}"


def _format_total(rows: list[ClientRow], kind: SplitName) -> str:
    return f"{sum(sum(row.get(kind, [])) for row in rows):,}"
