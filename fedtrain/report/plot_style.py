"""How the rows of a report look in its figures: a colour, a marker and a line, and a name at the end of a curve."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle
from textwrap import fill
from typing import TYPE_CHECKING
from zlib import crc32

from fedtrain.report.rows import TableRow
from theory.report.plot_style import DASHED, FULL_WIDTH, MODEL_STYLES, LineStyle, create_canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

NARROW_WIDTH = 4.7
"""Inches: a figure for a phone."""
DOTTED = (0, (1.2, 1.4))
MIN_COLUMN_DISTANCE = 0.25
"""Of the width: names nearer than this would meet."""
METHOD_STYLES = {
    "singleset": MODEL_STYLES["V_off"],
    "fedavg": LineStyle("", "#56B4E9", "D", "-", 5.0, 1.7),
    "fedprox": LineStyle("", "#E69F00", "v", DASHED, 6.4, 1.6),
    "fedper": LineStyle("", "#CC79A7", "P", "-", 6.4, 1.7),
    "moon": LineStyle("", "#7a7a7a", "X", DASHED, 6.2, 1.6),
    "fedrod": LineStyle("", "#882255", "<", "-", 6.2, 1.7),
    "copa": LineStyle("", "#332288", ">", DASHED, 6.2, 1.6),
    "finetune": LineStyle("", "#88CCEE", "D", DASHED, 5.0, 1.6),
    "scaffold": LineStyle("", "#117733", "v", "-", 6.4, 1.6),
    "fedrep": LineStyle("", "#AA4499", "P", DASHED, 6.4, 1.6),
    "lgfedavg": LineStyle("", "#DDCC77", "p", "-", 6.4, 1.6),
    "ditto": LineStyle("", "#44AA99", "<", DASHED, 6.2, 1.6),
    "pfedme": LineStyle("", "#CC6677", ">", "-", 6.2, 1.6),
    "apfl": LineStyle("", "#6699CC", "H", "-", 6.4, 1.6),
    "fml": LineStyle("", "#997700", "X", "-", 6.2, 1.6),
    "knnper": LineStyle("", "#EE99AA", "d", DASHED, 6.0, 1.6),
    "fedproto": LineStyle("", "#994455", "8", DASHED, 6.0, 1.6),
    "fedbn": MODEL_STYLES["V_on"],
    "fedco2": MODEL_STYLES["V"],
}
"""Colours of Okabe and Ito, and of Tol; those of the theory's figures mean the same here."""

SPARE_STYLES = (
    LineStyle("", "#000000", "h", DOTTED, 6.2, 1.7),
    LineStyle("", "#999933", "*", "-", 7.5, 1.7),
    LineStyle("", "#661100", "d", DOTTED, 6.0, 1.7),
)
OTHER_STYLES = (
    LineStyle("", "#AA4499", "p", DOTTED, 6.4, 1.8),
    LineStyle("", "#117733", "H", DOTTED, 6.4, 1.8),
    LineStyle("", "#4477AA", "8", DOTTED, 6.2, 1.8),
    LineStyle("", "#B8860B", "d", DOTTED, 6.4, 1.8),
    LineStyle("", "#A50026", "*", DOTTED, 7.5, 1.8),
    LineStyle("", "#5F4690", "X", DOTTED, 6.4, 1.8),
    LineStyle("", "#38666B", "P", DOTTED, 6.4, 1.8),
)
"""Of methods outside fedco2."""


@dataclass(frozen=True)
class CurveEnd:
    """Where a curve ends, and what is written there."""

    x: float
    y: float
    text: str
    colour: str


def assign_styles(rows: Sequence[TableRow]) -> list[LineStyle]:
    """Each method has its own; a second row of the same method takes one that no other row wants."""
    wanted = [str(row.first.settings["method"]["name"]) for row in rows]
    styles = METHOD_STYLES | assign_other_styles(name for name in wanted if name not in METHOD_STYLES)
    spare = cycle([*SPARE_STYLES, *(look for name, look in METHOD_STYLES.items() if name not in wanted)])
    return [styles[name] if name not in wanted[:i] else next(spare) for i, name in enumerate(wanted)]


