"""K1-K5: the kernels themselves, and their limit."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from theory.claims.base import FAILS, HOLDS, Finding, digits_to_spare, holds_under, relative
from theory.federated import federated_kernel
from theory.gram import Kernel, Weights, kernel
from theory.jacobian import jacobian
from theory.limit import infinite_width
from theory.network import HIDDEN, TwoLayerBN
from theory.problem import Problem
from theory.sphere import sphere_average
from theory.study import Study, greatest, least, narrowed

JACOBIAN_NUMBERS = 2**25
"""An autograd Jacobian larger than this is taken of the first hidden units only."""


def distance(A: Tensor, B: Tensor, within: Tensor | None = None) -> float:
    """|A - B| / |B| in the Frobenius norm; where B is mere rounding ``within`` something larger, relative to that."""
    scale, whole = B.norm().item(), 0.0 if within is None else within.norm().item()
    return relative((A - B).norm().item(), scale if scale > 1e-6 * whole else whole)


def networks(problem: Problem, weights: Weights) -> list[TwoLayerBN]:
    """The weights as one real module for each client."""
    build = [
        TwoLayerBN(problem.dim, weights.width, covariance=S, generator=torch.Generator()).to(S.device)
        for S in problem.S
    ]
    return [net.load(*weights.of(i)) for i, net in enumerate(build)]


def k1_tangent_kernel(study: Study) -> Finding:
    """Autograd against closed form, at as many hidden units as a Jacobian has room for."""
    problem = study.problem
    room = JACOBIAN_NUMBERS // (len(problem.x) * (problem.dim + 1))
    errors = {}
    for name, weights, shared in (("online", study.online, {HIDDEN}), ("offline", study.offline, set[str]())):
        part = narrowed(weights, max(room, 1))
        rows = jacobian(networks(problem, part), [problem.x[b] for b in problem.blocks])
        autograd = federated_kernel(rows, problem.owner, shared)
        errors[name] = distance(study.kernel(part).Lambda, autograd)
    worst = max(errors.values())
    return Finding(
        HOLDS if worst <= study.tolerance else FAILS,
        lhs=worst,
        rhs=study.tolerance,
        margin=digits_to_spare(worst, study.tolerance),
        unit="digits",
        words=f"autograd and closed form differ by {worst:.1e} of the norm",
        evidence={"relative_error": errors, "hidden_units": min(room, study.online.width)},
    )


def k2_positive(study: Study) -> Finding:
    """Eigenvalues of all six matrices, and Λ against its parts."""
    slack: list[float] = []
    least_of: dict[str, float] = {}
    for name, k in (("on", study.on), ("off", study.off)):
        low = {part: least(getattr(k, part)) for part in ("V", "G", "Lambda")}
        least_of |= {f"{part}_{name}": value for part, value in low.items()}
        scale = greatest(k.Lambda) or 1.0  # all gates closed: every eigenvalue is 0
        slack += [value / scale for value in low.values()]
        slack.append((low["Lambda"] - max(low["V"] / k.alpha**2, low["G"])) / scale)
    margin = min(slack)
    return Finding(
        HOLDS if margin >= -study.tolerance else FAILS,
        lhs=margin,
        rhs=0.0,
        margin=margin,
        unit="relative",
        words="no eigenvalue is negative beyond rounding"
        if margin >= -study.tolerance
        else "an eigenvalue is negative",
        evidence={"lambda_min": least_of},
    )


def k3_limit_is_positive(study: Study) -> Finding:
    """λ_min(V^inf) with an interval from each road; two samples made parallel must bring it down."""
    V = study.limits["online"].V
    value, n = least(V), len(V)
    # The entries err by at most `error`, so the spectrum by n times that; the rest is rounding.
    doubt = n * (study.limit.error + torch.finfo(V.dtype).eps * V.abs().max().item())
    evidence: dict[str, Any] = {
        "lambda_min": value,
        "low": value - doubt,
        "high": value + doubt,
        "nodes": study.limit.nodes,
    }
    around = sphere_average(study.problem, study.alpha).least_eigenvalue(lambda k: k.V)
    evidence["quasi_monte_carlo"] = [around.low, around.value, around.high]
    if max(study.problem.sizes) > 1:
        evidence["lambda_min_with_two_parallel_samples"] = least(_with_parallel(study.problem, study.alpha).V)
    positive = value - doubt > 0
    return Finding(
        HOLDS if positive else FAILS,
        lhs=value,
        rhs=0.0,
        margin=value - doubt,
        unit="absolute",
        words=f"λ_min(V^inf) = {value:.4g} ± {doubt:.0e}" + ("" if positive else ", not distinguishable from 0"),
        evidence=evidence,
    )


def _with_parallel(problem: Problem, alpha: float) -> Kernel:
    """The limit once a sample is replaced by twice its neighbour on the same client."""
    problem = problem.to(torch.float64, "cpu")
    client = max(range(problem.clients), key=lambda i: problem.sizes[i])
    first, x = problem.blocks[client].start, problem.x.clone()
    x[first + 1] = 2 * x[first]
    return infinite_width(replace(problem, x=x), alpha).kernel


def k4_finite_width(study: Study, draws: int = 8) -> Finding:
    """Fit log |V(0) - V^inf| against log m; independent draws give the slope its error."""
    limit, top = study.limits["online"], max(study.online.width, 512)
    widths = [top >> k for k in reversed(range(7))]
    points = []
    for k, width in enumerate(widths):
        for draw in range(draws):
            study.progress("convergence to infinite width", k * draws + draw, len(widths) * draws)
            V = study.with_width(width, seed=10_000 * (study.seed + 1) + 100 * draw + k).on.V
            points.append((width, distance(V.double().cpu(), limit.V, within=study.alpha**2 * limit.Lambda)))
    slope, error = fitted_slope([(math.log(m), math.log(max(e, 1e-300))) for m, e in points])
    room = max(4 * error, 0.05)
    if max(e for _, e in points) <= study.tolerance**0.5:  # d = 1: both are zero, and there is nothing left to fall
        slope, room = -0.5, 0.05
    mean = {m: sum(e for w, e in points if w == m) / draws for m in widths}
    return Finding(
        HOLDS if abs(slope + 0.5) <= room else FAILS,
        lhs=slope,
        rhs=-0.5,
        margin=room - abs(slope + 0.5),
        unit="absolute",
        words=f"the error falls as m^({slope:.3f} ± {error:.3f})",
        evidence={"slope": slope, "slope_error": error, "relative_error": {str(m): e for m, e in mean.items()}},
    )


def fitted_slope(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Least squares: slope and its standard error; a single abscissa has neither."""
    x, y = (torch.tensor(column, dtype=torch.float64) for column in zip(*points, strict=True))
    if len(x.unique()) < 2:
        return 0.0, 0.0
    dx = x - x.mean()
    slope = (dx * y).sum() / dx.square().sum()
    rest = y - y.mean() - slope * dx
    error = (rest.square().sum() / max(len(x) - 2, 1) / dx.square().sum()).sqrt()
    return slope.item(), error.item()


