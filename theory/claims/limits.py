"""K3, K4: the kernel of infinite width, and the way to it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from theory.claims.base import FAILS, HOLDS, UNDECIDED, Finding, compute_margin_digits
from theory.claims.kernels import compute_relative_distance
from theory.kernels.infinite_width import InfiniteWidthLimit, compute_infinite_width_limit
from theory.kernels.sphere_qmc import ConfidenceInterval, estimate_sphere_average
from theory.problem import Problem
from theory.study import Study, compute_min_eigenvalue

ZERO_TOLERANCE = 1e-10
"""An eigenvalue known to lie this near to 0, in units of the largest entry of V + G, counts as 0."""


def bound_spectral_error(limit: InfiniteWidthLimit) -> float:
    """How far λ_min of the computed V^inf may lie from the true one.

    The entries err by at most ``error``, so the spectrum by n times that. V is a difference of terms of the size of
    V + G, each a handful of roundings: it may be all rounding (d = 1) and says nothing of its own accuracy.
    """
    return len(limit.kernel.V) * (limit.error + 16 * torch.finfo(torch.float64).eps * _find_largest_entry(limit))


def _find_largest_entry(limit: InfiniteWidthLimit) -> float:
    return (limit.kernel.V + limit.kernel.G).abs().max().item()


def check_k3_limit_is_positive(study: Study) -> Finding:
    """λ_min(V^inf) with an interval from each road, which must meet; two samples made parallel must bring it to 0."""
    limit = study.limit
    value, doubt = compute_min_eigenvalue(limit.kernel.V), bound_spectral_error(limit)
    if value <= doubt:  # too rough to tell: as fine as float64 allows
        limit = compute_infinite_width_limit(study.problem, study.alpha, tolerance=1e-13)
        value, doubt = compute_min_eigenvalue(limit.kernel.V), bound_spectral_error(limit)
    around = estimate_sphere_average(study.problem, study.alpha).estimate_least_eigenvalue(lambda k: k.V)
    evidence: dict[str, Any] = {
        "lambda_min": value,
        "low": value - doubt,
        "high": value + doubt,
        "nodes": limit.nodes,
        "quasi_monte_carlo": [around.low, around.value, around.high],
    }
    contradictions = {"the roads to V^inf do not meet": _measure_gap(around, value, doubt)}
    if max(study.problem.sizes) > 1:
        parallel = _compute_limit_with_parallel_samples(study.problem, study.alpha)
        evidence["lambda_min_with_two_parallel_samples"] = degraded = compute_min_eigenvalue(parallel.kernel.V)
        contradictions["λ_min is not 0 for two parallel samples"] = degraded - bound_spectral_error(parallel)
    wrong = {words: excess for words, excess in contradictions.items() if excess > 0}
    if wrong:
        verdict, rest = UNDECIDED, "".join(f"; {words}" for words in wrong)
    elif value > doubt:
        verdict, rest = HOLDS, ""
    elif doubt <= ZERO_TOLERANCE * _find_largest_entry(limit):
        verdict, rest = FAILS, ": 0 to rounding"
    else:
        verdict, rest = UNDECIDED, ": positive or 0, the quadrature is too rough to tell"
    return Finding(
        verdict,
        lhs=value,
        rhs=0.0,
        margin=-max(wrong.values()) if wrong else value - doubt,
        unit="absolute",
        words=f"λ_min(V^inf) = {value:.4g} ± {doubt:.0e}{rest}",
        evidence=evidence,
    )


def _measure_gap(around: ConfidenceInterval, value: float, doubt: float) -> float:
    """By how much value ± doubt and the sampled interval miss each other; below 0 they meet.

    An interval of 99 % misses the truth once in a hundred times. Three times as wide it does not.
    """
    width = around.high - around.low
    return max(around.low - width - (value + doubt), value - doubt - (around.high + width))


def _compute_limit_with_parallel_samples(problem: Problem, alpha: float) -> InfiniteWidthLimit:
    """The limit once a sample is replaced by twice its neighbour on the same client."""
    problem = problem.to(torch.float64, "cpu")
    client = max(range(problem.clients), key=lambda i: problem.sizes[i])
    first, x = problem.blocks[client].start, problem.x.clone()
    x[first + 1] = 2 * x[first]
    return compute_infinite_width_limit(replace(problem, x=x), alpha)


def check_k4_finite_width(study: Study, draws: int = 8) -> Finding:
    """Fit log |V(0) - V^inf| against log m; independent draws give the slope its error."""
    limit, top = study.limit_kernels["online"], max(study.online.width, 512)
    whole = study.alpha**2 * limit.Lambda
    widths = [top >> k for k in reversed(range(7))]
    points = []
    for k, width in enumerate(widths):
        for draw in range(draws):
            study.progress("convergence to infinite width", k * draws + draw, len(widths) * draws)
            V = study.with_width(width, seed=10_000 * (study.seed + 1) + 100 * draw + k).online_kernel.V
            points.append((width, compute_relative_distance(V.double().cpu(), limit.V, within=whole)))
    mean = {str(m): sum(e for w, e in points if w == m) / draws for m in widths}
    worst, rounding = max(e for _, e in points), 4 * study.tolerance
    if worst <= rounding and limit.V.norm() <= rounding * whole.norm():  # d = 1: nothing is left to fall
        return Finding(
            HOLDS,
            lhs=worst,
            rhs=rounding,
            margin=compute_margin_digits(worst, rounding),
            unit="digits",
            words="V(0) and V^inf are both zero, at every width",
            evidence={"slope": None, "slope_error": None, "relative_error": mean},
        )
    slope, error = fit_slope([(math.log(m), math.log(max(e, 1e-300))) for m, e in points])
    room = max(4 * error, 0.05)
    return Finding(
        HOLDS if abs(slope + 0.5) <= room else FAILS,
        lhs=slope,
        rhs=-0.5,
        margin=room - abs(slope + 0.5),
        unit="absolute",
        words=f"the error falls as m^({slope:.3f} ± {error:.3f})",
        evidence={"slope": slope, "slope_error": error, "relative_error": mean},
    )


def fit_slope(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Least squares: slope and its standard error; a single abscissa has neither."""
    x, y = (torch.tensor(column, dtype=torch.float64) for column in zip(*points, strict=True))
    if len(x.unique()) < 2:
        return 0.0, 0.0
    dx = x - x.mean()
    slope = (dx * y).sum() / dx.square().sum()
    rest = y - y.mean() - slope * dx
    error = (rest.square().sum() / max(len(x) - 2, 1) / dx.square().sum()).sqrt()
    return slope.item(), error.item()
