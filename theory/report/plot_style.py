"""The style of every figure: one palette, one set of markers, one way to create and to save."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

TEXT_COLOUR, MUTED_COLOUR, GRID_COLOUR = "#222222", "#6b6b6b", "#e4e4e4"
FULL_WIDTH, HALF_WIDTH = 10.0, 5.6
"""Inches: a figure as wide as the page, and one of two side by side."""
DPI = 200
DASHED = (0, (3.0, 2.2))
"""For claims and bounds, as opposed to measurements."""


@dataclass(frozen=True)
class LineStyle:
    """The look of one model in every figure: an Okabe-Ito colour, and a marker and line that work without colour."""

    label: str
    colour: str
    marker: str
    line: str | tuple[int, tuple[float, ...]]
    size: float
    """The marker's size, chosen so that all markers look equally large."""
    weight: float
    """The line's width; heavier lines are drawn above the others."""


MODEL_STYLES = {
    "V_on": LineStyle("FedBN (online)", "#0072B2", "o", "-", 6.0, 1.7),
    "V": LineStyle("Fed-CO2 (mean)", "#D55E00", "s", "-", 5.6, 2.3),
    "V_off": LineStyle("SingleSet (offline)", "#009E73", "^", (0, (5, 1.4, 1.2, 1.4)), 6.8, 1.6),
}
BRANCH_STYLES = {"online": MODEL_STYLES["V_on"], "fused": MODEL_STYLES["V"], "offline": MODEL_STYLES["V_off"]}
RC_PARAMS = {
    "axes.axisbelow": True, "axes.edgecolor": "#9a9a9a", "axes.grid": True, "axes.labelcolor": TEXT_COLOUR,
    "axes.labelsize": 10, "axes.linewidth": 0.8, "axes.spines.right": False, "axes.spines.top": False,
    "axes.titlecolor": TEXT_COLOUR, "axes.titlelocation": "left", "axes.titlepad": 8, "axes.titlesize": 10.5,
    "figure.facecolor": "white", "font.family": "DejaVu Sans", "font.size": 10, "grid.color": GRID_COLOUR,
    "grid.linewidth": 0.7, "legend.fontsize": 9.5, "legend.frameon": False, "legend.handlelength": 2.6,
    "lines.linewidth": 1.8, "text.color": TEXT_COLOUR, "xtick.color": "#9a9a9a", "xtick.labelcolor": "#444444",
    "xtick.labelsize": 9, "xtick.minor.size": 0, "ytick.color": "#9a9a9a", "ytick.labelcolor": "#444444",
    "ytick.labelsize": 9, "ytick.minor.size": 0,
}  # fmt: skip


@contextmanager
def use_plot_style() -> Iterator[None]:
    """Use our style, ignoring the user's own; the global style is restored afterwards."""
    import matplotlib.style

    with matplotlib.style.context(["default", RC_PARAMS]):
        yield


def create_canvas(message: str, width: float, height: float) -> SubFigure:
    """Create a figure with its message as the title; returns the area below it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.1, wspace=0.06, hspace=0.08)  # type: ignore[union-attr,call-arg]
    figure.suptitle(format_tex(message), x=0.008, ha="left", fontsize=12.5, color="black")
    return figure.add_subfigure(figure.add_gridspec()[0])


def save_figure(body: SubFigure, path: Path) -> Path:
    """Save a PNG without date or program name, so that equal figures are equal files."""
    body.figure.savefig(path, format="png", facecolor="white", metadata={"Software": None})
    return path


def format_tex(text: str) -> str:
    """Typeset λ_min and similar symbols as formulas."""
    for plain, formula in (
        ("λ_min", r"$\lambda_\mathrm{min}$"),
        ("V_on", r"$V_\mathrm{on}$"),
        ("V_off", r"$V_\mathrm{off}$"),
        ("V^inf", r"$V^\infty$"),
        ("Λ(t)", r"$\Lambda(t)$"),
        ("μ/2α²", r"$\mu/2\alpha^2$"),
        ("(V)", "($V$)"),
        ("V(0)", "$V(0)$"),
        ("kernel V", "kernel $V$"),
        (" -", " −"),
    ):
        text = text.replace(plain, formula)
    return re.sub(r"m\^\((-?[\d.]+)\)", r"$m^{\1}$", text)


def format_short(value: float) -> str:
    """Format a number with three digits."""
    return "∞" if value == math.inf else f"{value:#.3g}".rstrip(".")


def mask_nonpositive(values: Iterable[float]) -> list[float]:
    """For a logarithmic axis: values that have no logarithm become NaN."""
    return [v if 0 < v < math.inf else math.nan for v in values]


def set_log_axis(axes: Axes, values: Iterable[float], which: str = "y", decades: float = 17) -> None:
    """Fit a logarithmic axis to the values, at most ``decades`` below the largest, labelled in plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    wanted = mask_nonpositive(values)
    known = [v for v in wanted if not math.isnan(v)] or [1.0]
    if which == "y" and (hidden := sum(map(math.isnan, wanted))):
        axes.text(
            1,
            1.01,
            f"{hidden} not shown (≤ 0 or not finite)",
            transform=axes.transAxes,
            ha="right",
            va="bottom",
            size=8,
            color=MUTED_COLOUR,
        )
    high = max(known)
    low = max(min(known), high / 10**decades)
    span = max(math.log10(high / low), 0.02)
    axis: Any = getattr(axes, which + "axis")
    getattr(axes, f"set_{which}scale")("log", nonpositive="mask")
    getattr(axes, f"set_{which}lim")(low * 10 ** (-0.06 * span), high * 10 ** (0.06 * span))
    if span < 3.2:
        steps = (1, 2, 5) if span > 0.9 else (1, 1.5, 2, 3, 4, 5, 6, 8)
        axis.set_major_locator(LogLocator(subs=steps, numticks=30) if span > 0.3 else MaxNLocator(5))
        axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:.4g}"))
    axis.set_minor_locator(NullLocator())


