"""The message of each figure: its title, and the text for readers who cannot see it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

from theory.report.plot_style import format_short
from theory.results import Curves, MixtureResults
from theory.text import format_count

READINGS = {
    "joint": ("Joint loss of Eq. 12, one step size", "separate: online", "joint: fused"),
    "joint, own step": ("Joint loss, own largest stable step", "separate, own step: online", "joint, own step: fused"),
    "separate": ("Separate losses, as Algorithm 2 trains", "separate: online", "separate: fused"),
    "federated": ("Separate losses in federated rounds", "federated: online", "federated: fused"),
}
"""Reading -> its name in the figure, FedBN's curve, Fed-CO2's curve."""


def build_messages(curves: Curves, mixture: MixtureResults | None = None) -> dict[str, str]:
    """The message of every figure whose numbers there are."""
    writers: dict[str, tuple[object, Callable[[Curves], str]]] = {
        "spectra": (curves.spectra, _describe_spectra),
        "draws": (curves.draws, _describe_draws),
        "residuals": (curves.residuals, _describe_residuals),
        "width": (curves.widths, _describe_width),
        "clients": (curves.clients, _describe_clients),
        "tracking": (curves.tracks, _describe_tracking),
    }
    messages = {name: write(curves) for name, (needed, write) in writers.items() if needed}
    return messages if mixture is None else messages | {"mixture": _describe_mixture(mixture)}


def _compute_ratio(a: float, b: float, room: float = 0.0) -> float:
    return a / b if b > room else math.nan


def _describe_change(a: float, b: float, room: float) -> str:
    """Describe the change from a to b; a difference within rounding counts as none."""
    if not abs(b - a) > max(room, 1e-9 * max(abs(a), abs(b))):
        return f"stays at {format_short(a)}"
    return f"{'rises' if b > a else 'falls'} from {format_short(a)} to {format_short(b)}"


def _describe_spectra(curves: Curves) -> str:
    on, mean = curves.spectra["V_on"], curves.spectra["V"]
    room = curves.draws[0].room if curves.draws else 0.0  # the spectra are those of the first draw
    low, high = _describe_change(on[-1], mean[-1], room), _describe_change(on[0], mean[0], room)
    return f"FedBN to Fed-CO2: the least eigenvalue {low}, the greatest {high}"


def _describe_draws(curves: Curves) -> str:
    rows = curves.draws
    rises = sum(row.V - row.V_on > max(row.room, 1e-9 * abs(row.V)) for row in rows)
    ratios = [r for row in rows if math.isfinite(r := _compute_ratio(row.V, row.V_on, row.room))]
    median = f", by a factor {format_short(statistics.median(ratios))} in the median" if ratios else ""
    return f"λ_min rises from FedBN to Fed-CO2 in {rises} of {len(rows)} draws{median}"


def collect_gains(curves: Curves) -> dict[str, float]:
    """Digits by which Fed-CO2 ends below FedBN in each reading: as D2 measured it, else at the last step.

    D2's values are those of the draw whose curves are shown, which need not be the draw that decided its verdict.
    """
    residuals = curves.residuals
    known = curves.gains["log10_gain"] if curves.gains else {}
    found: dict[str, float] = {}
    for reading, (_, fedbn, fedco2) in READINGS.items():
        if fedbn in residuals and fedco2 in residuals:
            last = _compute_ratio(residuals[fedbn][-1], residuals[fedco2][-1])
            found[reading] = known.get(reading, math.log10(last) if 0 < last < math.inf else math.nan)
    return found


def format_gain(gain: float) -> str:
    """Describe the outcome of one reading."""
    if math.isnan(gain):
        return "not comparable at the last step"
    if abs(gain) == math.inf:
        return "Fed-CO2 diverges" if gain < 0 else "FedBN diverges"
    if abs(gain) < 0.005:
        return "both end at the same residual"
    times = f"{10 ** abs(gain):.3g} times {'smaller' if gain > 0 else 'larger'}"
    return f"Fed-CO2 ends {abs(gain):.2f} digits {'lower' if gain > 0 else 'higher'}: a residual {times}"


def _describe_residuals(curves: Curves) -> str:
    found = collect_gains(curves)
    behind = [name for name, gain in found.items() if not gain > 0]
    steps = max(len(values) for values in curves.residuals.values()) - 1
    tail = f"; not in: {' / '.join(behind)}" if behind else ""
    ahead = f"{len(found) - len(behind)} of {len(found)} readings"
    last = curves.gains["compared_at_step"] if curves.gains else {}
    when = "After" if all(step == steps for step in last.values()) else "Within"
    return f"{when} {format_count(steps, 'step')} Fed-CO2 is ahead of FedBN in {ahead}{tail}"


def _describe_width(curves: Curves) -> str:
    found = curves.widths
    assert found is not None
    if len(found["relative_error"]) < 2:
        return "One width only: no slope to fit"
    if found["slope"] is None:
        return "V(0) and V^inf are both zero: there is no distance to shrink"
    return f"The distance to V^inf shrinks as m^({found['slope']:.2f})" if found["slope"] < 0 else (
        "The distance to V^inf does not shrink with m"
    )  # fmt: skip


def _describe_clients(curves: Curves) -> str:
    last = curves.clients[-1]
    ratio, many = _compute_ratio(last.V, last.V_on, last.room), format_count(last.clients, "client")
    if not math.isfinite(ratio):
        return f"With {many} FedBN's λ_min is not above 0"
    return f"With {many} Fed-CO2 has {format_short(ratio)} times FedBN's λ_min"


def _describe_tracking(curves: Curves) -> str:
    found = curves.tracks
    assert found is not None
    widths = found["lambda_min"]
    low = [width for width, ratio in found["least_ratio"].items() if not ratio >= 1]
    if low:
        high = [width for width in found["least_ratio"] if width not in low]
        rest = f", stays above it at m = {', '.join(high)}" if high else ""
        return f"λ_min(Λ(t)) sinks below its bound at m = {', '.join(low)}{rest}"
    least = min(found["least_ratio"].values())
    steps = int(max((t["t"][-1] for t in widths.values() if t["t"]), default=0))
    if least == math.inf:
        return f"During {format_count(steps, 'step')} λ_min(Λ(t)) never sinks below its bound, which is 0"
    return f"During {format_count(steps, 'step')} λ_min(Λ(t)) never sinks below {format_short(least)} times its bound"


def _describe_mixture(mixture: MixtureResults) -> str:
    first = (
        "λ_min is the same for every share of the online network"
        if mixture.curve.is_flat
        else f"By λ_min the best share of the online network is {mixture.curve.best_w:.2g}"
    )
    if mixture.sharing is not None and not mixture.shows_expected:
        wanted = sorted(one.best_w for one in mixture.sharing.clients)
        span = f"{wanted[0]:.2g}" if wanted[-1] - wanted[0] < 0.005 else f"{wanted[0]:.2g} to {wanted[-1]:.2g}"
        return f"{first}; samples left out want {span}"
    if mixture.expected:
        return f"{first}; samples left out want as much as the clients have in common"
    return first
