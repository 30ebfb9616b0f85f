"""The figure of how much to share in a run: λ_min over the share w, and the best w over rounds by three criteria."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from theory.networks.network_study import CheckpointFindings, NetworkStudy
from theory.report.plot_style import (
    DASHED,
    FULL_WIDTH,
    MUTED_COLOUR,
    TEXT_COLOUR,
    create_canvas,
    format_tex,
    save_figure,
    set_integer_ticks,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "How much should the online model count?"
CRITERIA = {"left_out": ("samples left out", "#0072B2", "o"), "held_out": ("held-out data", "#D55E00", "s")}
PAPER_W = 0.5


def draw_sharing_figure(study: NetworkStudy, path: Path) -> Path | None:
    """Draw it; None where nothing is shared."""
    shown = [one for one in study.checkpoints if one.sharing is not None]
    if not shown:
        return None
    body = create_canvas(TITLE, FULL_WIDTH, 4.4)
    left, right = body.subplots(1, 2)
    _plot_eigenvalues(left, shown)
    _plot_best(right, shown)
    return save_figure(body, path)


def _plot_eigenvalues(axes: Axes, shown: list[CheckpointFindings]) -> None:
    for k, one in enumerate(shown):
        assert one.sharing is not None
        curve, shade = one.sharing.curve, str(0.75 - 0.75 * k / max(1, len(shown) - 1))
        level = curve.lambda_min[0]
        if level <= one.sharing.rounding:
            continue
        ends = k in (0, len(shown) - 1)
        label = f"round {one.round}" if ends else None
        axes.plot(curve.w, [value / level for value in curve.lambda_min], color=shade, lw=1.6, label=label)
        divided = f"round {one.round}, shared part / N" if ends else None
        in_rounds = [value / level for value in curve.federated_lambda_min]
        axes.plot(curve.w, in_rounds, color=shade, lw=1.2, ls=DASHED, label=divided)
    axes.set_xlabel("share w of the online model")
    axes.set_ylabel(format_tex("λ_min(w) / λ_min at w = 0"))
    axes.set_ylim(bottom=0)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=8.5)


def _plot_best(axes: Axes, shown: list[CheckpointFindings]) -> None:
    """Faint marks are clients, lines their mean."""
    for name, (label, colour, marker) in CRITERIA.items():
        every = [(one.round, getattr(one.sharing, name) or {}) for one in shown]
        known = [(round, [value for value in best.values() if value is not None]) for round, best in every]
        found = [(round, values) for round, values in known if values]
        for round, values in found:
            axes.plot(
                [round] * len(values), values, color=colour, ls="", marker=marker, ms=4.5, alpha=0.4, clip_on=False
            )
        if found:
            means = [sum(values) / len(values) for _, values in found]
            axes.plot([round for round, _ in found], means, color=colour, lw=1.8, label=label)
    by_eigenvalue = [
        (one.round, best) for one in shown if one.sharing and (best := one.sharing.by_lambda_min) is not None
    ]
    if by_eigenvalue:
        x, y = zip(*by_eigenvalue, strict=True)
        axes.plot(x, y, color=TEXT_COLOUR, lw=1.6, marker="^", ms=5, label=format_tex("λ_min"), clip_on=False)
    axes.axhline(PAPER_W, color=MUTED_COLOUR, ls=DASHED, lw=1.2, label="the paper's 1/2")
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel("round")
    axes.set_ylabel("best share w of the online model")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=8.5)
    set_integer_ticks(axes)
