"""The figures of a page as data that the page holds itself."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from fedtrain.report import cost_figures, curves, looks
from fedtrain.report.boards import Board
from fedtrain.report.label_figure import label_figure
from fedtrain.report.rows import Line
from theory.report.style import drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

FIGURES: dict[str, Callable[[Board, bool], SubFigure | None]] = {
    "mean": curves.mean_curves,
    "clients": curves.client_curves,
    "branches": curves.branch_curves,
    "fairness": cost_figures.boxes,
    "traffic": cost_figures.traffic,
    "time": cost_figures.times,
}
LABELS = 3
"""So many different partitions are drawn."""


@dataclass(frozen=True)
class Picture:
    """A figure as data, once for a page and once for a phone, and its size so that the page does not jump."""

    wide: str
    narrow: str | None
    width: int
    height: int


def pictures(board: Board) -> dict[str, Picture]:
    """All that there is something to draw for."""
    return {name: picture for name, draw in FIGURES.items() if (picture := _picture(board, draw))}


def _picture(board: Board, draw: Callable[[Board, bool], SubFigure | None]) -> Picture | None:
    with drawing():
        wide, narrow = draw(board, False), draw(board, True)
        return None if wide is None or narrow is None else _data(wide.figure, narrow.figure)


def labels(board: Board) -> list[Picture]:
    """Who trained on how much of which class: one figure for each partition among the runs."""
    found: dict[str, Line] = {}
    for row in board.rows:
        if row.first.held:
            found.setdefault(repr(row.first.held), row)
    drawn = []
    for row in list(found.values())[:LABELS]:
        held = row.first.held or {}
        whose = "" if len(found) == 1 else f" (as in {row.label})"
        title = f"{board.title}: training images of each class{whose}"
        names = [looks.safe(name) for name in held]
        classes = [looks.safe(str(name)) for name in row.first.data["classes"]]
        figure = label_figure(np.array(list(held.values())), names, classes, looks.safe(title))
        with drawing():
            drawn.append(_data(figure, None))
    return drawn


def _data(wide: Figure, narrow: Figure | None) -> Picture:
    width, height = (round(72 * inches) for inches in wide.get_size_inches())
    return Picture(_svg(wide), None if narrow is None else _svg(narrow), width, height)


def _svg(figure: Figure) -> str:
    """A picture that names neither date nor program and numbers its parts alike each time: equal figures are equal."""
    import matplotlib

    file = BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": "fedco2"}):
        figure.savefig(file, format="svg", facecolor="white", metadata={"Date": None, "Creator": None})
    return "data:image/svg+xml;base64," + base64.b64encode(file.getvalue()).decode("ascii")
