"""The figure of mixtures: how much sharing λ_min wants, and how much samples that are left out want."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from theory.leave_one_out import SharingChoice
from theory.report.plot_style import DASHED, FULL_WIDTH, MODEL_STYLES, MUTED_COLOUR, create_canvas, format_tex
from theory.results import MixtureResults, VerificationResults

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

MAX_NAMED_CLIENTS = 6
"""With more clients than these, their curves have no names."""


def plot_mixture(results: VerificationResults, message: str) -> SubFigure:
    """Plot what a verification found about mixtures."""
    assert results.mixture is not None
    return plot_criteria(results.mixture, message)


def plot_criteria(mixture: MixtureResults, message: str) -> SubFigure:
    """Plot λ_min over w, and beside it the error on samples left out, with the best w of each curve."""
    body, shown = create_canvas(message, FULL_WIDTH, 4.1), list(_select_curves(mixture))
    panels = body.subplots(1, 2 if shown else 1, squeeze=False)[0]
    _plot_eigenvalues(panels[0], mixture)
    if shown:
        _plot_errors(panels[1], shown)
    for panel in panels:
        panel.set_xlim(-0.02, 1.02)
        panel.set_xlabel("share w of the online network")
    return body


def _plot_eigenvalues(panel: Axes, mixture: MixtureResults) -> None:
    curve = mixture.curve
    panel.plot(curve.w, curve.lambda_min, color=MUTED_COLOUR, lw=1.6, label=format_tex("V_on as it is"))
    panel.plot(
        curve.w,
        curve.federated_lambda_min,
        color=MUTED_COLOUR,
        ls=DASHED,
        lw=1.3,
        label=format_tex("V_on divided by N"),
    )
    for w, name in ((0.0, "V_off"), (0.5, "V"), (1.0, "V_on")):
        if w in curve.w:
            look = MODEL_STYLES[name]
            value = curve.lambda_min[curve.w.index(w)]
            panel.plot([w], [value], color=look.colour, ls="", marker=look.marker, ms=8, mec="white", label=look.label)
    panel.set_ylim(bottom=min(0.0, *curve.lambda_min, *curve.federated_lambda_min))
    panel.set_ylabel(format_tex("λ_min of w V_on + (1 − w) V_off"))
    panel.legend(loc="lower left")


def _select_curves(mixture: MixtureResults) -> Iterator[tuple[str, list[float], list[float], float, float]]:
    """Name, w, error, best w and its error: of each client on its targets; of noise, what other targets would give."""
    if mixture.sharing is not None and not mixture.shows_expected:
        named = len(mixture.sharing.clients) <= MAX_NAMED_CLIENTS
        for i, one in enumerate(mixture.sharing.clients):
            yield (
                f"client {mixture.client_names[i]}" if named else "",
                mixture.sharing.w,
                mixture.sharing.errors[i],
                one.best_w,
                one.best,
            )
        return
    for agreement, found in mixture.expected.items():
        errors = _average_clients(found)
        best = sum(one.best for one in found.clients) / len(found.clients)
        name = {0.0: "nothing in common", 1.0: "everything in common"}.get(agreement, f"{agreement:g} in common")
        yield name, found.w, errors, found.together.best_w, best


def _average_clients(found: SharingChoice) -> list[float]:
    return [sum(column) / len(column) for column in zip(*found.errors, strict=True)]


def _plot_errors(panel: Axes, shown: list[tuple[str, list[float], list[float], float, float]]) -> None:
    for k, (name, w, errors, best_w, best) in enumerate(shown):
        shade = str(0.15 + 0.5 * k / max(1, len(shown) - 1))  # one hue: colours stand for methods
        panel.plot(w, errors, color=shade, lw=1.5, ls=("-", "--", ":", "-.")[k % 4], label=name or None)
        panel.plot([best_w], [best], color=shade, ls="", marker="o", ms=7, mec="white", zorder=3, clip_on=False)
    panel.set_ylabel("error on samples left out")
    if any(name for name, *_ in shown):
        panel.legend(loc="best")
