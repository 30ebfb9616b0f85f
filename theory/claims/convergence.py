"""C1, C2: during training the least eigenvalue and the residual stay within their bounds."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from theory.claims.base import FAILS, HOLDS, Finding, format_conditional_verdict
from theory.claims.limits import bound_spectral_error
from theory.study import Study, compute_max_eigenvalue, compute_min_eigenvalue
from theory.training.descent import Branch, Trajectory, descend

BRANCHES: tuple[Branch, ...] = ("online", "offline", "fused")


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
