"""O1-O5 and B1: which model has the larger least eigenvalue."""

from __future__ import annotations

from itertools import pairwise

from theory.claims.base import FAILS, HOLDS, Finding, compute_margin_digits, compute_relative_error
from theory.kernels.federated import keep_client_blocks
from theory.kernels.mixture import trace_mixture
from theory.study import Study, compute_max_eigenvalue, compute_min_eigenvalue


def check_o1_offline_is_block_diagonal(study: Study) -> Finding:
    """Compare V_off with the client blocks of V_on."""
    blocks = keep_client_blocks(study.online_kernel.V, study.problem.owner)
    difference = (study.offline_kernel.V - blocks).abs().max().item()
    error = compute_relative_error(difference, study.alpha**2 * study.online_kernel.Lambda.abs().max().item())
    return Finding(
        HOLDS if error <= study.tolerance else FAILS,
        lhs=difference,
        rhs=0.0,
        margin=compute_margin_digits(error, study.tolerance),
        unit="digits",
        words=f"the largest difference is {difference:.1e}",
        evidence={"largest_difference": difference, "relative": error},
    )


def check_o2_offline_above_online(study: Study) -> Finding:
    """Compare λ_min(V_off), which is the least of the clients' own, with λ_min(V_on)."""
    off, on = compute_min_eigenvalue(study.offline_kernel.V), compute_min_eigenvalue(study.online_kernel.V)
    own = [compute_min_eigenvalue(study.offline_kernel.V[rows, rows]) for rows in study.problem.blocks]
    difference = abs(off - min(own))
    margin = off - on if difference <= study.eigenvalue_tolerance else -difference
    if abs(off - on) <= study.eigenvalue_tolerance:
        words = f"λ_min is {on:.4g} online and offline"
    else:
        words = f"λ_min {'rises' if off > on else 'falls'} from {on:.4g} (online) to {off:.4g} (offline)"
    return Finding(
        HOLDS if margin >= -study.eigenvalue_tolerance else FAILS,
        lhs=off,
        rhs=on,
        margin=margin,
        unit="absolute",
        words=words,
        evidence={"V_off": off, "V_on": on, "clients": own, "ratio": compute_relative_error(off, on)},
    )


def check_o3_mean_above_online(study: Study) -> Finding:
    """Check both inequalities of the chain, and whether the second is strict."""
    mean, off, on = (
        compute_min_eigenvalue(study.fused_kernel.V),
        compute_min_eigenvalue(study.offline_kernel.V),
        compute_min_eigenvalue(study.online_kernel.V),
    )
    middle, tolerance = (off + on) / 2, study.eigenvalue_tolerance
    margin = min(mean - middle, middle - on)
    return Finding(
        HOLDS if margin >= -tolerance else FAILS,
        lhs=mean,
        rhs=on,
        margin=margin,
        unit="absolute",
        words=f"λ_min of the mean is {mean:.4g}, the mean of λ_min {middle:.4g}, online {on:.4g}",
        evidence={"V": mean, "mean_of_both": middle, "V_on": on, "strict": middle - on > tolerance, "gain": mean - on},
    )


def check_o4_mean_is_no_steeper(study: Study) -> Finding:
    """Compare λ_max of the mean with V_on's, and the condition numbers where rounding leaves them defined."""
    kernels, tolerance = {"V": study.fused_kernel.V, "V_on": study.online_kernel.V}, study.eigenvalue_tolerance
    low, high = (
        {name: end(V) for name, V in kernels.items()} for end in (compute_min_eigenvalue, compute_max_eigenvalue)
    )
    defined = min(low.values()) > tolerance
    condition = {name: high[name] / low[name] if defined else None for name in kernels}
    margin, words = high["V_on"] - high["V"], _describe_change("λ_max", high["V_on"], high["V"], tolerance)
    if defined:
        on, mean = high["V_on"] / low["V_on"], high["V"] / low["V"]
        uncertainty = sum(high[name] / low[name] * tolerance * (1 / low[name] + 1 / high[name]) for name in kernels)
        if mean - on > uncertainty:
            margin = min(margin, on - mean)
        words = _describe_change("the condition number", on, mean, uncertainty)
    else:
        words += "; V_on is singular to rounding, so there is no condition number to compare"
    return Finding(
        HOLDS if margin >= -tolerance else FAILS,
        lhs=high["V"],
        rhs=high["V_on"],
        margin=margin,
        unit="absolute",
        words=words,
        evidence={"lambda_max": high, "condition": condition},
    )


