"""Figures of fairness and cost: how evenly the clients fare, bytes and time."""

from __future__ import annotations

from statistics import fmean, median
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from fedtrain.report.curves import SPLIT_NAMES
from fedtrain.report.plot_style import (
    CurveEnd,
    assign_styles,
    create_figure,
    escape_mathtext,
    label_curve_ends,
    plot_curve,
)
from fedtrain.report.tables import ResultTable
from theory.report.plot_style import MUTED_COLOUR, TEXT_COLOUR

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

MAX_DOTS = 60
"""Up to so many clients are dots on their box."""


def draw_fairness_boxes(table: ResultTable, narrow: bool) -> SubFigure:
    """A box a row over the accuracies of its clients (means over seeds), the worst one named."""
    dots = "a dot a client, " * (len(table.clients) <= MAX_DOTS)
    title = f"{table.title}: how even the clients fare ({dots}◆ the mean, the worst one named)"
    body = create_figure(title, narrow, 1.5 + 0.62 * len(table.rows))
    axes = body.subplots()
    values = [[100 * row.client_accuracy(name).mean for name in table.clients] for row in table.rows]
    for place, (mine, look) in enumerate(zip(values, assign_styles(table.rows), strict=True), 1):
        low, high = np.percentile(mine, (25, 75))
        axes.hlines(place, min(mine), max(mine), color=MUTED_COLOUR, linewidth=1.0, zorder=1)
        axes.barh(place, high - low, 0.46, left=low, color="#efefef", edgecolor=MUTED_COLOUR, linewidth=0.8, zorder=2)
        axes.vlines(median(mine), place - 0.23, place + 0.23, color=TEXT_COLOUR, linewidth=1.6, zorder=3)
        if len(mine) <= MAX_DOTS:
            axes.plot(mine, [place] * len(mine), "o", color=look.colour, alpha=0.85, markersize=5, zorder=3)
        axes.plot(fmean(mine), place, "D", color=look.colour, markersize=8, markeredgecolor="white", zorder=4)
        worst = min(range(len(mine)), key=mine.__getitem__)
        text = f"{table.clients[worst]} {mine[worst]:.1f}"
        axes.annotate(
            escape_mathtext(text), (mine[worst], place + 0.28), (0, 1), textcoords="offset points", fontsize=8.5,
            color=MUTED_COLOUR, ha="left", va="top",
        )  # fmt: skip
    _label_rows(axes, table, narrow)
    axes.set_xlabel("test accuracy of a client, %")
    return body


def draw_accuracy_by_bytes(table: ResultTable, narrow: bool) -> SubFigure | None:
    """Mean accuracy against all bytes moved so far; a row that sends nothing is a level."""
    sending = [row for row in table.rows if sum(row.bytes_a_round.values())]
    if not sending:
        return None
    title = f"{table.title}: accuracy for the bytes sent, up and down, all clients"
    body = create_figure(title, narrow, 4.0 if narrow else 4.4)
    axes = body.subplots()
    dearest = max(sum(row.bytes_a_round.values()) * row.first.last_evaluated_round for row in sending)
    unit, word = _choose_byte_unit(dearest)
    dearest /= unit
    ends: list[CurveEnd] = []
    for row, look in zip(table.rows, assign_styles(table.rows), strict=True):
        curve, price = row.get_curve(table.curve_split), sum(row.bytes_a_round.values()) / unit
        level = 100 * fmean(curve[max(curve)])
        if price:
            plot_curve(
                axes, look, [price * round for round in curve], [100 * fmean(v) for v in curve.values()], row.label
            )
            ends.append(CurveEnd(price * max(curve), level, row.label, look.colour))
        else:
            axes.axhline(level, color=look.colour, linestyle=look.line, linewidth=1.2, zorder=1)
            ends.append(CurveEnd(dearest, level, f"{row.label} (sends nothing)", look.colour))
    starts = [sum(row.bytes_a_round.values()) * min(row.get_curve(table.curve_split)) / unit for row in sending]
    if dearest > 30 * min(starts):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel(f"{word} sent so far")
    axes.set_ylabel(f"mean {SPLIT_NAMES[table.curve_split]} accuracy, %")
    label_curve_ends(axes, ends, 2.7 if narrow else 3.3)
    return body


def draw_round_times(table: ResultTable, narrow: bool) -> SubFigure | None:
    """Seconds a round."""
    known = [(row.seconds_a_round, look) for row, look in zip(table.rows, assign_styles(table.rows), strict=True)]
    if not any(time and time.mean for time, _ in known):
        return None
    body = create_figure(f"{table.title}: seconds a round, evaluation included", narrow, 1.3 + 0.42 * len(table.rows))
    axes = body.subplots()
    for place, (time, look) in enumerate(known, 1):
        if time is not None:
            axes.barh(place, time.mean, 0.62, color=look.colour, xerr=time.std, ecolor=TEXT_COLOUR, capsize=3)
            axes.annotate(
                f"{time.mean:.3g} s", (time.mean + (time.std or 0), place), (5, 0), textcoords="offset points",
                va="center", fontsize=9,
            )  # fmt: skip
    _label_rows(axes, table, narrow)
    axes.margins(x=0.12)
    axes.set_xlim(left=0)
    axes.set_xlabel("seconds a round")
    return body


def _label_rows(axes: Axes, table: ResultTable, narrow: bool) -> None:
    """A row of the table is a row here."""
    names = [escape_mathtext(fill(row.label, 16) if narrow else row.label) for row in table.rows]
    axes.set_yticks(range(1, len(names) + 1), names)
    axes.set_ylim(len(names) + 0.6, 0.4)
    axes.grid(visible=False, axis="y")


def _choose_byte_unit(largest: float) -> tuple[float, str]:
    for unit, word in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if largest >= unit:
            return unit, word
    return 1.0, "bytes"
