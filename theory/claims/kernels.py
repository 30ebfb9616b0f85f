"""K1, K2, K5, K7: the kernels themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

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
from theory.kernels.closed_form import Kernel, Weights, compute_kernel
from theory.kernels.federated import compute_federated_kernel
from theory.network import HIDDEN_KEY, TwoLayerBN
from theory.problem import Problem, draw_synthetic_problem
from theory.study import Study, compute_max_eigenvalue, compute_min_eigenvalue, truncate_width

TURN_DIMENSIONS, TURN_HETEROGENEITIES = (3, 10, 30), (0.0, 1.0, 2.0)
TURN_CLIENTS, TURN_SAMPLES, TURN_WIDTH = 6, 20, 512
"""At most so many clients, samples of each and hidden units, where K7 looks at other synthetic clients."""
MAX_TURNING_ALPHA = 1e16
"""Where G is singular V dominates at every α."""
PROJECTION_UNITS = 128
"""Hidden units on which every reading of the projection is written out."""
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


def check_k7_direction_dominates(study: Study) -> Finding:
    """Find the α at which λ_min(V)/α² sinks to λ_min(G): below it V dominates. The claim says that it is at least 1.

    At initialisation neither V nor G depends on α, so the turn is at α = sqrt(λ_min(V)/λ_min(G)). Also on synthetic
    clients of about this size, over the dimension, the heterogeneity, and how the samples are divided among clients.
    """
    kernels = {"online": study.online_kernel, "offline": study.offline_kernel, "fused": study.fused_kernel}
    floor = study.eigenvalue_tolerance
    turns = {name: _find_turning_alpha(k, floor) for name, k in kernels.items()}
    worst = min(turns, key=lambda name: turns[name])
    at, k = turns[worst], kernels[worst]
    direction, magnitude = compute_min_eigenvalue(k.V) / k.alpha**2, compute_min_eigenvalue(k.G)
    fallback = format_conditional_verdict("α below sqrt(λ_min(V)/λ_min(G))") if at > 0 else FAILS
    return Finding(
        HOLDS if at >= 1 else fallback,
        lhs=at,
        rhs=1.0,
        margin=compute_margin_digits(1.0, max(at, 1e-16)),
        unit="digits",
        words=f"λ_min(V)/α² is {direction:.3g} and λ_min(G) {magnitude:.3g} ({worst}); V dominates up to α = {at:.3g}",
        evidence={
            "turning_alpha": turns,
            "share_of_lambda_min(Lambda)": {
                name: compute_relative_error(compute_min_eigenvalue(k.V) / k.alpha**2, compute_min_eigenvalue(k.Lambda))
                for name, k in kernels.items()
            },
            "synthetic_clients": _trace_turning_alpha(study),
        },
    )


def _find_turning_alpha(kernel: Kernel, floor: float) -> float:
    """The α at which both least eigenvalues are equal; 0 if V's is within ``floor`` of 0, 1e16 if only G's is."""
    V, G = compute_min_eigenvalue(kernel.V), compute_min_eigenvalue(kernel.G)
    if floor >= V:
        return 0.0
    return min((V / G) ** 0.5, MAX_TURNING_ALPHA) if G > 0 else MAX_TURNING_ALPHA


def _trace_turning_alpha(study: Study) -> dict[str, dict[str, float]]:
    """The turning α of the online network while one property of synthetic clients varies and the others stay."""
    N, M = min(study.problem.clients, TURN_CLIENTS), min(max(study.problem.sizes), TURN_SAMPLES)
    d, width = study.problem.dim, min(study.online.width, TURN_WIDTH)

    def measure(clients: int, samples: int, dim: int, heterogeneity: float) -> float:
        problem = draw_synthetic_problem(clients, samples, dim, heterogeneity=heterogeneity, seed=study.seed)
        few = Study.at_init(problem, width, study.alpha, seed=study.seed)
        return _find_turning_alpha(few.online_kernel, few.eigenvalue_tolerance)

    divisions = {(1, N * M), (N, M), (N * M, 1)}
    return {
        "dimension": {str(dim): measure(N, M, dim, 1.0) for dim in TURN_DIMENSIONS},
        "heterogeneity": {f"{h:g}": measure(N, M, d, h) for h in TURN_HETEROGENEITIES},
        "clients_x_samples": {f"{n} x {m}": measure(n, m, d, 1.0) for n, m in sorted(divisions)},
    }


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
    readings = _measure_projections(study)
    described = f"{100 * readings[DERIVATIVE]['relative_error']:.0e} %"
    return Finding(
        HOLDS if error <= tolerance else fallback,
        lhs=error,
        rhs=tolerance,
        margin=compute_margin_digits(error, tolerance),
        unit="digits",
        words=f"I - vv'/|v|² is off by {100 * error:.2g} % of the norm of V; the client index of Eq. 16 read as "
        f"{DERIVATIVE}, by {described}",
        evidence={"relative_error": error, "relative_error_if_isotropic": isotropic_error, "readings": readings},
    )


def _measure_projections(study: Study) -> dict[str, dict[str, Any]]:
    """Compare V by autograd with V written out, for each reading of the projection, on the first hidden units.

    Section 4.1 prints the Euclidean projection. The appendix puts the client's index on it, v^{i_p}, and never says
    what that means. If it is the geometry of S_i there are still two readings: orthogonal in <a, b> = a'S_i b, which
    is wrong, and its adjoint, orthogonal in a'S_i^(-1) b: onto what is orthogonal to v, along S_i v.
    """
    problem = study.problem
    width = max(1, min(PROJECTION_UNITS, MAX_JACOBIAN_ENTRIES // (4 * len(problem.x) * problem.dim)))
    part = truncate_width(study.online, width)
    rows = compute_jacobian(build_networks(problem, part), [problem.x[b] for b in problem.blocks])
    autograd = study.alpha**2 * compute_federated_kernel({HIDDEN_KEY: rows[HIDDEN_KEY]}, problem.owner, {HIDDEN_KEY})
    whole = study.alpha**2 * compute_federated_kernel(rows, problem.owner, {HIDDEN_KEY})
    found = {}
    for name, project in PROJECTIONS.items():
        features = [_write_out_features(study, part, i, project) for i in range(problem.clients)]
        V = (joined := torch.cat(features)) @ joined.T
        error = compute_relative_distance(V, autograd, within=whole)
        found[name] = {"relative_error": error, "verdict": HOLDS if error <= study.tolerance else FAILS}
    return found


def _write_out_features(study: Study, weights: Weights, client: int, project: Project) -> Tensor:
    """One row for each sample of the client: α c γ 1 / (|v|_S √m) P x, for all hidden units side by side."""
    x, S = study.problem.x[study.problem.blocks[client]], study.problem.S[client]
    v, gamma, c = weights.get_client_weights(client)
    h = x @ v.T
    size = torch.einsum("kd,de,ke->k", v, S, v).sqrt()
    unit = weights.alpha * c * gamma / (size * weights.width**0.5) * (h * gamma > 0)
    return (unit[:, :, None] * project(x[:, None, :], v, S)).flatten(1)


def _project_euclidean(x: Tensor, v: Tensor, S: Tensor) -> Tensor:
    return x - v * ((x * v).sum(-1) / v.square().sum(-1))[..., None]


def _project_orthogonal(x: Tensor, v: Tensor, S: Tensor) -> Tensor:
    Sv = v @ S
    return x - v * ((x * Sv).sum(-1) / (v * Sv).sum(-1))[..., None]


def _project_along(x: Tensor, v: Tensor, S: Tensor) -> Tensor:
    Sv = v @ S
    return x - Sv * ((x * v).sum(-1) / (v * Sv).sum(-1))[..., None]


Project = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From x (M, 1, d), v (m, d) and S to the projected x (M, m, d)."""
DERIVATIVE = "I - S_i vv'/|v|²_{S_i}"
PROJECTIONS: dict[str, Project] = {
    "I - vv'/|v|²": _project_euclidean,
    "I - vv'S_i/|v|²_{S_i}": _project_orthogonal,
    DERIVATIVE: _project_along,
}
"""Section 4.1's, and the two that a client index on it may mean; the last is the derivative of the normalised unit."""


def _compute_printed_kernel(study: Study, problem: Problem) -> Tensor:
    return compute_kernel(problem, study.online, projection="printed", chunk=study.chunk).V
