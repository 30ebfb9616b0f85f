"""Tables whose cells are words: on a terminal they are broken between words so that the table fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest

from rich.cells import cell_len
from rich.console import Console

from fedtrain.utils.terminal import get_table_width, wrap_words

GAP = 2
"""Blanks between two columns."""


@dataclass(frozen=True)
class Column:
    """A heading, and whether its cells are numbers, which stand to the right and stay on one line."""

    head: str
    numeric: bool = False
    whole: bool = False
    """Cells are names, which stay on one line."""


def print_word_table(
    screen: Console, columns: Sequence[Column], rows: Sequence[Sequence[object]], styles: Sequence[str] = ()
) -> None:
    """Print a table; elsewhere than on a terminal each row is one line."""
    texts = [[str(cell) for cell in row] for row in rows]
    heads = [column.head for column in columns]
    widths = compute_widths(columns, [heads, *texts], get_table_width(screen))
    for line in render_row(columns, heads, widths):
        screen.print(line, style="bold", soft_wrap=True)
    if screen.is_terminal:
        screen.print("─" * (sum(widths) + GAP * (len(widths) - 1)), soft_wrap=True)
    for row, style in zip_longest(texts, styles, fillvalue=""):
        for line in render_row(columns, row, widths):
            screen.print(line, style=style, soft_wrap=True)


def compute_widths(columns: Sequence[Column], rows: Sequence[Sequence[str]], limit: int | None) -> list[int]:
    """The width of each column; if all together exceed the limit, columns of words give way where it costs least."""
    cells = list(zip(*rows, strict=True))
    widths = [max(map(cell_len, column)) for column in cells]
    least = [
        width if one.numeric or one.whole else max(cell_len(word) for cell in column for word in cell.split() or [""])
        for one, column, width in zip(columns, cells, widths, strict=True)
    ]
    while limit is not None and sum(widths) + GAP * (len(widths) - 1) > limit:
        narrower = [
            [width - (k == place) for k, width in enumerate(widths)]
            for place, width in enumerate(widths)
            if width > least[place]
        ]
        if not narrower:
            break
        widths = min(narrower, key=lambda tried: (_count_lines(rows, tried), max(tried)))
    return widths


def _count_lines(rows: Sequence[Sequence[str]], widths: Sequence[int]) -> int:
    return sum(max(map(_count_wrapped, row, widths)) for row in rows)


@cache
def _count_wrapped(cell: str, width: int) -> int:
    return len(wrap_words(cell, max(width, 1)))


def render_row(columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    """The lines of one row."""
    wrapped = [wrap_words(cell, max(width, 1)) for cell, width in zip(cells, widths, strict=True)]
    return [
        (" " * GAP)
        .join(
            " " * (width - cell_len(text)) + text if column.numeric else text + " " * (width - cell_len(text))
            for column, text, width in zip(columns, line, widths, strict=True)
        )
        .rstrip()
        for line in zip_longest(*wrapped, fillvalue="")
    ]
