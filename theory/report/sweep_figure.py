"""The figure of a sweep: the three λ_min, and their gain, over one or two swept settings."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from theory.report.style import (
    DASHED,
    FAINT,
    MODELS,
    WIDE,
    above_zero,
    canvas,
    drawing,
    legend_above,
    log_axis,
    only_ticks,
    plot,
    save,
    short,
    tex,
)
from theory.sweep import gain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

Row = dict[str, Any]
PANELS = 4
"""At most so many values of the second setting get a panel of their own; the map shows all."""
NAMES = {
    "clients": "number of clients N", "samples": "samples per client M", "dim": "input dimension d",
    "width": "hidden width m", "alpha": "scale α", "heterogeneity": "heterogeneity of the clients",
    "steps": "steps of descent", "seed": "seed", "ridge": "ridge",
}  # fmt: skip


def draw_sweep(rows: list[Row], names: list[str], folder: Path) -> Path:
    """One swept setting: λ_min and gain against it. Two: panels for the values of the second, and a map of the gain."""
    folder.mkdir(parents=True, exist_ok=True)
    table = _averaged(rows, names)
    with drawing():
        body = _one(table, names[0]) if len(names) == 1 else _two(table, names[0], names[1])
        return save(body, folder / "sweep.png")


def _averaged(rows: list[Row], names: list[str]) -> list[Row]:
    """One row for each setting, sorted; repeated ones are averaged."""
    groups: dict[tuple[float, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    measured = ("V_on", "V_off", "V", "O_hold")
    return [
        dict(zip(names, key, strict=True)) | {k: sum(row[k] for row in group) / len(group) for k in measured}
        for key, group in sorted(groups.items())
    ]


def _gain(row: Row) -> float:
    return gain(row["V"], row["V_on"])


def _title(rows: list[Row]) -> str:
    gains = [g for row in rows if math.isfinite(g := _gain(row))]
    broken = sum(row["O_hold"] < 1 for row in rows)
    order = f"not all claims hold in {broken} of {len(rows)} settings" if broken else "all claims hold"
    if not gains:
        return f"λ_min(V_on) is nowhere positive; {order}"
    return f"Fed-CO2 has {short(min(gains))} to {short(max(gains))} times FedBN's λ_min over the sweep; {order}"


def _set_x(axes: Axes, values: list[float], name: str, panels: int) -> None:
    unlike = min(values) > 0 and max(values) / min(values) >= 8
    if unlike:
        log_axis(axes, values, "x")
    if len(values) <= 9:
        only_ticks(axes, values, panels)
    axes.set_xlabel(NAMES.get(name, name))


def _lines(axes: Axes, rows: list[Row], name: str, panels: int) -> None:
    x = [row[name] for row in rows]
    for key, look in MODELS.items():
        plot(axes, x, above_zero(row[key] for row in rows), look)
    _set_x(axes, x, name, panels)


def _mark(axes: Axes, rows: list[Row], x: list[float], y: list[float]) -> None:
    """A cross and the share of claims that held, where it is not all."""
    for row, a, b in zip(rows, x, y, strict=True):
        if row["O_hold"] < 1:
            axes.plot([a], [b], marker="x", ms=11, mew=2.2, color="black", ls="", zorder=6)
            box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5, "alpha": 0.85}
            axes.annotate(
                f"{100 * row['O_hold']:.0f} % hold", (a, b), (0, -12),
                textcoords="offset points", ha="center", va="top", size=9, bbox=box, zorder=6,
            )  # fmt: skip


def _one(rows: list[Row], name: str) -> SubFigure:
    body = canvas(_title(rows), WIDE, 4.2)
    left, right = body.subplots(1, 2, width_ratios=(1.15, 1))
    _lines(left, rows, name, 2)
    log_axis(left, [row[key] for row in rows for key in MODELS])
    left.set_ylabel(tex("λ_min of the kernel V"))
    left.legend(loc="best")
    x, gains = [row[name] for row in rows], [_gain(row) for row in rows]
    plot(right, x, gains, MODELS["V"])
    _mark(right, rows, x, gains)
    right.axhline(1, color=FAINT, lw=1, ls=DASHED)
    right.margins(y=0.16)
    _set_x(right, x, name, 2)
    right.set_ylabel(tex("gain λ_min(V) / λ_min(V_on)"))
    return body


def _two(rows: list[Row], first: str, second: str) -> SubFigure:
    body = canvas(_title(rows), WIDE, 7.2)
    across, down = sorted({row[first] for row in rows}), sorted({row[second] for row in rows})
    step = max(1.0, (len(down) - 1) / (PANELS - 1))
    chosen = [down[round(k * step)] for k in range(min(PANELS, len(down)))]
    grid = body.add_gridspec(2, len(chosen))
    panels = [body.add_subplot(grid[0, k]) for k in range(len(chosen))]
    for k, (panel, value) in enumerate(zip(panels, chosen, strict=True)):
        _lines(panel, [row for row in rows if row[second] == value], first, len(chosen))
        log_axis(panel, [row[key] for row in rows for key in MODELS])
        panel.set_title(f"{NAMES.get(second, second)} = {value:g}", size=9.5)
        panel.tick_params(labelleft=k == 0)
    panels[0].set_ylabel(tex("λ_min of the kernel V"))
    _map(body, body.add_subplot(grid[1, :]), rows, across, down, (first, second))
    legend_above(body)
    return body


def _map(
    body: SubFigure, axes: Axes, rows: list[Row], across: list[float], down: list[float], names: tuple[str, str]
) -> None:
    """The gain as a map with its numbers written in."""
    cells = [[math.nan] * len(across) for _ in down]
    for row in rows:
        cells[down.index(row[names[1]])][across.index(row[names[0]])] = _gain(row)
    known = [g for line in cells for g in line if math.isfinite(g)] or [1.0]
    low, high = min(known), max(max(known), 1.05 * min(known))
    image = axes.imshow(cells, cmap="cividis", aspect="auto", vmin=low, vmax=high, origin="lower")
    for row in rows:
        i, j = down.index(row[names[1]]), across.index(row[names[0]])
        light = not cells[i][j] < low + 0.5 * (high - low)
        text = f"×{short(cells[i][j])}" if math.isfinite(cells[i][j]) else "–"
        text += "" if row["O_hold"] >= 1 else f"\n{100 * row['O_hold']:.0f} % hold"
        axes.text(j, i, text, ha="center", va="center", color="black" if light else "white", size=9.5)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_xticks(range(len(across)), [f"{v:g}" for v in across])
    axes.set_yticks(range(len(down)), [f"{v:g}" for v in down])
    axes.set_xlabel(NAMES.get(names[0], names[0]))
    axes.set_ylabel(NAMES.get(names[1], names[1]))
    body.colorbar(image, ax=axes, label=tex("gain λ_min(V) / λ_min(V_on)"), pad=0.01)
