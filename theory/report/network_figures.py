"""The figures of a run seen through its kernels: eigenvalues, labels and lazy training over rounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from theory.networks.network_study import ModelFindings, NetworkStudy
from theory.report.plot_style import (
    BRANCH_STYLES,
    FULL_WIDTH,
    LineStyle,
    create_canvas,
    format_tex,
    mask_nonpositive,
    save_figure,
    set_integer_ticks,
    set_log_axis,
    use_plot_style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OTHER_STYLES = (
    LineStyle("", "#0072B2", "o", "-", 6.0, 1.7),
    LineStyle("", "#D55E00", "s", "-", 5.6, 2.0),
    LineStyle("", "#009E73", "^", "-", 6.8, 1.6),
    LineStyle("", "#CC79A7", "D", "-", 5.0, 1.6),
)
PANELS: dict[str, tuple[str, tuple[tuple[str, Callable[[ModelFindings], float | None], bool], ...]]] = {
    "eigenvalues": (
        "Eigenvalues of the kernels over rounds",
        (
            ("λ_min", lambda m: None if m.spectrum.condition is None else m.spectrum.lambda_min, True),
            ("largest eigenvalue", lambda m: m.spectrum.lambda_max, True),
            ("condition number", lambda m: m.spectrum.condition, True),
        ),
    ),
    "labels": (
        "How many directions count, and whether labels lie in them",
        (
            ("effective rank", lambda m: m.spectrum.effective_rank, False),
            ("alignment with the labels", lambda m: m.spectrum.alignment, False),
        ),
    ),
    "lazy": (
        "How far training is from lazy",
        (
            ("change of the kernel since the first checkpoint", lambda m: m.drift, False),
            ("error of the kernel on a round", lambda m: m.own_round.error if m.own_round else None, False),
        ),
    ),
}
"""Name of a figure -> its title and its panels: label, what is shown, whether on a logarithmic axis."""


def draw_network_figures(study: NetworkStudy, folder: Path) -> dict[str, Path]:
    """Draw all of them; the paths by name."""
    folder.mkdir(parents=True, exist_ok=True)
    with use_plot_style():
        return {name: _draw(study, name, folder / f"{name}.png") for name in PANELS}


def _draw(study: NetworkStudy, name: str, path: Path) -> Path:
    title, panels = PANELS[name]
    body = create_canvas(title, FULL_WIDTH, 4.0)
    body.subplots(1, len(panels), squeeze=False)
    for axes, (label, get, logarithmic) in zip(body.axes, panels, strict=True):
        _draw_panel(study, axes, label, get, logarithmic)
    handles, labels = body.axes[0].get_legend_handles_labels()
    body.legend(handles, labels, loc="outside upper left", ncols=len(labels))
    return save_figure(body, path)


def _draw_panel(
    study: NetworkStudy, axes: Axes, label: str, get: Callable[[ModelFindings], float | None], logarithmic: bool
) -> None:
    rounds = [one.round for one in study.checkpoints]
    shown: list[float] = []
    for number, model in enumerate(study.checkpoints[0].models):
        values = [get(one.models[model]) for one in study.checkpoints]
        y = [math.nan if value is None else value for value in values]
        if all(map(math.isnan, y)):
            continue
        look = BRANCH_STYLES.get(model, OTHER_STYLES[number % len(OTHER_STYLES)])
        y = mask_nonpositive(y) if logarithmic else y
        shown += y
        axes.plot(
            rounds, y, color=look.colour, ls=look.line, marker=look.marker, ms=look.size, lw=look.weight, label=model
        )
    if logarithmic:
        _fit_log_axis(axes, shown)
    axes.set_xlabel("round")
    axes.set_ylabel(format_tex(label))
    set_integer_ticks(axes)


def _fit_log_axis(axes: Axes, values: Sequence[float]) -> None:
    known = [value for value in values if not math.isnan(value)]
    if known:
        set_log_axis(axes, known)
