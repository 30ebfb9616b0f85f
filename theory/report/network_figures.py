"""The figures of a run seen through its kernels: eigenvalues, labels and lazy training over rounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from theory.networks.network_study import ModelFindings, NetworkStudy
from theory.report.plot_style import (
    BRANCH_STYLES,
    DASHED,
    FULL_WIDTH,
    MUTED_COLOUR,
    LineStyle,
    create_canvas,
    format_tex,
    mask_nonpositive,
    save_figure,
    set_integer_ticks,
    set_log_axis,
    use_plot_style,
)
from theory.report.sharing_figure import draw_sharing_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHARING = "sharing"
OTHER_STYLES = (
    LineStyle("", "#0072B2", "o", "-", 6.0, 1.7),
    LineStyle("", "#D55E00", "s", "-", 5.6, 2.0),
    LineStyle("", "#009E73", "^", "-", 6.8, 1.6),
    LineStyle("", "#CC79A7", "D", "-", 5.0, 1.6),
)


@dataclass(frozen=True)
class Panel:
    """One number over rounds."""

    label: str
    get: Callable[[ModelFindings], float | None]
    logarithmic: bool = True
    guide: float | None = None
    """A dashed line, against which the number is read."""


PANELS: dict[str, tuple[str, tuple[Panel, ...]]] = {
    "eigenvalues": (
        "Eigenvalues of the kernels over rounds",
        (
            Panel("λ_min", lambda m: None if m.spectrum.condition is None else m.spectrum.lambda_min),
            Panel("largest eigenvalue", lambda m: m.spectrum.lambda_max),
            Panel("condition number", lambda m: m.spectrum.condition),
        ),
    ),
    "labels": (
        "How many directions count, and whether labels lie in them",
        (
            Panel("effective rank", lambda m: m.spectrum.effective_rank, False),
            Panel("alignment with the labels", lambda m: m.spectrum.alignment, False),
        ),
    ),
    "lazy": (
        "How far training is from lazy",
        (
            Panel("change of the kernel", lambda m: m.drift or None),
            Panel("error, a tiny step", lambda m: m.tiny_round.error if m.tiny_round else None, guide=0.01),
            Panel("error, the run's own steps", lambda m: m.own_round.error if m.own_round else None, guide=1),
            Panel("error, the real next round", lambda m: m.real_round.error if m.real_round else None, guide=1),
        ),
    ),
}
"""Name of a figure -> its title and its panels; one without a number is left out."""


def draw_network_figures(study: NetworkStudy, folder: Path) -> dict[str, Path]:
    """Draw all of them; the paths by name."""
    folder.mkdir(parents=True, exist_ok=True)
    with use_plot_style():
        found = {name: _draw(study, name, folder / f"{name}.png") for name in PANELS}
        sharing = draw_sharing_figure(study, folder / f"{SHARING}.png")
    return found if sharing is None else found | {SHARING: sharing}


def _draw(study: NetworkStudy, name: str, path: Path) -> Path:
    title, panels = PANELS[name]
    models = [model for one in study.checkpoints for model in one.models.values()]
    panels = tuple(panel for panel in panels if any(panel.get(model) is not None for model in models)) or panels[:1]
    body = create_canvas(title, FULL_WIDTH, 4.0)
    body.subplots(1, len(panels), squeeze=False)
    for axes, panel in zip(body.axes, panels, strict=True):
        _draw_panel(study, axes, panel)
    lines = {label: line for axes in body.axes for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    body.legend(lines.values(), lines.keys(), loc="outside upper left", ncols=max(1, len(lines)))
    return save_figure(body, path)


def _draw_panel(study: NetworkStudy, axes: Axes, panel: Panel) -> None:
    rounds = [one.round for one in study.checkpoints]
    shown: list[float] = []
    for number, model in enumerate(study.checkpoints[0].models):
        values = [panel.get(one.models[model]) for one in study.checkpoints]
        y = [math.nan if value is None else value for value in values]
        if all(map(math.isnan, y)):
            continue
        look = BRANCH_STYLES.get(model, OTHER_STYLES[number % len(OTHER_STYLES)])
        y = mask_nonpositive(y) if panel.logarithmic else y
        shown += y
        axes.plot(
            rounds, y, color=look.colour, ls=look.line, marker=look.marker, ms=look.size, lw=look.weight, label=model
        )
    if panel.guide is not None:
        axes.axhline(panel.guide, color=MUTED_COLOUR, ls=DASHED, lw=1.2)
        shown.append(panel.guide)
    if panel.logarithmic:
        _fit_log_axis(axes, shown)
    axes.set_xlabel("round")
    axes.set_ylabel(format_tex(panel.label))
    set_integer_ticks(axes)


def _fit_log_axis(axes: Axes, values: Sequence[float]) -> None:
    known = [value for value in values if not math.isnan(value)]
    if known:
        set_log_axis(axes, known)
