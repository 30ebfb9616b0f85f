"""C1, C2: the least eigenvalue stays up during training, and the residual stays under its bound."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from theory.claims.base import FAILS, HOLDS, Finding, holds_under
from theory.descent import Trajectory, descend
from theory.study import Study, least

BRANCHES = ("online", "offline", "fused")


def limits_of_mu(study: Study) -> dict[str, float]:
    """μ = λ_min(V^inf) of each model, by the exact limit."""
    return {branch: least(study.limits[branch].V) for branch in BRANCHES}


def c1_stays_positive(study: Study) -> Finding:
    """λ_min(Λ(t)) along real descent over μ/(2α²), at the full width and two smaller ones."""
    mu = limits_of_mu(study)
    top = study.online.width
    tracks: dict[str, Any] = {}
    for width in sorted({max(1, top // 16), max(1, top // 4), top}):
        if width == top:
            kernels, path = study, study.descents["separate"]
        else:
            kernels = study.with_width(width, seed=study.seed + width)
            step = len(study.problem.y) / 2 * kernels.rate
            path = descend(study.problem, kernels.online, kernels.offline, "separate", study.steps, step, keep=9)
        tracks[str(width)] = _track(kernels, path)
    ratios = {
        width: min(
            value / (mu[branch] / (2 * study.alpha**2)) if mu[branch] > 0 else math.inf
            for branch in BRANCHES
            for value in track[branch]
        )
        for width, track in tracks.items()
    }
    here = ratios[str(top)]
    return Finding(
        HOLDS if here >= 1 else FAILS,
        lhs=min(min(tracks[str(top)][branch]) for branch in BRANCHES),
        rhs=min(mu.values()) / (2 * study.alpha**2),
        margin=here - 1,
        unit="relative",
        words=f"the least ratio λ_min(Λ(t)) / (μ/2α²) is {here:.3g} at m = {top}",
        evidence={"mu": mu, "least_ratio": ratios, "lambda_min": tracks},
    )


def _track(study: Study, path: Trajectory) -> dict[str, list[float]]:
    track: dict[str, list[float]] = {"t": [], **{branch: [] for branch in BRANCHES}}
    for k, (t, online, offline) in enumerate(path.snapshots):
        study.progress("kernels along the descent", k, len(path.snapshots))
        on, off = study.kernel(online), study.kernel(offline)
        track["t"].append(t)
        for branch, kernel in (("online", on), ("offline", off), ("fused", 0.5 * (on + off))):
            track[branch].append(least(kernel.Lambda))
    return track


def c2_stays_under_bound(study: Study) -> Finding:
    """|F(t)-y|² against (1 - rate μ/(2α²))^t |F(0)-y|², violations counted for each model."""
    mu, found, rate = limits_of_mu(study), study.descents, study.rate
    paths = {branch: ("separate", branch) for branch in BRANCHES} | {"fused, joint": ("joint", "fused")}
    violations, worst = {}, {}
    for name, (reading, branch) in paths.items():
        squares = found[reading].residual_norms(branch).double().square()  # type: ignore[arg-type]
        bound = bound_curve(mu[branch], rate, study.alpha, squares).clamp_min(study.floor**2 * squares[0].item())
        violations[name] = int((~(squares <= bound * (1 + 1e-9))).sum())  # NaN is a violation too
        worst[name] = (squares / bound)[1:].nan_to_num(math.inf).max().item()
    bad = [name for name, count in violations.items() if count]
    if not bad:
        verdict = HOLDS
    else:
        good = [name for name in paths if name not in bad]
        verdict = holds_under("only for " + ", ".join(good)) if good else FAILS
    return Finding(
        verdict,
        lhs=max(worst.values()),
        rhs=1.0,
        margin=1 - max(worst.values()),
        unit="relative",
        words=f"{sum(violations.values())} violations in {len(paths)} x {study.steps} steps",
        evidence={"violations": violations, "largest_ratio_to_bound": worst, "mu": mu, "rate": rate},
    )


def bound_curve(mu: float, rate: float, alpha: float, squares: Tensor) -> Tensor:
    """(1 - rate μ/(2α²))^t |F(0)-y|²."""
    t = squares.new_tensor(range(len(squares)))
    return squares[0] * max(0.0, 1 - rate * mu / (2 * alpha**2)) ** t
