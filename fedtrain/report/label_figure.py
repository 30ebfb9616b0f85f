"""The figure of labels: who holds how much of which class, as bubbles, stacked bars or a map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from theory.report.plot_style import FULL_WIDTH, MUTED_COLOUR, create_canvas, use_plot_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

    from fedtrain.data.partition.indices import Indices

MAX_BUBBLE_ROWS = 30
"""Up to so many clients and classes are bubbles."""
MAX_BARS = 1000
"""Of more clients, bars that would be thinner than a pixel are one outline: each of them costs as much as any."""
MAX_NAMED_CLIENTS = 12
"""Up to so many clients are called by their names; more are numbered."""
BLUE = "#0072B2"
CLASS_COLOURS = (
    "#332288", "#88CCEE", "#44AA99", "#117733", "#999933", "#DDCC77", "#CC6677", "#882255", "#AA4499", "#BBBBBB",
)  # fmt: skip
"""Paul Tol's muted scheme and a grey: ten that the colour-blind tell apart."""


def draw_label_figure(counts: Indices, names: Sequence[str], classes: Sequence[str], title: str) -> Figure:
    """A figure of counts (clients, classes)."""
    clients, kinds = counts.shape
    with use_plot_style():
        if clients <= MAX_BUBBLE_ROWS and kinds <= MAX_BUBBLE_ROWS:
            body = create_canvas(title, FULL_WIDTH, 2.6 + 0.27 * kinds)
            _draw_bubbles(body, counts, names, classes)
        elif kinds <= len(CLASS_COLOURS):
            body = create_canvas(title, FULL_WIDTH, 4.2)
            _draw_stacked_bars(body, counts, names, classes)
        else:
            body = create_canvas(title, FULL_WIDTH, 6.5)
            _draw_heatmap(body, counts, names)
        body.align_ylabels()
        figure: Any = body.figure
        figure.canvas.draw()  # text and ticks take their style when they are first drawn
    return figure


def _draw_bubbles(body: SubFigure, counts: Indices, names: Sequence[str], classes: Sequence[str]) -> None:
    """Area is the number of samples; the strip above is each client's total."""
    totals, axes = body.subplots(2, 1, sharex=True, height_ratios=(1, 0.35 * len(classes) + 0.5))
    _draw_totals(totals, counts)
    places = np.arange(len(counts))
    client, kind = np.nonzero(counts)
    largest = max(int(counts.max()), 1)
    room = min(FULL_WIDTH * 72 * 0.72 / len(counts), 0.27 * 72)  # points to the next bubble, across and down
    full = (min(1.15 * room, 26.0)) ** 2
    areas = full * counts[client, kind] / largest
    axes.scatter(client, kind, s=areas, color=BLUE, alpha=0.85, edgecolor="white", linewidth=0.5)
    axes.set_ylim(len(classes) - 0.4, -0.6)
    axes.set_yticks(range(len(classes)), classes)
    axes.set_ylabel("class")
    axes.grid(visible=True, color="#f0f0f0")
    _label_clients(axes, names)
    axes.set_xlim(-0.7, places[-1] + 0.7)
    shown = sorted({max(1, round_down_to_one_digit(largest * part)) for part in (0.1, 0.4, 1.0)})
    marks = [
        axes.scatter([], [], s=full * value / largest, color=BLUE, alpha=0.85, edgecolor="white", linewidth=0.5)
        for value in shown
    ]
    body.legend(marks, [f"{value:,}" for value in shown], loc="outside right center", title="samples", labelspacing=1.2)


def _draw_stacked_bars(body: SubFigure, counts: Indices, names: Sequence[str], classes: Sequence[str]) -> None:
    """A bar a client, a colour a class."""
    axes = body.subplots()
    floor = np.zeros(len(counts), dtype=np.int64)
    for column, colour, label in zip(counts.T, CLASS_COLOURS, classes, strict=False):
        if len(counts) > MAX_BARS:
            places, ceiling = np.arange(len(counts)), floor + column
            axes.fill_between(places, floor, ceiling, step="mid", color=colour, label=label, linewidth=0)
        else:
            axes.bar(range(len(counts)), column, 0.9, floor, color=colour, label=label, linewidth=0)
        floor += column
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("samples")
    axes.margins(x=0.01, y=0.03)
    _label_clients(axes, names)
    lines, labels = axes.get_legend_handles_labels()
    body.legend(lines[::-1], labels[::-1], loc="outside right center", title="class", handlelength=1.2)


def _draw_heatmap(body: SubFigure, counts: Indices, names: Sequence[str]) -> None:
    """A shade for each client and class; white is none."""
    from matplotlib.colors import PowerNorm

    totals, axes = body.subplots(2, 1, sharex=True, height_ratios=(1, 6))
    _draw_totals(totals, counts)
    scale = PowerNorm(0.5, 0, counts.max())  # small numbers are the usual ones
    image = axes.imshow(counts.T, aspect="auto", cmap="Blues", norm=scale, interpolation="nearest")
    axes.grid(visible=False)
    axes.set_ylabel("class")
    _label_clients(axes, names)
    body.colorbar(image, ax=[totals, axes], label="samples of a class", pad=0.01)


def _draw_totals(axes: Axes, counts: Indices) -> None:
    if len(counts) > MAX_BARS:
        axes.fill_between(range(len(counts)), counts.sum(axis=1), step="mid", color=MUTED_COLOUR, linewidth=0)
    else:
        axes.bar(range(len(counts)), counts.sum(axis=1), 0.7, color=MUTED_COLOUR, linewidth=0)
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("samples")
    axes.tick_params(axis="x", length=0, labelbottom=False)
    axes.locator_params(axis="y", nbins=2)


def _label_clients(axes: Axes, names: Sequence[str]) -> None:
    """Every client by its name if they are few, else a number here and there."""
    if len(names) <= MAX_NAMED_CLIENTS:
        axes.set_xticks(range(len(names)), names)
    else:
        from matplotlib.ticker import MaxNLocator

        axes.xaxis.set_major_locator(MaxNLocator(min(len(names), 20), integer=True, steps=[1, 2, 5, 10]))
        axes.set_xlabel(f"client ({len(names)} in all, numbered from 0)")


def round_down_to_one_digit(value: float) -> int:
    """To one digit: 1, 2, ..., 9, 10, 20, ..."""
    unit = 10 ** int(np.log10(max(value, 1)))
    return int(value // unit * unit)
