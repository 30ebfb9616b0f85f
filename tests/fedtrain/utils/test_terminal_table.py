"""Tables of numbers: as they are, with broken headings or names, turned, or in parts."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from fedtrain.utils.terminal_table import Grid, GridRow, fit_grid, print_grid

GRID = Grid(
    "method",
    ["mnist", "a long one", "mean"],
    [GridRow("FedAvg", ["1.0", "2.0", "1.5"]), GridRow("FedBN (rounds 3)", ["10.0", "3.0", "6.5"], "bold", True)],
    turned_corner="client",
)


def show(grid: Grid, width: int) -> list[str]:
    screen = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    print_grid(screen, grid)
    return screen.file.getvalue().splitlines()


def test_a_grid_that_fits_is_shown_as_it_is():
    assert show(GRID, 80) == [
        "method            mnist  a long one  mean",
        "─────────────────────────────────────────",
        "FedAvg              1.0         2.0   1.5",
        "",
        "FedBN (rounds 3)   10.0         3.0   6.5",
    ]


def test_headings_are_broken_first():
    assert show(GRID, 36)[:3] == [
        "                            a",
        "                         long",
        "method            mnist   one  mean",
    ]


def test_then_names():
    assert show(GRID, 32)[-2:] == ["FedBN          10.0   3.0   6.5", "  (rounds 3)"]


def test_then_the_grid_is_turned():
    many = Grid("method", [f"client{k:02}" for k in range(8)], [GridRow("A", ["1"] * 8)], turned_corner="client")
    assert show(many, 30)[:3] == ["client    A", "───────────", "client00  1"]


def test_then_it_is_shown_in_parts_that_repeat_the_names():
    fixed = Grid("x", [f"column{k}" for k in range(5)], [GridRow("row", [f"{k}" for k in range(5)])])
    lines = show(fixed, 24)
    assert [line.split() for line in lines if line and not line.startswith("─")] == [
        ["x", "column0", "column1"],
        ["row", "0", "1"],
        ["x", "column2", "column3"],
        ["row", "2", "3"],
        ["x", "column4"],
        ["row", "4"],
    ]


@pytest.mark.parametrize("width", [1, 24, 30, 40, 50, 80, None])
def test_nothing_is_lost_or_broken(width):
    for turned_corner in ("client", ""):
        grid = Grid(GRID.corner, GRID.heads, GRID.rows, turned_corner)
        cells = {cell for part in fit_grid(grid, width) for row in part.grid.rows for cell in row.cells}
        assert cells == {"1.0", "2.0", "1.5", "10.0", "3.0", "6.5"}
        words = " ".join(show(grid, width or 500)).split()
        assert {"method" if width != 30 else words[0], "FedBN", "mnist", "10.0"} <= set(words)
