"""The figures of a report. Each title is the message, computed from the numbers that the figure shows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from theory.report import words
from theory.report.style import (
    DASHED,
    FAINT,
    HALF,
    MODELS,
    WIDE,
    above_zero,
    canvas,
    drawing,
    legend_above,
    log_axis,
    name_ends,
    only_ticks,
    plot,
    save,
    short,
    tex,
    whole_ticks,
)
from theory.report.sweep_figure import draw_sweep
from theory.report.training_figures import residuals, tracking

if TYPE_CHECKING:
    from matplotlib.figure import SubFigure

Report = dict[str, Any]
LAST = 12
"""How many of the least eigenvalues the spectra show enlarged, where there are many more."""


def draw_figures(report: Report, folder: Path) -> dict[str, Path]:
    """Draw every figure whose numbers the report has; each one's name and file."""
    folder.mkdir(parents=True, exist_ok=True)
    with drawing():
        return {
            name: save(PAINTERS[name](report, message), folder / f"{name}.png")
            for name, message in words.messages(report).items()
        }


def spectra(report: Report, message: str) -> SubFigure:
    """All eigenvalues of the three kernels, and the least of them enlarged and named."""
    values: dict[str, list[float]] = report["curves"]["spectra"]
    body, size = canvas(message, WIDE, 4.3), len(values["V"])
    many = size > 2 * LAST
    panels = body.subplots(1, 2, width_ratios=(1.25, 1)) if many else [body.subplots()]
    for panel, first in zip(panels, (0, size - LAST), strict=False):
        for name, look in MODELS.items():
            shown = above_zero(values[name][first:])
            plot(panel, range(first + 1, size + 1), shown, look, marked=not many or panel is panels[1])
        log_axis(panel, [v for each in values.values() for v in each[first:]], decades=18)
        whole_ticks(panel)
        panel.set_xlabel("rank of the eigenvalue, 1 = the greatest")
    panels[0].set_ylabel("eigenvalue")
    panels[0].legend(loc="lower left")
    if many:
        panels[0].set_title("all eigenvalues")
        panels[1].set_title(f"the {LAST} least")
    looks = {k: replace(look, label=tex(f"λ_min({k}) = {short(values[k][-1])}")) for k, look in MODELS.items()}
    name_ends(panels[-1], {name: values[name][-1] for name in MODELS}, looks)
    return body


def draws(report: Report, message: str) -> SubFigure:
    """The three λ_min of each draw on one stalk."""
    rows = sorted(report["curves"]["draws"], key=lambda row: float(row["V_on"]))
    body = canvas(message, WIDE, 4.1)
    axes, x = body.subplots(), range(len(rows))
    ends = [above_zero(end(row[name] for name in MODELS) for row in rows) for end in (min, max)]
    axes.vlines(x, ends[0], ends[1], color="#cccccc", lw=2.2)
    for name, look in MODELS.items():
        plot(axes, x, above_zero(row[name] for row in rows), look, ls="", ms=1.25 * look.size)
    log_axis(axes, [row[name] for row in rows for name in MODELS])
    axes.set_xticks(list(x), [str(row["seed"]) for row in rows], rotation=90 if len(rows) > 30 else 0)
    axes.grid(axis="x", visible=False)
    axes.set_xlim(-0.7, len(rows) - 0.3)
    axes.set_xlabel("draw, named by its seed and sorted by FedBN's value")
    axes.set_ylabel(tex("λ_min of the kernel V"))
    legend_above(body)
    return body


def width(report: Report, message: str) -> SubFigure:
    """The distance from the limit against the width, with the fitted slope and the claimed one."""
    found = report["curves"]["widths"]
    widths, errors = [int(m) for m in found["relative_error"]], above_zero(found["relative_error"].values())
    known = [(m, e) for m, e in zip(widths, errors, strict=True) if not math.isnan(e)] or [(widths[0], 1.0)]
    middle, height = (math.exp(statistics.fmean(map(math.log, column))) for column in zip(*known, strict=True))
    guide = [0.72 * height * (m / middle) ** -0.5 for m in widths]
    body, colour = canvas(message, HALF, 4.2), MODELS["V_on"].colour
    axes = body.subplots()
    axes.plot(
        widths, errors, color=colour, ls="", marker="o", ms=7, mec="white", zorder=3, label="measured (mean of draws)"
    )
    fit: list[float] = []
    if found["slope"] is not None:  # both kernels zero: what is measured is rounding, which has no slope
        fit = [height * (m / middle) ** found["slope"] for m in widths]
        label = f"fitted slope {found['slope']:.3f} ± {found['slope_error']:.3f}"
        axes.plot(widths, fit, color=colour, lw=1.3, label=tex(label))
    axes.plot(widths, guide, color=FAINT, ls=DASHED, lw=1.3, label=tex("claimed slope -1/2"))
    log_axis(axes, [*errors, *guide, *fit])
    log_axis(axes, widths, "x")
    only_ticks(axes, widths, panels=2)
    axes.set_xlabel("hidden width m")
    axes.set_ylabel(tex("relative error |V(0) - V^inf| / |V^inf|"))
    axes.legend(loc="lower left")
    return body


def clients(report: Report, message: str) -> SubFigure:
    """The three λ_min as clients are added."""
    rows = report["curves"]["clients"]
    body, counts = canvas(message, HALF, 4.2), [row["clients"] for row in rows]
    axes = body.subplots()
    for name, look in MODELS.items():
        plot(axes, counts, above_zero(row[name] for row in rows), look, ms=1.15 * look.size)
    log_axis(axes, counts, "x")
    log_axis(axes, [row[name] for row in rows for name in MODELS])
    only_ticks(axes, counts, panels=2)
    axes.set_xlabel("number of clients N")
    axes.set_ylabel(tex("λ_min of the kernel V"))
    axes.legend(loc="lower left")
    return body


PAINTERS: dict[str, Callable[[Report, str], SubFigure]] = {
    "spectra": spectra, "draws": draws, "residuals": residuals,
    "width": width, "clients": clients, "tracking": tracking,
}  # fmt: skip

__all__ = ["draw_figures", "draw_sweep"]
