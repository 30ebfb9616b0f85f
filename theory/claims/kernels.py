"""K1, K2, K5: the kernels themselves."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from theory.claims.base import (
    FAILS,
    HOLDS,
    Finding,
    compute_margin_digits,
    compute_relative_error,
    format_conditional_verdict,
)
from theory.kernels.autograd import compute_jacobian
from theory.kernels.closed_form import Weights, compute_kernel
from theory.kernels.federated import compute_federated_kernel
from theory.network import HIDDEN_KEY, TwoLayerBN
from theory.problem import Problem
from theory.study import Study, compute_max_eigenvalue, compute_min_eigenvalue, truncate_width

MAX_JACOBIAN_ENTRIES = 2**25
"""If a Jacobian would have more entries than this, only the first hidden units are differentiated."""


def compute_relative_distance(A: Tensor, B: Tensor, within: Tensor | None = None) -> float:
    """|A - B| / |B| in the Frobenius norm; relative to ``within`` where B is no more than rounding of it."""
    scale, whole = B.norm().item(), 0.0 if within is None else within.norm().item()
    return compute_relative_error((A - B).norm().item(), scale if scale > 1e-6 * whole else whole)


def build_networks(problem: Problem, weights: Weights) -> list[TwoLayerBN]:
    """Build one module for each client from the weights."""
    nets = [
        TwoLayerBN(problem.dim, weights.width, covariance=S, generator=torch.Generator()).to(S.device)
        for S in problem.S
    ]
    return [net.load_weights(*weights.get_client_weights(i)) for i, net in enumerate(nets)]


def check_k1_tangent_kernel(study: Study) -> Finding:
    """Compare autograd with the closed form, on as many hidden units as the Jacobian's size limit allows."""
    problem = study.problem
    max_width = MAX_JACOBIAN_ENTRIES // (len(problem.x) * (problem.dim + 1))
    errors = {}
    for name, weights, shared in (("online", study.online, {HIDDEN_KEY}), ("offline", study.offline, set[str]())):
        part = truncate_width(weights, max(max_width, 1))
        rows = compute_jacobian(build_networks(problem, part), [problem.x[b] for b in problem.blocks])
        autograd = compute_federated_kernel(rows, problem.owner, shared)
        errors[name] = compute_relative_distance(study.compute_kernel(part).Lambda, autograd)
    worst = max(errors.values())
    return Finding(
        HOLDS if worst <= study.tolerance else FAILS,
        lhs=worst,
        rhs=study.tolerance,
        margin=compute_margin_digits(worst, study.tolerance),
        unit="digits",
        words=f"autograd and closed form differ by {worst:.1e} of the norm",
        evidence={"relative_error": errors, "hidden_units": min(max_width, study.online.width)},
    )


def check_k2_positive(study: Study) -> Finding:
    """Check the least eigenvalues of all six matrices, and that of Λ against those of its parts."""
    slack: list[float] = []
    least_eigenvalues: dict[str, float] = {}
    for name, k in (("on", study.online_kernel), ("off", study.offline_kernel)):
        least = {part: compute_min_eigenvalue(getattr(k, part)) for part in ("V", "G", "Lambda")}
        least_eigenvalues |= {f"{part}_{name}": value for part, value in least.items()}
        scale = compute_max_eigenvalue(k.Lambda) or 1.0  # all gates closed: every eigenvalue is 0
        slack += [value / scale for value in least.values()]
        slack.append((least["Lambda"] - max(least["V"] / k.alpha**2, least["G"])) / scale)
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
        evidence={"lambda_min": least_eigenvalues},
    )


def check_k5_projection(study: Study) -> Finding:
    """Compare V_on under the printed and the exact projection, here and with every S_i replaced by s_i I."""
    problem, tolerance = study.problem, study.tolerance
    exact = study.compute_kernel(study.online, projection="exact")
    error = compute_relative_distance(
        _compute_printed_kernel(study, problem), exact.V, within=study.alpha**2 * exact.Lambda
    )
    scale = problem.S.diagonal(dim1=1, dim2=2).mean(1)
    isotropic_problem = replace(problem, S=scale[:, None, None] * torch.eye(problem.dim).to(problem.S))
    exact = compute_kernel(isotropic_problem, study.online, chunk=study.chunk)
    isotropic_error = compute_relative_distance(
        _compute_printed_kernel(study, isotropic_problem), exact.V, within=study.alpha**2 * exact.Lambda
    )
    fallback = format_conditional_verdict("every S_i = s_i I") if isotropic_error <= tolerance else FAILS
    return Finding(
        HOLDS if error <= tolerance else fallback,
        lhs=error,
        rhs=tolerance,
        margin=compute_margin_digits(error, tolerance),
        unit="digits",
        words=f"I - vv'/|v|² is off by {100 * error:.2g} % of the norm of V",
        evidence={"relative_error": error, "relative_error_if_isotropic": isotropic_error},
    )


def _compute_printed_kernel(study: Study, problem: Problem) -> Tensor:
    return compute_kernel(problem, study.online, projection="printed", chunk=study.chunk).V
