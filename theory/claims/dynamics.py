"""D1-D3: the kernel that really drives the fused network, and how fast it converges."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from theory.claims.base import (
    FAILS,
    HOLDS,
    UNDECIDED,
    Finding,
    compute_margin_digits,
    compute_relative_error,
    format_conditional_verdict,
)
from theory.claims.kernels import MAX_JACOBIAN_ENTRIES, build_networks, compute_relative_distance
from theory.kernels.autograd import compute_jacobian
from theory.kernels.federated import compute_federated_kernel, keep_client_blocks
from theory.network import HIDDEN_KEY
from theory.study import Study, compute_max_eigenvalue, truncate_width
from theory.training.descent import Branch, Trajectory, descend
from theory.training.residuals import predict_residuals

MIN_GAIN_DIGITS = 1e-3
"""Digits by which a residual must be smaller to count as smaller."""
STEP_FRACTIONS = (1e-3, 1e-4)
"""Small steps, as shares of 1/λ_max; the second is a tenth of the first."""
MAX_TOTAL_ERROR, MAX_PERSONAL_ERROR = 1e-4, 0.1
"""Largest error of a first-order prediction, relative to the whole and to the personal part.

A personal part that is wrongly divided by N is off by at least one half.
"""
FIRST_ORDER_RESOLUTION = 1e-8
"""How accurately two small steps can test a first-order prediction, relative to the whole: curvature and rounding."""


class FusedNetwork(nn.Module):
    """F = fusion · (F_on + F_off) as one module, for autograd to differentiate."""

    def __init__(self, online: nn.Module, offline: nn.Module, fusion: float) -> None:
        super().__init__()
        self.online, self.offline, self.fusion = online, offline, fusion

    def forward(self, x: Tensor) -> Tensor:
        """One row of outputs for each row of x."""
        outputs: Tensor = self.fusion * (self.online(x) + self.offline(x))
        return outputs


def check_d1_fused_kernel(study: Study) -> Finding:
    """Compare the autograd kernel of the fused network with half and a quarter of Λ_on + Λ_off.

    Also take one small step of each branch on its own loss, and compare its effect on F, divided by the step size.
    """
    problem = study.problem
    max_width = max(1, MAX_JACOBIAN_ENTRIES // (2 * len(problem.x) * (problem.dim + 1)))  # two networks at a time
    online, offline = truncate_width(study.online, max_width), truncate_width(study.offline, max_width)
    pairs = zip(build_networks(problem, online), build_networks(problem, offline), strict=True)
    rows = compute_jacobian(
        [FusedNetwork(on, off, study.fusion).eval() for on, off in pairs], [problem.x[b] for b in problem.blocks]
    )
    fused = compute_federated_kernel(rows, problem.owner, {f"online.{HIDDEN_KEY}"})
    total = study.compute_kernel(online).Lambda + study.compute_kernel(offline).Lambda
    half, quarter = compute_relative_distance(fused, total / 2), compute_relative_distance(fused, total / 4)
    factor = compute_relative_error(fused.norm().item(), (total / 2).norm().item())
    precise = study.to_double()
    separate = _measure_separate_step(precise)
    if half <= study.tolerance:
        verdict = HOLDS
    else:
        verdict = (
            format_conditional_verdict("each branch is trained on its own loss, at t = 0")
            if _is_within_tolerance(separate)
            else FAILS
        )
    return Finding(
        verdict,
        lhs=factor,
        rhs=1.0,
        margin=compute_margin_digits(half, study.tolerance),
        unit="digits",
        words=f"the true kernel is {factor:.3g} times Eq. 20's",
        evidence={"error_of_half": half, "error_of_quarter": quarter, "separate_step_error": separate},
    )


def _measure_separate_step(study: Study) -> dict[str, float]:
    """How far one step of each branch on its own loss is from the prediction of Eq. 20's kernel."""
    K, n = study.fused_kernel.Lambda, len(study.problem.y)
    moves = []
    for share in STEP_FRACTIONS:
        rate = share / (compute_max_eigenvalue(K) or 1.0)
        path = descend(study.problem, study.online, study.offline, "separate", 1, n / 2 * rate)
        F = study.fusion * (path.online + path.offline)
        moves.append((F[1] - F[0]) / rate)
    residual = F[0] - study.problem.y
    return _measure_first_order_errors(moves, K @ residual, study.fused_kernel.G @ residual)


