"""D1-D3: what really drives the fused network, and how fast."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from theory.claims.base import FAILS, HOLDS, Finding, digits_to_spare, holds_under, relative
from theory.claims.kernels import JACOBIAN_NUMBERS, distance, networks
from theory.descent import Reading, Trajectory, descend
from theory.dynamics import predicted_residuals
from theory.federated import federated_kernel, pinch
from theory.jacobian import jacobian
from theory.network import HIDDEN
from theory.study import Study, greatest, narrowed

NOTICEABLE = 1e-3
"""Digits by which a residual must be smaller to be called so."""


def d1_fused_kernel(study: Study) -> Finding:
    """The autograd kernel of the fused network against half and a quarter of Λ_on + Λ_off.

    Then one small step of each branch on its own loss, whose effect on F is divided by the step.
    """
    problem = study.problem
    room = max(1, JACOBIAN_NUMBERS // (len(problem.x) * (problem.dim + 1)))
    online, offline = narrowed(study.online, room), narrowed(study.offline, room)
    inputs = [problem.x[b] for b in problem.blocks]
    parts = [
        federated_kernel(jacobian(networks(problem, weights), inputs), problem.owner, shared)
        for weights, shared in ((online, {HIDDEN}), (offline, set[str]()))
    ]
    fused = study.fusion**2 * (parts[0] + parts[1])  # ∂F/∂θ is fusion · ∂F_branch/∂θ, and the branches share no θ
    total = study.kernel(online).Lambda + study.kernel(offline).Lambda
    half, quarter = distance(fused, total / 2), distance(fused, total / 4)
    precise = study.in_double()
    separate = _first_order(precise, "separate", precise.co2.Lambda)
    if half <= study.tolerance:
        verdict = HOLDS
    else:
        verdict = holds_under("each branch is trained on its own loss, at t = 0") if _falls(separate) else FAILS
    return Finding(
        verdict,
        lhs=relative(fused.norm().item(), (total / 2).norm().item()),
        rhs=1.0,
        margin=digits_to_spare(half, study.tolerance),
        unit="digits",
        words=f"the true kernel is {relative(fused.norm().item(), (total / 2).norm().item()):.3g} times Eq. 20's",
        evidence={"error_of_half": half, "error_of_quarter": quarter, "separate_step_error": separate},
    )


def _first_order(study: Study, reading: Reading, K: Tensor) -> dict[str, float]:
    """|ΔF/rate + K r| / |K r| of one real step, for two steps: under a first-order law it shrinks with the step."""
    n, errors = len(study.problem.y), {}
    for share in (1e-3, 1e-4):
        rate = share / (greatest(K) or 1.0)
        path = descend(study.problem, study.online, study.offline, reading, 1, n / 2 * rate)
        F = study.fusion * (path.online + path.offline)
        expected = K @ (F[0] - study.problem.y)
        errors[f"{share:g}"] = relative(((F[1] - F[0]) / rate + expected).norm().item(), expected.norm().item())
    return errors


def _falls(errors: dict[str, float]) -> bool:
    """Whether the error vanishes with the step: small, and about ten times smaller for a step ten times smaller."""
    large, small = errors.values()
    return small < 1e-2 and (small < 0.3 * large or small < 1e-5)


def d2_converges_faster(study: Study) -> Finding:
    """Fed-CO2's residual against FedBN's after the same number of real steps, in every reading."""
    found = study.descents
    fedbn, own = found["separate"].residual_norms("online"), found["separate, own step"].residual_norms("online")
    federated = found["federated"]
    pairs = {
        "joint": (found["joint"].residual_norms("fused"), fedbn),
        "joint, own step": (found["joint, own step"].residual_norms("fused"), own),
        "separate": (found["separate"].residual_norms("fused"), fedbn),
        "federated": (federated.residual_norms("fused"), federated.residual_norms("online")),
    }
    gains = {name: _gain(*_comparable(*pair, study.floor)) for name, pair in pairs.items()}
    readings = {
        "joint, own step": "each model takes its own largest stable step",
        "separate": "each branch descends its own loss",
        "federated": "each branch descends its own loss in federated rounds",
    }
    true_under = [words for name, words in readings.items() if gains[name] > NOTICEABLE]
    verdict = HOLDS if gains["joint"] > NOTICEABLE else holds_under(*true_under) if true_under else FAILS
    co2, bn = _comparable(*pairs["joint"], study.floor)
    return Finding(
        verdict,
        lhs=co2,
        rhs=bn,
        margin=gains["joint"],
        unit="digits",
        words="digits gained on FedBN after "
        f"{study.steps} steps: " + "; ".join(f"{name} {gain:+.2f}" for name, gain in gains.items()),
        evidence={
            "log10_gain": gains,
            "residual": {name: {"fedco2": a[-1].item(), "fedbn": b[-1].item()} for name, (a, b) in pairs.items()},
            "residual_predicted_by_the_kernel": {
                "joint": {"fedco2": _predicted(study, study.joint_kernel), "fedbn": _predicted(study, study.on.Lambda)}
            },
            "steps": study.steps,
        },
    )


def _predicted(study: Study, K: Tensor) -> float:
    """|F - y| after all steps if K stayed as it is at t = 0; both networks start from the same outputs."""
    start = study.descents["joint"].online[0] - study.problem.y
    return predicted_residuals(K, start, study.rate, study.steps)[-1].norm().item()


def _gain(fedco2: float, fedbn: float) -> float:
    """Digits by which Fed-CO2's residual is the smaller; a diverged one loses."""
    return math.log10(fedbn / fedco2) if fedco2 < math.inf else -math.inf


