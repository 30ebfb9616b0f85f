"""K3, K4, K6: the kernel at infinite width, its definition, and the convergence to it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from theory.claims.base import (
    FAILS,
    HOLDS,
    UNDECIDED,
    Finding,
    compute_margin_digits,
    compute_relative_error,
    format_conditional_verdict,
)
from theory.claims.kernels import compute_relative_distance
from theory.kernels.infinite_width import InfiniteWidthLimit, compute_infinite_width_limit
from theory.kernels.sphere_qmc import ConfidenceInterval, estimate_sphere_average
from theory.problem import Problem
from theory.study import Study, compute_max_eigenvalue, compute_min_eigenvalue

ZERO_TOLERANCE = 1e-10
"""An eigenvalue known to be this close to 0, relative to the largest entry of V + G, counts as 0."""


def bound_spectral_error(limit: InfiniteWidthLimit) -> float:
    """Bound the distance of λ_min of the computed V^inf from the true one.

    The entries err by at most ``error``, so the spectrum by n times that. V is a difference of terms of the size of
    V + G, each with a handful of roundings. It may be nothing but rounding (d = 1), so its own size is no yardstick.
    """
    return len(limit.kernel.V) * (limit.error + 16 * torch.finfo(torch.float64).eps * _find_largest_entry(limit))


def _find_largest_entry(limit: InfiniteWidthLimit) -> float:
    return (limit.kernel.V + limit.kernel.G).abs().max().item()


def check_k3_limit_is_positive(study: Study) -> Finding:
    """Enclose λ_min(V^inf) by quadrature and by sampling, which must agree; two parallel samples must make it 0."""
    limit = study.limit
    value, uncertainty = compute_min_eigenvalue(limit.kernel.V), bound_spectral_error(limit)
    if value <= uncertainty:  # not accurate enough to decide: repeat at the limit of float64
        limit = compute_infinite_width_limit(study.problem, study.alpha, tolerance=1e-13)
        value, uncertainty = compute_min_eigenvalue(limit.kernel.V), bound_spectral_error(limit)
    sampled = estimate_sphere_average(study.problem, study.alpha).estimate_least_eigenvalue(lambda k: k.V)
    evidence: dict[str, Any] = {
        "lambda_min": value,
        "low": value - uncertainty,
        "high": value + uncertainty,
        "nodes": limit.nodes,
        "quasi_monte_carlo": [sampled.low, sampled.value, sampled.high],
    }
    contradictions = {"the roads to V^inf do not meet": _measure_gap(sampled, value, uncertainty)}
    if max(study.problem.sizes) > 1:
        parallel = _compute_limit_with_parallel_samples(study.problem, study.alpha)
        evidence["lambda_min_with_two_parallel_samples"] = degraded = compute_min_eigenvalue(parallel.kernel.V)
        contradictions["λ_min is not 0 for two parallel samples"] = degraded - bound_spectral_error(parallel)
    wrong = {words: excess for words, excess in contradictions.items() if excess > 0}
    if wrong:
        verdict, rest = UNDECIDED, "".join(f"; {words}" for words in wrong)
    elif value > uncertainty:
        verdict, rest = HOLDS, ""
    elif uncertainty <= ZERO_TOLERANCE * _find_largest_entry(limit):
        verdict, rest = FAILS, ": 0 to rounding"
    else:
        verdict, rest = UNDECIDED, ": positive or 0, the quadrature is too rough to tell"
    return Finding(
        verdict,
        lhs=value,
        rhs=0.0,
        margin=-max(wrong.values()) if wrong else value - uncertainty,
        unit="absolute",
        words=f"λ_min(V^inf) = {value:.4g} ± {uncertainty:.0e}{rest}",
        evidence=evidence,
    )


def _measure_gap(sampled: ConfidenceInterval, value: float, uncertainty: float) -> float:
    """The gap between value ± uncertainty and the sampled interval; negative where they overlap.

    A 99 % interval misses the truth once in a hundred times, so it is made three times as wide.
    """
    width = sampled.high - sampled.low
    return max(sampled.low - width - (value + uncertainty), value - uncertainty - (sampled.high + width))


def _compute_limit_with_parallel_samples(problem: Problem, alpha: float) -> InfiniteWidthLimit:
    """The limit once a sample is replaced by twice its neighbour on the same client."""
    problem = problem.to(torch.float64, "cpu")
    client = max(range(problem.clients), key=lambda i: problem.sizes[i])
    first, x = problem.blocks[client].start, problem.x.clone()
    x[first + 1] = 2 * x[first]
    return compute_infinite_width_limit(replace(problem, x=x), alpha)


def check_k4_finite_width(study: Study, draws: int = 8) -> Finding:
    """Fit log |V(0) - V^inf| against log m; independent draws give the standard error of the slope."""
    limit, top = study.limit_kernels["online"], max(study.online.width, 512)
    scale = study.alpha**2 * limit.Lambda
    widths = [top >> k for k in reversed(range(7))]
    points = []
    for k, width in enumerate(widths):
        for draw in range(draws):
            study.progress("convergence to infinite width", k * draws + draw, len(widths) * draws)
            V = study.with_width(width, seed=10_000 * (study.seed + 1) + 100 * draw + k).online_kernel.V
            points.append((width, compute_relative_distance(V.double().cpu(), limit.V, within=scale)))
    mean = {str(m): sum(e for w, e in points if w == m) / draws for m in widths}
    worst, rounding = max(e for _, e in points), 4 * study.tolerance
    if worst <= rounding and limit.V.norm() <= rounding * scale.norm():  # d = 1: there is no error left to decrease
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
    allowed = max(4 * error, 0.05)
    return Finding(
        HOLDS if abs(slope + 0.5) <= allowed else FAILS,
        lhs=slope,
        rhs=-0.5,
        margin=allowed - abs(slope + 0.5),
        unit="absolute",
        words=f"the error falls as m^({slope:.3f} ± {error:.3f})",
        evidence={"slope": slope, "slope_error": error, "relative_error": mean},
    )


def compute_printed_limit(problem: Problem, alpha: float) -> Tensor:
    """Eq. 14 word for word: E (αc)² <x_p - its part along v, x_q - its part along v> over v ~ N(0, α²I), c = ±1.

    The projection I - vv'/|v|² is symmetric and idempotent, and its mean over directions is (1 - 1/d) I.
    """
    x = problem.x.double().cpu()
    return alpha**2 * (1 - 1 / problem.dim) * (x @ x.T)


def check_k6_printed_limit(study: Study) -> Finding:
    """Check both halves of the claim for Definition 4.2 as printed, and with the gates, γ and norms of Eq. 16.

    Printed, it is α² (1 - 1/d) X X', of rank at most d. It must be the exact limit, and strictly positive definite.
    """
    limit, printed = study.limit, compute_printed_limit(study.problem, study.alpha)
    V, scale = limit.kernel.V, study.alpha**2 * study.limit_kernels["online"].Lambda
    distance = compute_relative_distance(printed, V, within=scale)
    allowed = compute_relative_error(bound_spectral_error(limit), V.norm().item())
    low, high = compute_min_eigenvalue(printed), compute_max_eigenvalue(printed)
    rounding = 16 * len(printed) * torch.finfo(torch.float64).eps * (high or 1.0)
    limit_low = compute_min_eigenvalue(V)
    definite = limit_low > bound_spectral_error(limit)
    at_width = study.online_kernel.V.double().cpu()
    if distance <= allowed and low > rounding:
        verdict = HOLDS
    else:
        verdict = format_conditional_verdict("gates, γ and norms as in Eq. 16") if definite else FAILS
    rank = int((torch.linalg.eigvalsh(printed) > rounding).sum())
    return Finding(
        verdict,
        lhs=low,
        rhs=0.0,
        margin=min(allowed - distance, compute_relative_error(low, high) if low > rounding else -rounding),
        unit="relative",
        words=f"as printed it is α²(1-1/d) XX', {100 * distance:.2g} % off the limit and of rank {rank} "
        f"for {len(printed)} samples; with gates and norms λ_min is {limit_low:.4g}",
        evidence={
            "distance_of_printed_from_limit": distance,
            "distance_of_V(0)": {
                "from_printed": compute_relative_distance(at_width, printed, within=scale),
                "from_limit": compute_relative_distance(at_width, V, within=scale),
            },
            "printed": {"rank": rank, "lambda_min": low, "lambda_max": high},
            "with_gates_and_norms": {"lambda_min": limit_low, "strictly_positive": definite},
        },
    )


def fit_slope(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Least squares: slope and its standard error; both 0 if all x are equal."""
    x, y = (torch.tensor(column, dtype=torch.float64) for column in zip(*points, strict=True))
    if len(x.unique()) < 2:
        return 0.0, 0.0
    dx = x - x.mean()
    slope = (dx * y).sum() / dx.square().sum()
    rest = y - y.mean() - slope * dx
    error = (rest.square().sum() / max(len(x) - 2, 1) / dx.square().sum()).sqrt()
    return slope.item(), error.item()
