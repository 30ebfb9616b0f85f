"""The figures of a report. Each title states the message, computed from the numbers in the figure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from theory.report import figure_messages
from theory.report.mixture_figure import plot_mixture
from theory.report.plot_style import (
    DASHED,
    FULL_WIDTH,
    HALF_WIDTH,
    MODEL_STYLES,
    MUTED_COLOUR,
    add_legend_above,
    create_canvas,
    format_short,
    format_tex,
    label_curve_ends,
    mask_nonpositive,
    plot_curve,
    save_figure,
    set_integer_ticks,
    set_log_axis,
    set_x_ticks,
    use_plot_style,
)
from theory.report.training_figures import plot_residuals, plot_tracking
from theory.results import VerificationResults

if TYPE_CHECKING:
    from matplotlib.figure import SubFigure

ENLARGED_COUNT = 12
"""How many of the least eigenvalues the spectra show enlarged, where there are many more."""


def plot_figures(results: VerificationResults) -> dict[str, SubFigure]:
    """Plot every figure whose numbers there are."""
    with use_plot_style():
        messages = figure_messages.build_messages(results.curves, results.mixture)
        return {name: FIGURE_PLOTTERS[name](results, message) for name, message in messages.items()}


def draw_figures(results: VerificationResults, folder: Path) -> dict[str, Path]:
    """Plot every figure and save it; returns each figure's name and file."""
    folder.mkdir(parents=True, exist_ok=True)
    with use_plot_style():
        return {name: save_figure(body, folder / f"{name}.png") for name, body in plot_figures(results).items()}


def plot_spectra(results: VerificationResults, message: str) -> SubFigure:
    """Plot all eigenvalues of the three kernels, and the least of them enlarged and labelled."""
    values = results.curves.spectra
    body, size = create_canvas(message, FULL_WIDTH, 4.3), len(values["V"])
    many = size > 2 * ENLARGED_COUNT
    panels = body.subplots(1, 2, width_ratios=(1.25, 1)) if many else [body.subplots()]
    for panel, first in zip(panels, (0, size - ENLARGED_COUNT), strict=False):
        for name, look in MODEL_STYLES.items():
            shown = mask_nonpositive(values[name][first:])
            plot_curve(panel, range(first + 1, size + 1), shown, look, marked=not many or panel is panels[1])
        set_log_axis(panel, [v for each in values.values() for v in each[first:]], decades=18)
        set_integer_ticks(panel)
        panel.set_xlabel("rank of the eigenvalue, 1 = the greatest")
    panels[0].set_ylabel("eigenvalue")
    panels[0].legend(loc="lower left")
    if many:
        panels[0].set_title("all eigenvalues")
        panels[1].set_title(f"the {ENLARGED_COUNT} least")
    looks = {
        k: replace(look, label=format_tex(f"λ_min({k}) = {format_short(values[k][-1])}"))
        for k, look in MODEL_STYLES.items()
    }
    label_curve_ends(panels[-1], {name: values[name][-1] for name in MODEL_STYLES}, looks)
    return body


def plot_draws(results: VerificationResults, message: str) -> SubFigure:
    """Plot the three λ_min of each draw on one vertical line."""
    rows = sorted(results.curves.draws, key=lambda row: row.V_on)
    body = create_canvas(message, FULL_WIDTH, 4.1)
    axes, x = body.subplots(), range(len(rows))
    seed, draws = results.setting.seed, results.setting.draws
    checked = f"seed {seed} only" if draws == 1 else f"seeds {seed} to {seed + draws - 1}"
    ends = [mask_nonpositive(end(getattr(row, name) for name in MODEL_STYLES) for row in rows) for end in (min, max)]
    axes.vlines(x, ends[0], ends[1], color="#cccccc", lw=2.2)
    for name, look in MODEL_STYLES.items():
        plot_curve(axes, x, mask_nonpositive(getattr(row, name) for row in rows), look, ls="", ms=1.25 * look.size)
    set_log_axis(axes, [getattr(row, name) for row in rows for name in MODEL_STYLES])
    axes.set_xticks(list(x), [str(row.seed) for row in rows], rotation=90 if len(rows) > 30 else 0)
    axes.grid(axis="x", visible=False)
    axes.set_xlim(-0.7, len(rows) - 0.3)
    axes.set_xlabel(f"draw, named by its seed and sorted by FedBN's value; claims were checked on {checked}")
    axes.set_ylabel(format_tex("λ_min of the kernel V"))
    add_legend_above(body)
    return body


def plot_width(results: VerificationResults, message: str) -> SubFigure:
    """Plot the distance from the limit against the width, with the fitted slope and the claimed one."""
    found = results.curves.widths
    assert found is not None
    widths, errors = [int(m) for m in found["relative_error"]], mask_nonpositive(found["relative_error"].values())
    known = [(m, e) for m, e in zip(widths, errors, strict=True) if not math.isnan(e)] or [(widths[0], 1.0)]
    middle, height = (math.exp(statistics.fmean(map(math.log, column))) for column in zip(*known, strict=True))
    guide = [0.72 * height * (m / middle) ** -0.5 for m in widths]
    body, colour = create_canvas(message, HALF_WIDTH, 4.2), MODEL_STYLES["V_on"].colour
    axes = body.subplots()
    axes.plot(
        widths, errors, color=colour, ls="", marker="o", ms=7, mec="white", zorder=3, label="measured (mean of draws)"
    )
    fit: list[float] = []
    if found["slope"] is not None:  # None where both kernels are zero: what is left is rounding
        fit = [height * (m / middle) ** found["slope"] for m in widths]
        label = f"fitted slope {found['slope']:.3f} ± {found['slope_error']:.3f}"
        axes.plot(widths, fit, color=colour, lw=1.3, label=format_tex(label))
    axes.plot(widths, guide, color=MUTED_COLOUR, ls=DASHED, lw=1.3, label=format_tex("claimed slope -1/2"))
    set_log_axis(axes, [*errors, *guide, *fit])
    set_log_axis(axes, widths, "x")
    set_x_ticks(axes, widths, panels=2)
    axes.set_xlabel("hidden width m")
    axes.set_ylabel(format_tex("relative error |V(0) - V^inf| / |V^inf|"))
    axes.legend(loc="lower left")
    return body


def plot_clients(results: VerificationResults, message: str) -> SubFigure:
    """Plot the three λ_min as clients are added."""
    rows = results.curves.clients
    body, counts = create_canvas(message, HALF_WIDTH, 4.2), [row.clients for row in rows]
    axes = body.subplots()
    for name, look in MODEL_STYLES.items():
        plot_curve(axes, counts, mask_nonpositive(getattr(row, name) for row in rows), look, ms=1.15 * look.size)
    set_log_axis(axes, counts, "x")
    set_log_axis(axes, [getattr(row, name) for row in rows for name in MODEL_STYLES])
    set_x_ticks(axes, counts, panels=2)
    axes.set_xlabel("number of clients N")
    axes.set_ylabel(format_tex("λ_min of the kernel V"))
    axes.legend(loc="lower left")
    return body


FIGURE_PLOTTERS: dict[str, Callable[[VerificationResults, str], SubFigure]] = {
    "spectra": plot_spectra, "draws": plot_draws, "residuals": plot_residuals,
    "width": plot_width, "clients": plot_clients, "tracking": plot_tracking,
    "mixture": plot_mixture,
}  # fmt: skip