def _measure_first_order_errors(moves: list[Tensor], expected: Tensor, part: Tensor) -> dict[str, float]:
    """|ΔF/step + expected| / |expected| for both steps and as the step vanishes; the last relative to |part| too.

    The error that is linear in the step cancels in 10 times the small step minus the large one. ``part`` is the
    contribution of the personal γ: for small α it is so small that an error in it would not show in the whole.
    """
    large, small = moves
    gaps = [(move + expected).norm().item() for move in (large, small, (10 * small - large) / 9)]
    names = (*(f"{share:g}" for share in STEP_FRACTIONS), "limit")
    whole = {name: compute_relative_error(gap, expected.norm().item()) for name, gap in zip(names, gaps, strict=True)}
    return whole | {"limit_in_personal_part": compute_relative_error(gaps[-1], part.norm().item())}


def _find_worst_error(errors: dict[str, float]) -> tuple[float, float]:
    """The error and its allowance, relative to the whole or to the personal part, whichever is worse.

    A gate that opens on the way spoils the limit, and curvature the small step; of the whole, the better one counts.
    """
    _, small, limit, part = errors.values()
    return max((min(small, limit), MAX_TOTAL_ERROR), (part, MAX_PERSONAL_ERROR), key=lambda pair: pair[0] / pair[1])


def _is_within_tolerance(errors: dict[str, float]) -> bool:
    error, allowed = _find_worst_error(errors)
    return error <= allowed


def check_d2_converges_faster(study: Study) -> Finding:
    """Compare Fed-CO2's residual with FedBN's after the same number of real steps, in every reading."""
    found = study.descents
    fedbn, own = (
        found["separate"].compute_residual_norms("online"),
        found["separate, own step"].compute_residual_norms("online"),
    )
    federated = found["federated"]
    pairs = {
        "joint": (found["joint"].compute_residual_norms("fused"), fedbn),
        "joint, own step": (found["joint, own step"].compute_residual_norms("fused"), own),
        "separate": (found["separate"].compute_residual_norms("fused"), fedbn),
        "federated": (federated.compute_residual_norms("fused"), federated.compute_residual_norms("online")),
    }
    at = {name: _find_last_comparable_step(*pair, study.residual_floor) for name, pair in pairs.items()}
    ends = {name: (_get_residual_at(a, at[name]), _get_residual_at(b, at[name])) for name, (a, b) in pairs.items()}
    gains = {name: _compute_gain_digits(*end) for name, end in ends.items()}
    readings = {
        "joint, own step": "each model takes its own largest stable step",
        "separate": "each branch descends its own loss",
        "federated": "each branch descends its own loss in federated rounds",
    }
    conditions = [words for name, words in readings.items() if gains[name] > MIN_GAIN_DIGITS]
    verdict = (
        HOLDS if gains["joint"] > MIN_GAIN_DIGITS else format_conditional_verdict(*conditions) if conditions else FAILS
    )
    descriptions = [f"{name} {gain:+.2f}{_format_step_note(at[name], len(fedbn) - 1)}" for name, gain in gains.items()]
    co2, bn = ends["joint"]
    return Finding(
        verdict,
        lhs=co2,
        rhs=bn,
        margin=gains["joint"],
        unit="digits",
        words=f"digits gained on FedBN after {len(fedbn) - 1} steps: {'; '.join(descriptions)}",
        evidence={
            "log10_gain": gains,
            "compared_at_step": at,
            "residual": {name: {"fedco2": a[-1].item(), "fedbn": b[-1].item()} for name, (a, b) in pairs.items()},
            "residual_predicted_by_the_kernel": {
                "joint": {
                    "fedco2": _predict_final_residual(study, study.joint_kernel),
                    "fedbn": _predict_final_residual(study, study.online_kernel.Lambda),
                }
            },
            "steps": study.steps,
        },
    )


