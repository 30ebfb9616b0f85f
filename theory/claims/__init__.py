"""Every claim of the paper, with the function that checks it."""

from __future__ import annotations

from collections.abc import Iterable

from theory.claims import convergence, deep, dynamics, kernels, limits, orderings
from theory.claims.base import Claim, Finding
from theory.errors import InputError
from theory.study import Study
from theory.text import suggest_name

_ALL = (
    Claim("K1", "Λ = V/α² + G, online and offline", "Eqs. 13, 16-18", kernels.check_k1_tangent_kernel),
    Claim(
        "K2",
        "V, G and Λ are positive semidefinite, and λ_min(Λ) ≥ max(λ_min(V)/α², λ_min(G))",
        "Section 4.2",
        kernels.check_k2_positive,
    ),
    Claim(
        "K3",
        "V^inf is strictly positive definite",
        "Section 4.2",
        limits.check_k3_limit_is_positive,
        uses_limit=True,
    ),
    Claim(
        "K4",
        "V(0) → V^inf with an error of order m^(-1/2)",
        "Definition 4.2, Theorem C.1 (implicit)",
        limits.check_k4_finite_width,
        uses_limit=True,
    ),
    Claim(
        "K5",
        "the printed projection I - vv'/|v|² is the derivative of the normalised unit",
        "Section 4.1, Eqs. 14-16",
        kernels.check_k5_projection,
    ),
    Claim(
        "K6",
        "Definition 4.2 as printed is the limit of V(0), and strictly positive definite",
        "Definition 4.2 (Eqs. 14, 15)",
        limits.check_k6_printed_limit,
        uses_limit=True,
    ),
    Claim(
        "K7",
        "for every α in (0, 1) convergence is dominated by V: λ_min(V)/α² ≥ λ_min(G)",
        "Section 4.2",
        kernels.check_k7_direction_dominates,
    ),
    Claim(
        "O1",
        "at t = 0, V_off is the client blocks of V_on",
        "Section 4.2, appendix C.2",
        orderings.check_o1_offline_is_block_diagonal,
        ordering=True,
        trivial_for_one_client=True,
    ),
    Claim(
        "O2",
        "λ_min(V_off) = min_i λ_min(V_i) ≥ λ_min(V_on)",
        "Section 4.2, appendix C.2",
        orderings.check_o2_offline_above_online,
        ordering=True,
        trivial_for_one_client=True,
    ),
    Claim(
        "O3",
        "λ_min((V_on+V_off)/2) ≥ (λ_min(V_on)+λ_min(V_off))/2 ≥ λ_min(V_on)",
        "Section 4.2, appendix C.2",
        orderings.check_o3_mean_above_online,
        ordering=True,
        trivial_for_one_client=True,
    ),
    Claim(
        "O4",
        "λ_max((V_on+V_off)/2) ≤ λ_max(V_on), so the condition number improves",
        "not in the paper",
        orderings.check_o4_mean_is_no_steeper,
        ordering=True,
        trivial_for_one_client=True,
    ),
    Claim(
        "O5",
        "λ_min(w V_on + (1-w) V_off) is concave in w, largest at w = 0, and never rises on [0, 1]",
        "not in the paper",
        orderings.check_o5_no_sharing_is_best,
        trivial_for_one_client=True,
    ),
    Claim("D1", "Λ = (Λ_on + Λ_off)/2 drives the fused network", "Eqs. 19, 20", dynamics.check_d1_fused_kernel),
    Claim(
        "D2",
        "Fed-CO2 converges faster than FedBN",
        "Theorem 4.3",
        dynamics.check_d2_converges_faster,
        uses_descents=True,
    ),
    Claim(
        "D3",
        "a federated step is gradient descent on the pooled loss",
        "Section 4.1 (implicit)",
        dynamics.check_d3_federated_step,
        trivial_for_one_client=True,
    ),
    Claim(
        "C1",
        "λ_min(Λ(t)) ≥ μ/(2α²) during training",
        "Theorem C.1, Corollary C.2",
        convergence.check_c1_stays_positive,
        uses_limit=True,
        uses_descents=True,
    ),
    Claim(
        "C2",
        "|F(t)-y|² ≤ (1 - ημ/(2α²))^t |F(0)-y|² for online, offline and fused",
        "Theorem C.1, Corollary C.2",
        convergence.check_c2_stays_under_bound,
        uses_limit=True,
        uses_descents=True,
    ),
    Claim(
        "C3",
        "a width of N⁴M⁴ log(NM/δ)/μ⁴ is enough for C1 and C2",
        "Theorem C.1",
        convergence.check_c3_width_of_the_theorem,
        uses_limit=True,
    ),
    Claim(
        "B1",
        "λ_min(G_FedBN) ≥ λ_min(G_FedAvg)",
        "FedBN (Li et al., 2021), Section 4",
        orderings.check_b1_fedbn_above_fedavg,
        trivial_for_one_client=True,
    ),
    Claim(
        "X1",
        "O1-O3 for deep networks with all parameters shared",
        "beyond the paper",
        deep.check_x1_deep_orderings,
        ordering=True,
        trivial_for_one_client=True,
    ),
)
CLAIMS: dict[str, Claim] = {claim.id: claim for claim in _ALL}


def select_claims(ids: str | Iterable[str] | None) -> list[Claim]:
    """Select the named claims, e.g. "O1,O2" or ["O1", "O2"]; all of them for None."""
    if ids is None:
        return list(CLAIMS.values())
    names = ids.split(",") if isinstance(ids, str) else [str(name) for name in ids]
    wanted = [name.strip().upper() for name in names if name.strip()]
    for name in wanted:
        if name not in CLAIMS:
            raise InputError(f"unknown claim {name!r}; {suggest_name(name, CLAIMS)}")
    if not wanted:
        raise InputError(f"no claim named; choose among {', '.join(CLAIMS)}")
    return [claim for name, claim in CLAIMS.items() if name in wanted]


def check_claims(study: Study, claims: list[Claim] | None = None) -> dict[str, Finding]:
    """Check each claim on this study."""
    return {claim.id: claim.check(study) for claim in (claims or CLAIMS.values())}


__all__ = ["CLAIMS", "Claim", "Finding", "check_claims", "select_claims"]
