"""The figures of real descent: residuals in every reading, and the least eigenvalue during training."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from theory.report import figure_messages
from theory.report.plot_style import (
    BRANCH_STYLES,
    DASHED,
    FULL_WIDTH,
    MUTED_COLOUR,
    add_legend_above,
    create_canvas,
    format_tex,
    mask_nonpositive,
    plot_curve,
    set_integer_ticks,
    set_log_axis,
)
from theory.results import VerificationResults

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure


def plot_residuals(results: VerificationResults, message: str) -> SubFigure:
    """Plot |F(t) - y| of FedBN and Fed-CO2, one panel for each reading of the theorem."""
    curves, bounds = results.curves.residuals, results.curves.bounds
    gains = figure_messages.collect_gains(results.curves)
    lines, columns = (len(gains) + 1) // 2, min(2, max(1, len(gains)))
    body = create_canvas(message, FULL_WIDTH, 1.4 + 2.75 * lines)
    body.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    for panel, (reading, gain) in zip(body.axes, gains.items(), strict=False):
        title, fedbn, fedco2 = figure_messages.READINGS[reading]
        shown = {"online": curves[fedbn], "fused": curves[fedco2]}
        if reading == "separate":
            shown["offline"] = curves.get("separate: offline", [])
            _plot_bounds(panel, bounds)
        for branch, values in shown.items():
            every = (len(values) // 12, max(1, len(values) // 6))
            plot_curve(panel, range(len(values)), mask_nonpositive(values), BRANCH_STYLES[branch], markevery=every)
        panel.set_title(title + "\n")
        panel.text(0, 1.025, figure_messages.format_gain(gain), transform=panel.transAxes, color=MUTED_COLOUR, size=9.5)
    _finish_axes(
        body, [curves[name] for reading in gains for name in figure_messages.READINGS[reading][1:]], len(gains), columns
    )
    add_legend_above(body, "bound of C2 for the same model" if bounds else None)
    return body


def _plot_bounds(panel: Axes, bounds: dict[str, list[float]]) -> None:
    for branch, values in bounds.items():
        panel.plot(range(len(values)), mask_nonpositive(values), color=BRANCH_STYLES[branch].colour, ls=DASHED, lw=1.2)


def _finish_axes(body: SubFigure, curves: list[list[float]], panels: int, columns: int) -> None:
    """Set axes and labels; a residual that explodes leaves the frame rather than flattening the others."""
    start = max((values[0] for values in curves if math.isfinite(values[0])), default=1.0)
    set_log_axis(body.axes[0], [min(v, 1e3 * start) for values in curves for v in values])
    set_integer_ticks(body.axes[0])
    for k, panel in enumerate(body.axes):
        panel.set_visible(k < panels)
        if k % columns == 0:
            panel.set_ylabel("residual |F(t) − y|")
        if k >= panels - columns:
            panel.set_xlabel("step t of full-batch descent")
            panel.tick_params(labelbottom=True)


def plot_tracking(results: VerificationResults, message: str) -> SubFigure:
    """Plot λ_min(Λ(t)) of the three models at each width, with its bound."""
    found, alpha = results.curves.tracks, results.setting.alpha
    assert found is not None
    tracks = found["lambda_min"]
    body = create_canvas(message, FULL_WIDTH, 4.2)
    body.subplots(1, len(tracks), sharey=True, squeeze=False)
    for panel, (width, track) in zip(body.axes, tracks.items(), strict=True):
        for branch, look in BRANCH_STYLES.items():
            plot_curve(panel, track["t"], [v if math.isfinite(v) else math.nan for v in track[branch]], look)
            panel.axhline(found["mu"][branch] / (2 * alpha**2), color=look.colour, ls=DASHED, lw=1.3)
        panel.set_title(f"hidden width m = {width}")
        panel.set_xlabel("step t")
        set_integer_ticks(panel)
    first = body.axes[0]
    first.set_ylabel(format_tex("λ_min of the kernel Λ(t)"))
    low, high = first.get_ylim()
    first.set_ylim(min(0.0, low), max(1.03 * high, 1e-12))
    add_legend_above(body, format_tex("its bound μ/2α²"))
    return body