def _predict_final_residual(study: Study, K: Tensor) -> float:
    """|F - y| after all steps if K stayed constant; both networks start from the same outputs."""
    start = study.descents["joint"].online[0] - study.problem.y
    return predict_residuals(K, start, study.rate, study.steps)[-1].norm().item()


def _compute_gain_digits(fedco2: float, fedbn: float) -> float:
    """Digits by which Fed-CO2's residual is smaller; -inf if it diverged."""
    return math.log10(fedbn / fedco2) if fedco2 < math.inf else -math.inf


def _find_last_comparable_step(a: Tensor, b: Tensor, floor: float) -> int:
    """The last step at which both residuals are above rounding; the very last one if any diverged."""
    if not (a[-1] + b[-1]).isfinite():
        return len(a) - 1
    alive = (torch.minimum(a, b) > floor * a[0]).nonzero()
    return int(alive[-1]) if len(alive) else 0


def _get_residual_at(residuals: Tensor, step: int) -> float:
    return residuals[step].nan_to_num(math.inf, math.inf).item()


def _format_step_note(step: int, last: int) -> str:
    """Empty where the residuals were compared at the last step, which is the normal case."""
    return "" if step == last else f" (at step {step}, before rounding)"


def check_d3_federated_step(study: Study) -> Finding:
    """Compare one real federated step with descent on the pooled loss, and with the kernel V/N + G ("pulled").

    The two differ only by (1 - 1/N) G, so the error is measured relative to G's own contribution.
    """
    study = study.to_double()
    problem = study.problem
    sizes = problem.y.new_tensor(problem.sizes)[problem.owner]
    shared, G = study.online_kernel.V / study.alpha**2, study.online_kernel.G
    moves: dict[str, list[Tensor]] = {"online": [], "offline": []}
    for share in STEP_FRACTIONS:
        eta = (
            share
            * min(problem.sizes)
            / (2 * (compute_max_eigenvalue(keep_client_blocks(shared, problem.owner) + G) or 1.0))
        )
        path = descend(problem, study.online, study.offline, "federated", 1, eta)
        for branch, F in (("online", path.online), ("offline", path.offline)):
            moves[branch].append((F[1] - F[0]) / eta)
    on, off = (2 * (F[0] - problem.y) / sizes for F in (path.online, path.offline))
    errors = {
        "pooled": _measure_first_order_errors(moves["online"], (shared + G) @ on / problem.clients, G @ on),
        "pulled": _measure_first_order_errors(moves["online"], (shared / problem.clients + G) @ on, G @ on),
        "offline": _measure_first_order_errors(
            moves["offline"], study.offline_kernel.Lambda @ off, study.offline_kernel.G @ off
        ),
    }
    pooled, others = errors["pooled"], (errors["pulled"], errors["offline"])
    error, allowed = _find_worst_error(pooled)
    if error <= allowed:
        verdict = HOLDS
    elif all(map(_is_within_tolerance, others)):
        verdict = format_conditional_verdict("the shared part is divided by N and the personal part is not")
    else:  # undecided if α is so small that a step cannot resolve the personal part
        verdict = UNDECIDED if all(each["limit"] <= FIRST_ORDER_RESOLUTION for each in others) else FAILS
    return Finding(
        verdict,
        lhs=error,
        rhs=allowed,
        margin=compute_margin_digits(error, allowed),
        unit="digits",
        words=f"as the step vanishes pooled descent is off by {100 * pooled['limit']:.3g} %, "
        f"or {100 * pooled['limit_in_personal_part']:.3g} % of the personal part; V/N + G by {others[0]['limit']:.0e}",
        evidence={"relative_error": errors},
    )


def collect_residual_curves(descents: dict[str, Trajectory]) -> dict[str, list[float]]:
    """|F(t) - y| of every reading, for figures."""
    curves = {}
    for name, path in descents.items():
        wanted: tuple[Branch, ...] = ("fused",) if name.startswith("joint") else ("online", "offline", "fused")
        for branch in wanted:
            curves[f"{name}: {branch}"] = path.compute_residual_norms(branch).tolist()
    return curves