def k5_projection(study: Study) -> Finding:
    """V_on with the printed projection against the exact one, here and with every S_i made a multiple of I."""
    problem, tolerance = study.problem, study.tolerance
    exact = study.kernel(study.online, projection="exact")
    found = distance(_printed(study, problem), exact.V, within=study.alpha**2 * exact.Lambda)
    scale = problem.S.diagonal(dim1=1, dim2=2).mean(1)
    round_S = scale[:, None, None] * torch.eye(problem.dim).to(problem.S)
    rounded = replace(problem, S=round_S)
    exact = kernel(rounded, study.online, chunk=study.chunk)
    isotropic = distance(_printed(study, rounded), exact.V, within=study.alpha**2 * exact.Lambda)
    otherwise = holds_under("every S_i = s_i I") if isotropic <= tolerance else FAILS
    return Finding(
        HOLDS if found <= tolerance else otherwise,
        lhs=found,
        rhs=tolerance,
        margin=digits_to_spare(found, tolerance),
        unit="digits",
        words=f"I - vv'/|v|² is off by {100 * found:.2g} % of the norm of V",
        evidence={"relative_error": found, "relative_error_if_isotropic": isotropic},
    )


def _printed(study: Study, problem: Problem) -> Tensor:
    return kernel(problem, study.online, projection="printed", chunk=study.chunk).V