def set_x_ticks(axes: Axes, values: Sequence[float], panels: int = 1) -> None:
    """Put ticks on the x axis at exactly these values, without overlapping labels; its limits must be set already.

    ``panels`` is how many such axes share the width of the page.
    """
    labels: list[str] = []
    free = math.inf
    for value in reversed(values):
        place = float(axes.transLimits.transform(axes.transScale.transform((value, axes.get_ylim()[1])))[0])
        label = f"{value:g}"
        fits = free - place > panels * (0.01 + 0.012 * len(label))
        labels.insert(0, label if fits else "")
        free = place if fits else free
    axes.set_xticks(list(values), labels)
    axes.set_xticks([], minor=True)


def set_integer_ticks(axes: Axes) -> None:
    """Put a few integer ticks on the x axis."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def label_curve_ends(axes: Axes, ends: Mapping[str, float], looks: Mapping[str, LineStyle], gap: float = 0.075) -> None:
    """Write each curve's name to the right of its end, moved apart where two would overlap."""
    places: list[tuple[float, str]] = []
    for name, value in ends.items():
        shown = value if value > 0 or axes.get_yscale() != "log" else axes.get_ylim()[0]
        if math.isfinite(shown):
            height = axes.transLimits.transform(axes.transScale.transform((axes.get_xlim()[1], shown)))[1]
            places.append((min(max(float(height), 0.0), 1.0), name))
    places.sort()
    heights = [height for height, _ in places]
    for k in range(1, len(heights)):
        heights[k] = max(heights[k], heights[k - 1] + gap)
    excess = max(0.0, heights[-1] - 1.0) if heights else 0.0
    for k in reversed(range(len(heights))):
        limit = heights[k] - excess if k == len(heights) - 1 else heights[k + 1] - gap
        heights[k] = min(heights[k], limit)
    for height, (_, name) in zip(heights, places, strict=True):
        axes.text(
            1.015, height, looks[name].label, color=looks[name].colour, transform=axes.transAxes, va="center", size=9.5
        )  # fmt: skip


def plot_curve(
    axes: Axes, x: Sequence[float], y: Sequence[float], look: LineStyle, marked: bool = True, **more: Any
) -> None:
    """Plot one model's curve in its own style."""
    style: dict[str, Any] = {"color": look.colour, "ls": look.line, "lw": look.weight, "label": look.label}
    if marked:
        style |= {"marker": look.marker, "ms": look.size, "mec": "white", "mew": 0.8}
    axes.plot(x, y, **(style | {"zorder": 2 + look.weight} | more))


def add_legend_above(body: SubFigure, dashed: str | None = None) -> None:
    """Add one legend for all panels, under the title; ``dashed`` is the label of the dashed lines."""
    from matplotlib.lines import Line2D

    known = {label: line for axes in body.axes for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    shown = {look.label: known[look.label] for look in MODEL_STYLES.values() if look.label in known}
    if dashed:
        shown[dashed] = Line2D([], [], color=MUTED_COLOUR, ls=DASHED, lw=1.3)
    body.legend(shown.values(), shown.keys(), loc="outside upper left", ncols=len(shown), columnspacing=2.4)
