"""Tables of names and short cells that fit a terminal: as they are, with broken headings, turned, or in parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from rich.cells import cell_len
from rich.console import Console

from fedtrain.utils.terminal import get_table_width, wrap_words

GAP = 2
"""Blanks between two columns."""
NARROWEST_NAME = 12
"""Names down the side are broken into lines of no less than this."""
NAME_INDENT = 2


@dataclass(frozen=True)
class GridRow:
    """A row: its name, its cells, how it looks, and whether a blank line sets it apart from those above."""

    name: str
    cells: Sequence[str]
    style: str = ""
    new_section: bool = False


@dataclass(frozen=True)
class Grid:
    """Rows under headings. ``corner`` says what the rows are, ``turned_corner`` what the headings are."""

    corner: str
    heads: Sequence[str]
    rows: Sequence[GridRow]
    turned_corner: str = ""
    """Empty: headings and rows are not to be swapped."""

    def turn(self) -> Grid:
        """A row for each heading; styles and sections belong to rows and are lost."""
        rows = [GridRow(head, [row.cells[k] for row in self.rows]) for k, head in enumerate(self.heads)]
        return Grid(self.turned_corner, [row.name for row in self.rows], rows, self.corner)

    def select_columns(self, start: int, end: int) -> Grid:
        """Some of the columns."""
        return replace(
            self, heads=self.heads[start:end], rows=[replace(row, cells=row.cells[start:end]) for row in self.rows]
        )


@dataclass(frozen=True)
class Layout:
    """A grid, and the width of its names and of each column."""

    grid: Grid
    name_width: int
    widths: Sequence[int]

    @property
    def total(self) -> int:
        """The width of all."""
        return self.name_width + sum(width + GAP for width in self.widths)


def print_grid(screen: Console, grid: Grid) -> None:
    """Print a grid so that no name and no cell is broken within a word."""
    for number, layout in enumerate(fit_grid(grid, get_table_width(screen))):
        if number:
            screen.print()
        for line, style in render_layout(layout):
            screen.print(line.rstrip(), style=style, soft_wrap=True)


def fit_grid(grid: Grid, width: int | None) -> list[Layout]:
    """The grid in one piece if there is a way to fit it into the width (None: any), else in parts with all rows."""
    turned = [grid.turn()] if grid.turned_corner else []
    ways = [
        lay_out(one, break_heads, break_names)
        for one in (grid, *turned)
        for break_heads, break_names in ((False, False), (True, False), (True, True))
    ]
    if width is None:
        return ways[:1]
    fitting = next((layout for layout in ways if layout.total <= width), None)
    return [fitting] if fitting else list(split_grid(grid, width))


def lay_out(grid: Grid, break_heads: bool, break_names: bool) -> Layout:
    """The narrowest columns that hold all cells, and headings and names whole or broken between words."""
    names = [grid.corner, *(row.name for row in grid.rows)]
    name_width = max(cell_len(name) for name in names)
    if break_names:
        longest = max(cell_len(word) + NAME_INDENT for name in names for word in name.split() or [""])
        name_width = min(name_width, max(longest, NARROWEST_NAME))
    heads = [max(map(cell_len, head.split() if break_heads else [head]), default=0) for head in grid.heads]
    cells = [max((cell_len(row.cells[k]) for row in grid.rows), default=0) for k in range(len(grid.heads))]
    return Layout(grid, name_width, list(map(max, heads, cells)))


def split_grid(grid: Grid, width: int) -> Iterator[Layout]:
    """Parts with as many columns as fit, one at least."""
    start = 0
    while start < len(grid.heads):
        end = start + 1
        while end < len(grid.heads) and lay_out(grid.select_columns(start, end + 1), True, True).total <= width:
            end += 1
        yield lay_out(grid.select_columns(start, end), True, True)
        start = end


def render_layout(layout: Layout) -> Iterator[tuple[str, str]]:
    """The lines, each with its style."""
    grid = layout.grid
    heads = [wrap_words(head, width) for head, width in zip(grid.heads, layout.widths, strict=True)]
    height = max(map(len, heads), default=1)
    columns = [[""] * (height - len(lines)) + lines for lines in heads]
    corner = [""] * (height - 1) + [grid.corner]
    for k in range(height):
        yield _join(layout, corner[k], [lines[k] for lines in columns]), "bold"
    yield "─" * layout.total, ""
    for row in grid.rows:
        if row.new_section:
            yield "", ""
        name = wrap_words(row.name, layout.name_width, NAME_INDENT)
        for text, cells in zip_longest(name, [row.cells], fillvalue=None):
            yield _join(layout, text or "", cells or [""] * len(grid.heads)), row.style


def _join(layout: Layout, name: str, cells: Sequence[str]) -> str:
    padded = [" " * (GAP + width - cell_len(cell)) + cell for cell, width in zip(cells, layout.widths, strict=True)]
    return name + " " * (layout.name_width - cell_len(name)) + "".join(padded)
