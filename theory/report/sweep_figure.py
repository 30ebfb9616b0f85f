"""The figure of a sweep: the three λ_min, and their gain, over one or two swept settings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from theory.report.plot_style import (
    DASHED,
    FULL_WIDTH,
    MODEL_STYLES,
    MUTED_COLOUR,
    add_legend_above,
    create_canvas,
    format_short,
    format_tex,
    mask_nonpositive,
    plot_curve,
    save_figure,
    set_log_axis,
    set_x_ticks,
    use_plot_style,
)
from theory.sweep_table import SweepRow, SweepTable, compute_gain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

MAX_PANELS = 4
"""At most this many values of the second setting get a panel of their own; the map shows all."""
AXIS_LABELS = {
    "clients": "number of clients N", "samples": "samples per client M", "dim": "input dimension d",
    "width": "hidden width m", "alpha": "scale α", "heterogeneity": "heterogeneity of the clients",
    "steps": "steps of descent", "seed": "seed", "ridge": "ridge",
}  # fmt: skip


@dataclass(frozen=True)
class Point:
    """What is shown of one combination of the swept settings."""

    chosen: dict[str, float]
    V_on: float
    V_off: float
    V: float
    share_held: float

    @property
    def gain(self) -> float:
        """Fed-CO2's λ_min over FedBN's."""
        return compute_gain(self.V, self.V_on)

    def get_least(self, model: str) -> float:
        """λ_min of the kernel of this name."""
        value: float = getattr(self, model)
        return value


def draw_sweep(table: SweepTable, folder: Path) -> Path:
    """One swept setting: λ_min and gain against it. Two: panels for the values of the second, and a map of the gain."""
    folder.mkdir(parents=True, exist_ok=True)
    points, names = _average_repeats(table.rows, table.swept), table.swept
    with use_plot_style():
        one = len(names) == 1
        body = _draw_one_setting(points, names[0]) if one else _draw_two_settings(points, names[0], names[1])
        return save_figure(body, folder / "sweep.png")


def _average_repeats(rows: list[SweepRow], names: list[str]) -> list[Point]:
    """One point for each setting, sorted; repeated ones are averaged."""
    groups: dict[tuple[float, ...], list[SweepRow]] = {}
    for row in rows:
        groups.setdefault(tuple(row.chosen[name] for name in names), []).append(row)
    measured = ("V_on", "V_off", "V", "share_held")
    return [
        Point(
            dict(zip(names, key, strict=True)), *(sum(getattr(row, k) for row in group) / len(group) for k in measured)
        )
        for key, group in sorted(groups.items())
    ]


def _format_title(rows: list[Point]) -> str:
    gains = [g for row in rows if math.isfinite(g := row.gain)]
    failing = sum(row.share_held < 1 for row in rows)
    order = f"not all claims hold in {failing} of {len(rows)} settings" if failing else "all claims hold"
    if not gains:
        return f"λ_min(V_on) is nowhere positive; {order}"
    low, high = format_short(min(gains)), format_short(max(gains))
    return f"Fed-CO2 has {low} to {high} times FedBN's λ_min over the sweep; {order}"


def _set_x_axis(axes: Axes, values: list[float], name: str, panels: int) -> None:
    spans_decades = min(values) > 0 and max(values) / min(values) >= 8
    if spans_decades:
        set_log_axis(axes, values, "x")
    if len(values) <= 9:
        set_x_ticks(axes, values, panels)
    axes.set_xlabel(AXIS_LABELS.get(name, name))


def _plot_models(axes: Axes, rows: list[Point], name: str, panels: int) -> None:
    x = [row.chosen[name] for row in rows]
    for key, look in MODEL_STYLES.items():
        plot_curve(axes, x, mask_nonpositive(row.get_least(key) for row in rows), look)
    _set_x_axis(axes, x, name, panels)


def _mark_failures(axes: Axes, rows: list[Point], x: list[float], y: list[float]) -> None:
    """Mark settings in which not all claims held, with a cross and the share that did."""
    for row, a, b in zip(rows, x, y, strict=True):
        if row.share_held < 1:
            axes.plot([a], [b], marker="x", ms=11, mew=2.2, color="black", ls="", zorder=6)
            box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5, "alpha": 0.85}
            axes.annotate(
                f"{100 * row.share_held:.0f} % hold", (a, b), (0, -12),
                textcoords="offset points", ha="center", va="top", size=9, bbox=box, zorder=6,
            )  # fmt: skip


def _draw_one_setting(rows: list[Point], name: str) -> SubFigure:
    body = create_canvas(_format_title(rows), FULL_WIDTH, 4.2)
    left, right = body.subplots(1, 2, width_ratios=(1.15, 1))
    _plot_models(left, rows, name, 2)
    set_log_axis(left, [row.get_least(key) for row in rows for key in MODEL_STYLES])
    left.set_ylabel(format_tex("λ_min of the kernel V"))
    left.legend(loc="best")
    x, gains = [row.chosen[name] for row in rows], [row.gain for row in rows]
    plot_curve(right, x, gains, MODEL_STYLES["V"])
    _mark_failures(right, rows, x, gains)
    right.axhline(1, color=MUTED_COLOUR, lw=1, ls=DASHED)
    right.margins(y=0.16)
    _set_x_axis(right, x, name, 2)
    right.set_ylabel(format_tex("gain λ_min(V) / λ_min(V_on)"))
    return body


def _draw_two_settings(rows: list[Point], first: str, second: str) -> SubFigure:
    body = create_canvas(_format_title(rows), FULL_WIDTH, 7.2)
    across, down = sorted({row.chosen[first] for row in rows}), sorted({row.chosen[second] for row in rows})
    step = max(1.0, (len(down) - 1) / (MAX_PANELS - 1))
    chosen = [down[round(k * step)] for k in range(min(MAX_PANELS, len(down)))]
    grid = body.add_gridspec(2, len(chosen))
    panels = [body.add_subplot(grid[0, k]) for k in range(len(chosen))]
    for k, (panel, value) in enumerate(zip(panels, chosen, strict=True)):
        _plot_models(panel, [row for row in rows if row.chosen[second] == value], first, len(chosen))
        set_log_axis(panel, [row.get_least(key) for row in rows for key in MODEL_STYLES])
        panel.set_title(f"{AXIS_LABELS.get(second, second)} = {value:g}", size=9.5)
        panel.tick_params(labelleft=k == 0)
    panels[0].set_ylabel(format_tex("λ_min of the kernel V"))
    _draw_gain_map(body, body.add_subplot(grid[1, :]), rows, across, down, (first, second))
    add_legend_above(body)
    return body


def _draw_gain_map(
    body: SubFigure, axes: Axes, rows: list[Point], across: list[float], down: list[float], names: tuple[str, str]
) -> None:
    """Draw the gain as a colour map with its numbers written in."""
    cells = [[math.nan] * len(across) for _ in down]
    for row in rows:
        cells[down.index(row.chosen[names[1]])][across.index(row.chosen[names[0]])] = row.gain
    known = [g for line in cells for g in line if math.isfinite(g)] or [1.0]
    low, high = min(known), max(max(known), 1.05 * min(known))
    image = axes.imshow(cells, cmap="cividis", aspect="auto", vmin=low, vmax=high, origin="lower")
    for row in rows:
        i, j = down.index(row.chosen[names[1]]), across.index(row.chosen[names[0]])
        light = not cells[i][j] < low + 0.5 * (high - low)
        text = f"×{format_short(cells[i][j])}" if math.isfinite(cells[i][j]) else "–"
        text += "" if row.share_held >= 1 else f"\n{100 * row.share_held:.0f} % hold"
        axes.text(j, i, text, ha="center", va="center", color="black" if light else "white", size=9.5)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_xticks(range(len(across)), [f"{v:g}" for v in across])
    axes.set_yticks(range(len(down)), [f"{v:g}" for v in down])
    axes.set_xlabel(AXIS_LABELS.get(names[0], names[0]))
    axes.set_ylabel(AXIS_LABELS.get(names[1], names[1]))
    body.colorbar(image, ax=axes, label=format_tex("gain λ_min(V) / λ_min(V_on)"), pad=0.01)
