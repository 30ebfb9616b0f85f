"""Figures of a page as SVG that the page holds itself."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from fedtrain.report import cost_figures, curves, plot_style
from fedtrain.report.label_figure import draw_label_figure
from fedtrain.report.rows import TableRow
from fedtrain.report.tables import ResultTable
from theory.report.plot_style import use_plot_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

FIGURES: dict[str, Callable[[ResultTable, bool], SubFigure | None]] = {
    "mean": curves.draw_mean_curves,
    "clients": curves.draw_client_curves,
    "branches": curves.draw_branch_curves,
    "fairness": cost_figures.draw_fairness_boxes,
    "traffic": cost_figures.draw_accuracy_by_bytes,
    "time": cost_figures.draw_round_times,
}
MAX_LABEL_FIGURES = 3
"""So many different partitions are drawn."""


@dataclass(frozen=True)
class SvgFigure:
    """A figure as data, once for a page and once for a phone, and its size so that the page does not jump."""

    wide: str
    narrow: str | None
    width: int
    height: int


def draw_svg_figures(table: ResultTable) -> dict[str, SvgFigure]:
    """All that there is something to draw for."""
    return {name: picture for name, draw in FIGURES.items() if (picture := _draw_svg_figure(table, draw))}


def _draw_svg_figure(table: ResultTable, draw: Callable[[ResultTable, bool], SubFigure | None]) -> SvgFigure | None:
    with use_plot_style():
        wide, narrow = draw(table, False), draw(table, True)
        return None if wide is None or narrow is None else _encode_svg_figure(wide.figure, narrow.figure)


def draw_label_figures(table: ResultTable) -> list[SvgFigure]:
    """Who trained on how much of which class: one figure for each partition among the runs."""
    found: dict[str, TableRow] = {}
    for row in table.rows:
        if row.first.class_counts:
            found.setdefault(repr(row.first.class_counts), row)
    drawn = []
    for row in list(found.values())[:MAX_LABEL_FIGURES]:
        held = row.first.class_counts or {}
        whose = "" if len(found) == 1 else f" (as in {row.label})"
        title = f"{table.title}: training images of each class{whose}"
        names = [plot_style.escape_mathtext(name) for name in held]
        classes = [plot_style.escape_mathtext(str(name)) for name in row.first.data["classes"]]
        figure = draw_label_figure(np.array(list(held.values())), names, classes, plot_style.escape_mathtext(title))
        with use_plot_style():
            drawn.append(_encode_svg_figure(figure, None))
    return drawn


def _encode_svg_figure(wide: Figure, narrow: Figure | None) -> SvgFigure:
    width, height = (round(72 * inches) for inches in wide.get_size_inches())
    return SvgFigure(_render_svg(wide), None if narrow is None else _render_svg(narrow), width, height)


def _render_svg(figure: Figure) -> str:
    """A picture that names neither date nor program and numbers its parts alike each time: equal figures are equal."""
    import matplotlib

    file = BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": "fedco2"}):
        figure.savefig(file, format="svg", facecolor="white", metadata={"Date": None, "Creator": None})
    return "data:image/svg+xml;base64," + base64.b64encode(file.getvalue()).decode("ascii")
