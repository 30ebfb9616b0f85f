"""Accuracy over rounds: the mean of each row, every client, every branch."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import numpy as np

from fedtrain.report.plot_style import (
    CurveEnd,
    assign_styles,
    create_figure,
    escape_mathtext,
    label_curve_ends,
    plot_curve,
)
from fedtrain.report.rows import TableRow
from fedtrain.report.run_figures import BRANCH_COLOURS, MAX_CLIENT_PANELS
from fedtrain.report.tables import ResultTable
from theory.report.plot_style import BRANCH_STYLES, TEXT_COLOUR, LineStyle

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

SeedCurve = dict[int, list[float]]
SPLIT_NAMES = {"test": "test", "val": "validation"}
"""In words."""
SHORT_LABEL_LENGTH = 18
"""A name of so many letters stands beside its curve on a phone too."""


def draw_mean_curves(table: ResultTable, narrow: bool) -> SubFigure:
    """A curve a row, with a band of one std where there are several seeds."""
    long = narrow and max(len(row.label) for row in table.rows) > SHORT_LABEL_LENGTH
    height = (4.0 + 0.22 * len(table.rows) * long) if narrow else 4.6
    body = create_figure(
        f"{table.title}: mean {SPLIT_NAMES[table.curve_split]} accuracy of {len(table.clients)} clients", narrow, height
    )
    axes = body.subplots()
    ends = []
    for row, look in zip(table.rows, assign_styles(table.rows), strict=True):
        curve = row.get_curve(table.curve_split)
        _draw_seed_curve(axes, look, curve, row.label)
        last = max(curve)
        height = 100 * fmean(curve[last])
        ends.append(CurveEnd(last, height, f"{height:.1f}  {row.label}", look.colour))
    _format_round_axis(axes)
    axes.set_ylabel(f"{SPLIT_NAMES[table.curve_split]} accuracy, %")
    axes.set_xlabel("round")
    if long:
        body.legend(loc="outside lower left", ncols=1)
    else:
        label_curve_ends(axes, ends, 2.7 if narrow else 3.5)
    return body


def draw_client_curves(table: ResultTable, narrow: bool) -> SubFigure:
    """A panel a client if they are few, else a panel a row with the band of its clients."""
    if len(table.clients) > MAX_CLIENT_PANELS:
        return _draw_client_bands(table, narrow)
    title = f"{table.title}: {SPLIT_NAMES[table.curve_split]} accuracy of each client"
    body, grid = _create_panels(title, table.curve_split, table.clients, len(table.rows), narrow)
    for axes, name in zip(grid, table.clients, strict=False):
        for row, look in zip(table.rows, assign_styles(table.rows), strict=True):
            _draw_seed_curve(axes, look, row.get_curve(table.curve_split, name), row.label)
        _format_round_axis(axes)
    _add_legend(body, grid[0], narrow)
    return body


def _draw_client_bands(table: ResultTable, narrow: bool) -> SubFigure:
    title = f"{table.title}: mean of {len(table.clients)} clients, band from the 10 % to the 90 % point of them"
    body, grid = _create_panels(title, table.curve_split, [row.label for row in table.rows], 0, narrow)
    for axes, row, look in zip(grid, table.rows, assign_styles(table.rows), strict=False):
        each = [row.get_curve(table.curve_split, name) for name in table.clients]
        rounds = list(each[0])
        values = 100 * np.array([[fmean(curve[round]) for round in rounds] for curve in each])
        low, high = np.percentile(values, (10, 90), axis=0)
        axes.fill_between(rounds, low, high, color=look.colour, alpha=0.18, linewidth=0)
        plot_curve(axes, look, rounds, values.mean(0).tolist())
        _format_round_axis(axes)
    return body


def draw_branch_curves(table: ResultTable, narrow: bool) -> SubFigure | None:
    """The models that a prediction is made of: of each client if one row has them, else the mean of each row."""
    rows = [row for row in table.rows if len(row.first.branches) > 1]
    if not rows:
        return None
    one = len(rows) == 1 and len(table.clients) <= MAX_CLIENT_PANELS
    whose = [*table.clients, None] if one else [None]
    panels: list[tuple[str, TableRow, str | None]] = [
        (client or ("mean" if one else row.label), row, client) for row in rows for client in whose
    ]
    title = f"{table.title}: {rows[0].label} and its models" if one else f"{table.title}: mean accuracy of each model"
    names = list(dict.fromkeys(branch for row in rows for branch in row.first.branches))
    body, grid = _create_panels(title, table.curve_split, [name for name, _, _ in panels], len(names), narrow)
    for axes, (_, row, client) in zip(grid, panels, strict=False):
        for branch in row.first.branches[::-1]:  # the prediction last, above the others
            _draw_seed_curve(axes, get_branch_style(branch), row.get_curve(table.curve_split, client, branch), branch)
        _format_round_axis(axes)
    _add_legend(body, grid[0] if len(rows) == 1 else grid[: len(panels)], narrow)
    return body


def get_branch_style(branch: str) -> LineStyle:
    """As in the figures of a run."""
    plain = LineStyle(
        branch, BRANCH_COLOURS.get(branch, TEXT_COLOUR), "o" if branch in ("generic", "own") else "^", "-", 5.0, 1.4
    )
    return BRANCH_STYLES.get(branch, plain)


def _draw_seed_curve(axes: Axes, look: LineStyle, curve: SeedCurve, label: str) -> None:
    rounds = list(curve)
    middle = [100 * fmean(curve[round]) for round in rounds]
    if all(len(values) > 1 for values in curve.values()):
        half = [100 * stdev(curve[round]) for round in rounds]
        edges = ([m - s for m, s in zip(middle, half, strict=True)], [m + s for m, s in zip(middle, half, strict=True)])
        axes.fill_between(rounds, *edges, color=look.colour, alpha=0.15, linewidth=0)
    plot_curve(axes, look, rounds, middle, label)


def _create_panels(title: str, split: str, names: Sequence[str], entries: int, narrow: bool) -> tuple[SubFigure, Any]:
    """Panels with common axes, named."""
    columns = min(len(names), 2 if narrow else 3)
    lines = -(-len(names) // columns)
    legend = 0.25 * -(-entries // (2 if narrow else 5))
    body = create_figure(title, narrow, 0.9 + legend + (1.75 if narrow else 2.4) * lines)
    grid = body.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for axes, name in zip(grid, names, strict=False):
        axes.set_title(escape_mathtext(name), fontsize=9 if narrow else 10.5)
    for axes in grid[len(names) :]:
        axes.set_visible(False)
    for axes in grid[::columns]:
        axes.set_ylabel("accuracy, %" if narrow else f"{SPLIT_NAMES[split]} accuracy, %")
    for axes in grid[max(0, len(names) - columns) : len(names)]:
        axes.set_xlabel("round")
        axes.tick_params(labelbottom=True)
    return body, grid


def _add_legend(body: SubFigure, panels: Any, narrow: bool) -> None:
    found: dict[str, Any] = {}
    for axes in np.ravel(panels):
        handles, labels = axes.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    columns = min(len(found), 2 if narrow else 5)
    body.legend(found.values(), found.keys(), loc="outside upper left", ncols=columns, borderaxespad=0.2)


def _format_round_axis(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.margins(x=0.03)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