def _describe_change(what: str, before: float, after: float, tolerance: float) -> str:
    """Describe a change; a difference within the tolerance counts as none."""
    if abs(after - before) <= tolerance:
        return f"{what} stays at {before:.4g}"
    return f"{what} {'rises' if after > before else 'falls'} from {before:.4g} to {after:.4g}"


def check_o5_no_sharing_is_best(study: Study) -> Finding:
    """Trace λ_min(w V_on + (1-w) V_off) over w: it must be concave and never rise; also in the federated reading.

    Averaging divides the shared part by N (claim D3). There w also changes how large the steps are: another question.
    """
    curve = trace_mixture(study.online_kernel.V, study.problem.owner, study.offline_kernel.V)
    f, tolerance = curve.lambda_min, study.eigenvalue_tolerance
    margin = min(curve.smallest_fall, curve.smallest_bulge)
    holds = margin >= -tolerance
    if f[0] - f[-1] > tolerance:
        words = f"λ_min falls from {f[0]:.4g} (w = 0, SingleSet) to {f[-1]:.4g} (w = 1, FedBN)"
    else:
        words = f"λ_min is {f[0]:.4g} at w = 0 and {f[-1]:.4g} at w = 1"
    return Finding(
        HOLDS if holds else FAILS,
        lhs=f[0],
        rhs=max(f[1:]),
        margin=margin,
        unit="absolute",
        words=words if holds else f"{words}; it is largest at w = {curve.best_w:g}",
        evidence={
            "best_w": curve.best_w,
            "smallest_fall": curve.smallest_fall,
            "smallest_height_above_chord": curve.smallest_bulge,
            "federated_reading": {"w = 0": curve.federated_lambda_min[0], "w = 1": curve.federated_lambda_min[-1]},
            "curve": {"w": curve.w, "lambda_min": f, "lambda_min_federated": curve.federated_lambda_min},
        },
    )


def check_b1_fedbn_above_fedavg(study: Study) -> Finding:
    """Compare λ_min(G) of FedBN and FedAvg (the claim); also report λ_min(Λ) of all four methods (not a claim).

    G_FedBN is the client blocks of G_FedAvg, so the claim always holds. Λ is V/α² + G, and dropping the coupling in one
    summand alone may lower λ_min of the sum: it usually rises from FedAvg to FedBN, but nothing guarantees it. From
    FedBN to Fed-CO2 and on to SingleSet it never falls.
    """
    bn, avg = compute_min_eigenvalue(study.online_kernel.G), compute_min_eigenvalue(study.fedavg_kernel.G)
    ladder = {
        "FedAvg": compute_min_eigenvalue(study.fedavg_kernel.Lambda),
        "FedBN": compute_min_eigenvalue(study.online_kernel.Lambda),
        "Fed-CO2": compute_min_eigenvalue(study.fused_kernel.Lambda),
        "SingleSet": compute_min_eigenvalue(study.offline_kernel.Lambda),
    }
    tolerance = study.tolerance * compute_max_eigenvalue(study.fedavg_kernel.Lambda)
    climbs = all(b >= a - tolerance for a, b in pairwise(ladder.values()))
    rungs = ", ".join(f"{name} {value:.4g}" for name, value in ladder.items())
    return Finding(
        HOLDS if bn - avg >= -study.tolerance * compute_max_eigenvalue(study.fedavg_kernel.G) else FAILS,
        lhs=bn,
        rhs=avg,
        margin=bn - avg,
        unit="absolute",
        words=f"λ_min(Λ) {'climbs' if climbs else 'does not climb'}: {rungs}",
        evidence={"G_FedBN": bn, "G_FedAvg": avg, "ladder": ladder, "ladder_climbs": climbs},
    )