def assign_other_styles(names: Iterable[str]) -> dict[str, LineStyle]:
    """Of methods outside fedco2: by its name, so that it looks the same in every report, unless two meet there."""
    chosen: dict[str, LineStyle] = {}
    for name in sorted(set(names)):
        first = crc32(name.encode()) % len(OTHER_STYLES)
        order = [*OTHER_STYLES[first:], *OTHER_STYLES[:first]]
        chosen[name] = next((look for look in order if look not in chosen.values()), order[0])
    return chosen


def create_figure(title: str, narrow: bool, height: float) -> SubFigure:
    """What lies under the title, for a page or a phone."""
    width = NARROW_WIDTH if narrow else FULL_WIDTH
    return create_canvas(escape_mathtext(fill(title, 42 if narrow else 96)), width, height)


def escape_mathtext(text: str) -> str:
    """Names are not formulas."""
    return text.replace("$", r"\$")


def plot_curve(axes: Axes, look: LineStyle, x: Sequence[float], y: Sequence[float], label: str = "") -> None:
    """A curve, with as many markers as can be told apart."""
    every = 1 if len(x) <= 12 else -(-len(x) // 8)
    axes.plot(
        x, y, color=look.colour, linestyle=look.line, linewidth=look.weight, marker=look.marker, markevery=every,
        markersize=0.8 * look.size, markeredgecolor="white", markeredgewidth=0.6, zorder=2 + look.weight / 10,
        label=escape_mathtext(label),
    )  # fmt: skip


def label_curve_ends(axes: Axes, ends: Sequence[CurveEnd], inches: float) -> None:
    """Names at the right ends of curves, moved apart where they would overlap; ``inches`` is the height of the axes."""
    from matplotlib.patheffects import withStroke

    low, high = axes.get_ylim()
    gap = 0.19 / inches * (high - low)
    for column in group_ends_by_column(axes, ends):
        right = max(end.x for end in column)
        for end, height in zip(column, space_heights([end.y for end in column], gap), strict=True):
            text = axes.annotate(
                escape_mathtext(end.text), (right, height), (8, 0), textcoords="offset points", color=end.colour,
                va="center", fontsize=9.5, annotation_clip=False, zorder=5,
            )  # fmt: skip
            text.set_path_effects([withStroke(linewidth=3, foreground="white")])


def group_ends_by_column(axes: Axes, ends: Sequence[CurveEnd]) -> list[list[CurveEnd]]:
    """Ends that lie above one another, the lowest first."""

    def place(end: CurveEnd) -> float:
        at = axes.transData.transform((end.x, end.y))
        return float(axes.transAxes.inverted().transform(at)[0])

    found: list[list[CurveEnd]] = []
    for end in sorted(ends, key=lambda end: end.x):
        if found and place(end) - place(found[-1][0]) < MIN_COLUMN_DISTANCE:
            found[-1].append(end)
        else:
            found.append([end])
    return [sorted(column, key=lambda end: end.y) for column in found]


def space_heights(heights: Sequence[float], gap: float) -> list[float]:
    """Ascending heights, so moved that neighbours keep the gap and each block of them stays where it was on average."""
    blocks: list[tuple[float, int]] = []
    for height in heights:
        blocks.append((height, 1))
        while len(blocks) > 1 and blocks[-1][0] - blocks[-2][0] < gap * (blocks[-1][1] + blocks[-2][1]) / 2:
            (y, n), (x, m) = blocks.pop(), blocks.pop()
            blocks.append(((x * m + y * n) / (m + n), m + n))
    return [y + gap * (k - (n - 1) / 2) for y, n in blocks for k in range(n)]
