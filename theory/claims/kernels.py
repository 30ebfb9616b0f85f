"""K1, K2, K5: the kernels themselves."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from theory.claims.base import FAILS, HOLDS, Finding, digits_to_spare, holds_under, relative
from theory.federated import federated_kernel
from theory.gram import Weights, kernel
from theory.jacobian import jacobian
from theory.network import HIDDEN, TwoLayerBN
from theory.problem import Problem
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