def _comparable(a: Tensor, b: Tensor, floor: float) -> tuple[float, float]:
    """Both residuals at the last step where neither has sunk into rounding; the last one of all if any diverged."""
    if not (a[-1] + b[-1]).isfinite():
        return (a[-1].nan_to_num(math.inf, math.inf).item(), b[-1].nan_to_num(math.inf, math.inf).item())
    alive = (torch.minimum(a, b) > floor * a[0]).nonzero()
    last = int(alive[-1]) if len(alive) else 0
    return a[last].item(), b[last].item()


def d3_federated_step(study: Study) -> Finding:
    """One real federated step against descent on the pooled loss, and against the pulled kernel."""
    study = study.in_double()
    problem = study.problem
    sizes = problem.y.new_tensor(problem.sizes)[problem.owner]
    shared, G = study.on.V / study.alpha**2, study.on.G
    kernels = {"pooled": (shared + G) / problem.clients, "pulled": shared / problem.clients + G}
    errors: dict[str, dict[str, float]] = {name: {} for name in (*kernels, "offline")}
    for share in (1e-3, 1e-4):
        eta = share * min(problem.sizes) / (2 * (greatest(pinch(shared, problem.owner) + G) or 1.0))
        path = descend(problem, study.online, study.offline, "federated", 1, eta)
        moved = dict.fromkeys(kernels, path.online) | {"offline": path.offline}
        for name, K in (kernels | {"offline": study.off.Lambda}).items():
            F = moved[name]
            expected = K @ (2 * (F[0] - problem.y) / sizes)
            gap = ((F[1] - F[0]) / eta + expected).norm().item()
            errors[name][f"{share:g}"] = relative(gap, expected.norm().item())
    if _falls(errors["pooled"]):
        verdict = HOLDS
    elif _falls(errors["pulled"]) and _falls(errors["offline"]):
        verdict = holds_under("the shared part is divided by N and the personal part is not")
    else:
        verdict = FAILS
    worst, pulled = errors["pooled"]["0.0001"], errors["pulled"]["0.0001"]
    return Finding(
        verdict,
        lhs=worst,
        rhs=1e-2,
        margin=digits_to_spare(worst, 1e-2),
        unit="digits",
        words=f"pooled descent is off by {100 * worst:.2g} %; V/N + G by {pulled:.0e}, falling with the step",
        evidence={"relative_error": errors},
    )


def residual_curves(descents: dict[str, Trajectory]) -> dict[str, list[float]]:
    """|F(t) - y| of every reading, for figures."""
    curves = {}
    for name, path in descents.items():
        wanted = ("fused",) if name.startswith("joint") else ("online", "offline", "fused")
        for branch in wanted:
            curves[f"{name}: {branch}"] = path.residual_norms(branch).tolist()  # type: ignore[arg-type]
    return curves
