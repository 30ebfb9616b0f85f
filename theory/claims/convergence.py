"""C1-C3: during training the least eigenvalue and the residual stay within their bounds, from some width on."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from theory.claims.base import FAILS, HOLDS, UNDECIDED, Finding, format_conditional_verdict
from theory.claims.limits import bound_spectral_error
from theory.study import Study, compute_max_eigenvalue, compute_min_eigenvalue
from theory.training.descent import Branch, Trajectory, descend

BRANCHES: tuple[Branch, ...] = ("online", "offline", "fused")
FAILURE_PROBABILITY = 0.05
"""δ of Theorem C.1."""
MAX_RATIO = 1e300
"""Stands for a bound of 0."""


def compute_mu(study: Study) -> dict[str, float]:
    """μ = λ_min(V^inf) of each model, from the exact limit; 0 where it is within the limit's own error."""
    error = bound_spectral_error(study.limit)
    mu = {branch: compute_min_eigenvalue(study.limit_kernels[branch].V) for branch in BRANCHES}
    return {branch: value if value > error else 0.0 for branch, value in mu.items()}


def check_c1_stays_positive(study: Study) -> Finding:
    """Compare λ_min(Λ(t)) along real descent with μ/(2α²), at the full width and two smaller ones.

    Where μ is 0 the claim only requires λ_min(Λ(t)) ≥ 0, and there is no ratio. Rounding is allowed for on both sides.
    """
    mu = compute_mu(study)
    bounds = {branch: value / (2 * study.alpha**2) for branch, value in mu.items()}
    slack = (bound_spectral_error(study.limit) / 2 + study.eigenvalue_tolerance) / study.alpha**2
    top = study.online.width
    tracks: dict[str, Any] = {}
    for width in sorted({max(1, top // 16), max(1, top // 4), top}):
        if width == top:
            kernels, path = study, study.descents["separate"]
        else:
            kernels = study.with_width(width, seed=study.seed + width)
            step = len(study.problem.y) / 2 * kernels.rate
            path = descend(
                study.problem, kernels.online, kernels.offline, "separate", study.steps, step, snapshot_count=9
            )
        tracks[str(width)] = _track_min_eigenvalues(kernels, path)
    ratios = {
        width: min(_compute_ratio(min(track[b]), bounds[b], slack) for b in BRANCHES) for width, track in tracks.items()
    }
    lows = {branch: min(tracks[str(top)][branch]) for branch in BRANCHES}
    worst = min(BRANCHES, key=lambda b: (_compute_ratio(lows[b], bounds[b], slack), lows[b]))
    low, bound, here = lows[worst], bounds[worst], ratios[str(top)]
    if bound > 0:
        words = f"the least ratio λ_min(Λ(t)) / (μ/2α²) is {here:.3g} at m = {top}"
    else:
        words = f"μ is 0 to rounding, and the least λ_min(Λ(t)) is {low:.3g} at m = {top}"
    return Finding(
        HOLDS if low >= bound - slack else FAILS,
        lhs=low,
        rhs=bound,
        margin=here - 1 if bound > 0 else low / (compute_max_eigenvalue(study.online_kernel.Lambda) or 1.0),
        unit="relative",
        words=words,
        evidence={"mu": mu, "least_ratio": ratios, "lambda_min": tracks},
    )


def _compute_ratio(low: float, bound: float, slack: float) -> float:
    """low / bound; where the bound is 0, inf if low reaches it and -inf if not."""
    if bound > 0:
        return low / bound
    return math.inf if low >= -slack else -math.inf


def _track_min_eigenvalues(study: Study, path: Trajectory) -> dict[str, list[float]]:
    track: dict[str, list[float]] = {"t": [], **{branch: [] for branch in BRANCHES}}
    for k, (t, online, offline) in enumerate(path.snapshots):
        study.progress("kernels along the descent", k, len(path.snapshots))
        on, off = study.compute_kernel(online), study.compute_kernel(offline)
        track["t"].append(t)
        for branch, kernel in (("online", on), ("offline", off), ("fused", 0.5 * (on + off))):
            track[branch].append(compute_min_eigenvalue(kernel.Lambda))
    return track


def check_c2_stays_under_bound(study: Study) -> Finding:
    """Count where |F(t)-y|² exceeds (1 - rate μ/(2α²))^t |F(0)-y|², for each model."""
    mu, descents, rate, error = compute_mu(study), study.descents, study.rate, bound_spectral_error(study.limit)
    paths: dict[str, tuple[str, Branch]] = {branch: ("separate", branch) for branch in BRANCHES}
    paths["fused, joint"] = ("joint", "fused")
    violations, worst = {}, {}
    for name, (reading, branch) in paths.items():
        squares = descents[reading].compute_residual_norms(branch).double().square()
        bound = compute_bound_curve(max(0.0, mu[branch] - error), rate, study.alpha, squares)
        bound = bound.clamp_min(study.residual_floor**2 * squares[0].item())
        violations[name] = int((~(squares <= bound * (1 + 1e-9))).sum())  # NaN is a violation too
        worst[name] = (squares / bound)[1:].nan_to_num(math.inf).max().item()
    violated = [name for name, count in violations.items() if count]
    if not violated:
        verdict = HOLDS
    else:
        respected = [name for name in paths if name not in violated]
        verdict = format_conditional_verdict(*(f"only {name}" for name in respected)) if respected else FAILS
    return Finding(
        verdict,
        lhs=max(worst.values()),
        rhs=1.0,
        margin=1 - max(worst.values()),
        unit="relative",
        words=f"{sum(violations.values())} violations in {len(paths)} x {study.steps} steps",
        evidence={"violations": violations, "largest_ratio_to_bound": worst, "mu": mu, "rate": rate},
    )


def compute_bound_curve(mu: float, rate: float, alpha: float, squares: Tensor) -> Tensor:
    """(1 - rate μ/(2α²))^t |F(0)-y|²."""
    t = squares.new_tensor(range(len(squares)))
    return squares[0] * max(0.0, 1 - rate * mu / (2 * alpha**2)) ** t


def check_c3_width_of_the_theorem(study: Study) -> Finding:
    """Compare the width that Theorem C.1 asks for with the smallest power of two at which C1 and C2 hold here.

    The theorem's Ω leaves a constant open, which is taken as 1. A width at which C1 fails at t = 0 is not trained.
    """
    mu, n = compute_mu(study), len(study.problem.y)
    least = min(mu.values())
    asked = n**4 * math.log(n / FAILURE_PROBABILITY) / least**4 if least > 0 else math.inf
    found, tried = None, {}
    for width in (2**k for k in range(study.online.width.bit_length())):
        study.progress("smallest width", width.bit_length(), study.online.width.bit_length())
        tried[str(width)] = fraction = _measure_worst_ratio(study, width, mu)
        if fraction >= 1:
            found = width
            break
    if found is None:
        verdict, digits = UNDECIDED, -1.0
        words = f"C1 and C2 do not hold up to m = {study.online.width} here; Theorem C.1 asks for m = {asked:.1e}"
    elif least == 0:
        verdict, digits = UNDECIDED, 0.0
        words = "μ is 0 to rounding: Theorem C.1 asks for an infinite width and promises nothing"
    else:
        digits = math.log10(asked / found)
        verdict = HOLDS if digits >= 0 else FAILS
        words = (
            f"Theorem C.1 asks for m = {asked:.1e}; here C1 and C2 hold from m = {found}, "
            f"{abs(digits):.1f} orders of magnitude {'less' if digits >= 0 else 'more'}"
        )
    return Finding(
        verdict,
        lhs=float(found or study.online.width),
        rhs=asked,
        margin=digits,
        unit="digits",
        words=words,
        evidence={
            "width_of_the_theorem": asked if least > 0 else None,
            "smallest_width": found,
            "delta": FAILURE_PROBABILITY,
            "mu": mu,
            "least_ratio_to_the_bounds": tried,
        },
    )


def _measure_worst_ratio(study: Study, width: int, mu: dict[str, float]) -> float:
    """The least ratio of λ_min(Λ(t)) to C1's bound and of C2's bound to the residual, each branch on its own loss."""
    kernels = study.with_width(width, seed=study.seed + width)
    error = bound_spectral_error(study.limit)
    slack = (error / 2 + study.eigenvalue_tolerance) / study.alpha**2
    bounds = {branch: value / (2 * study.alpha**2) for branch, value in mu.items()}
    models = {"online": kernels.online_kernel, "offline": kernels.offline_kernel, "fused": kernels.fused_kernel}
    ratio = min(_cap_ratio(compute_min_eigenvalue(models[b].Lambda), bounds[b], slack) for b in BRANCHES)
    if ratio < 1:
        return ratio
    step = len(study.problem.y) / 2 * kernels.rate
    path = descend(study.problem, kernels.online, kernels.offline, "separate", study.steps, step, snapshot_count=3)
    track = _track_min_eigenvalues(kernels, path)
    ratio = min(_cap_ratio(min(track[b]), bounds[b], slack) for b in BRANCHES)
    for branch in BRANCHES:
        squares = path.compute_residual_norms(branch).double().square()
        bound = compute_bound_curve(max(0.0, mu[branch] - error), kernels.rate, study.alpha, squares)
        bound = bound.clamp_min(study.residual_floor**2 * squares[0].item())
        reserve = (bound * (1 + 1e-9) / squares.clamp_min(torch.finfo(torch.float64).tiny))[1:]
        ratio = min(ratio, reserve.nan_to_num(0.0, MAX_RATIO).min().item())
    return ratio


def _cap_ratio(low: float, bound: float, slack: float) -> float:
    """low / bound as JSON can hold it: where the bound is 0, large if low reaches it and 0 if not."""
    return max(-MAX_RATIO, min(_compute_ratio(low + slack, bound, slack), MAX_RATIO))
