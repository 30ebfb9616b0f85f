"""From a setting to a report: check every claim on every draw, and collect the numbers behind the figures."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from typing import Any

import torch

from theory.certify import certify_orderings
from theory.claims import CLAIMS, Claim, Finding
from theory.claims.base import FAILS, HOLDS, UNDECIDED, format_conditional_verdict, parse_conditions
from theory.claims.convergence import BRANCHES, compute_bound_curve, compute_mu
from theory.claims.dynamics import collect_residual_curves
from theory.config import TheoryConfig
from theory.kernels.closed_form import Weights
from theory.problem import Problem, draw_synthetic_problem
from theory.study import ProgressCallback, Study, compute_max_eigenvalue, compute_min_eigenvalue

Report = dict[str, Any]
FIGURE_DRAWS = 20
"""How many draws the figure of λ_min across draws shows."""


def verify_claims(
    setting: TheoryConfig,
    claims: Sequence[Claim],
    certify: bool = False,
    progress: ProgressCallback = lambda what, done, total: None,
) -> tuple[Report, Study]:
    """Check the claims on every draw; returns the report, and the study of the first draw for its matrices."""
    start = time.perf_counter()
    first = setting.build_study(0, progress)
    findings: dict[str, list[Finding]] = {claim.id: [] for claim in claims}
    for draw in range(setting.draws):
        study = first if draw == 0 else setting.build_study(draw, progress)
        for k, claim in enumerate(claims):
            progress(f"draw {draw + 1}: claim {claim.id}" if setting.draws > 1 else f"claim {claim.id}", k, len(claims))
            findings[claim.id].append(claim.check(study))
    data = setting.load_data()
    report: Report = {
        "setting": {
            **asdict(setting),
            "clients": first.problem.clients,
            "samples": first.problem.sizes,
            "dim": first.problem.dim,
            "inputs": "the user's own data" if data else "synthetic Gaussian clients",
            "assumptions_broken": describe_parallel_samples(first.problem, data.describe_sample if data else str)
            + (data.violated_assumptions if data else []),
            "versions": {"python": platform.python_version(), **{p: version(p) for p in ("torch", "numpy", "scipy")}},
        },
        "eigenvalues": collect_eigenvalues(first, {c.id for c in claims}),
        "claims": [_build_claim_row(claim, findings[claim.id]) for claim in claims],
        "curves": collect_curves(setting, first, findings, progress),
    }
    if certify:
        report["certificates"] = collect_certificates(first)
    report["summary"] = summarize_report(report, first.eigenvalue_tolerance)
    report["seconds"] = round(time.perf_counter() - start, 2)
    return report, first


def _build_claim_row(claim: Claim, found: list[Finding]) -> Report:
    """The verdict over all draws, with words, margin and evidence of the draw that decided it."""
    verdict, shown = _combine_draws(found)
    row = {"id": claim.id, "statement": claim.statement, "source": claim.source, "ordering": claim.ordering}
    row |= {k: getattr(found[shown], k) for k in ("margin", "unit", "words", "lhs", "rhs", "evidence")}
    row["verdict"] = verdict
    if len(found) > 1:
        margins = [f.margin for f in found]
        counts = {v: sum(f.verdict == v for f in found) for v in sorted({f.verdict for f in found})}
        row["draws"] = {
            "draws": len(found), "held": counts.get(HOLDS, 0), "verdicts": counts, "shown": shown + 1,
            "mean_margin": sum(margins) / len(margins), "worst_margin": min(margins),
        }  # fmt: skip
    return row


def _combine_draws(found: list[Finding]) -> tuple[str, int]:
    """The worst verdict and its draw. A condition must suffice in every draw; if none does, the claim fails."""
    rank = {FAILS: 0, UNDECIDED: 1, HOLDS: 3}  # any "holds under" ranks 2
    shown = min(range(len(found)), key=lambda k: (rank.get(found[k].verdict, 2), found[k].margin))
    verdict = found[shown].verdict
    if verdict in rank:
        return verdict, shown
    sets = [parse_conditions(f.verdict) for f in found if f.verdict != HOLDS]
    common = [one for one in sets[0] if all(one in each for each in sets)]
    return (format_conditional_verdict(*common) if common else FAILS), shown


def collect_eigenvalues(study: Study, ids: set[str]) -> Report:
    """Least and greatest eigenvalue of every kernel, and of the limits if a claim has computed them."""
    kernels = {"on": study.online_kernel, "off": study.offline_kernel, "": study.fused_kernel}
    named = {
        letter + ("_" + name if name else ""): getattr(k, letter)
        for letter in ("V", "G", "Lambda")
        for name, k in kernels.items()
    }
    if study.computed_limit_kernels:
        for name, k in zip(("on", "off", ""), study.computed_limit_kernels.values(), strict=True):
            named["_".join(filter(None, ("V", name, "inf")))] = k.V
        named["G_on_inf"] = study.computed_limit_kernels["online"].G
    table = {}
    for name, K in named.items():
        low, high = compute_min_eigenvalue(K), compute_max_eigenvalue(K)
        table[name] = {"min": low, "max": high, "condition": high / low if low > 0 else math.inf}
    return table


def describe_parallel_samples(problem: Problem, name: Callable[[int], str] = str) -> list[str]:
    """Describe the first few pairs of parallel samples."""
    pairs = problem.find_parallel_samples()[:5]
    return [f"samples {name(p)} and {name(q)} are parallel (cosine {cosine:+.15f})" for p, q, cosine in pairs]


def describe_parallel_effect(problem: Problem, pair: tuple[int, int, float], name: Callable[[int], str] = str) -> str:
    """Describe λ_min of V_on with both samples and without the second, measured at a moderate width."""
    p, q, cosine = pair
    keep = torch.arange(len(problem.x)) != q
    before = compute_min_eigenvalue(Study.at_init(problem, 2048, steps=1).online_kernel.V)
    owner = problem.owner[keep].unique(return_inverse=True)[1]
    present = problem.owner[keep].unique()
    without = Problem(problem.x[keep], problem.y[keep], owner, problem.S[present])
    after = compute_min_eigenvalue(Study.at_init(without, 2048, steps=1).online_kernel.V)
    return (
        f"samples {name(p)} and {name(q)} are parallel (cosine {cosine:+.12f}), which Assumption 4.1 forbids: "
        f"λ_min(V_on) is {before:.3g} with both and {after:.3g} without sample {name(q)}"
    )


def collect_curves(
    setting: TheoryConfig, study: Study, found: dict[str, list[Finding]], progress: ProgressCallback
) -> Report:
    """The numbers behind the figures."""
    shown: Report = {
        "spectra": {
            name: torch.linalg.eigvalsh(k.V.double()).flip(0).tolist()
            for name, k in (("V_on", study.online_kernel), ("V_off", study.offline_kernel), ("V", study.fused_kernel))
        },
        "draws": _collect_draws(setting, study, progress),
        "clients": _collect_client_counts(setting, study, progress),
    }
    if "descents" in vars(study):
        mu, paths = compute_mu(study), study.descents
        shown["residuals"] = collect_residual_curves(paths)
        squares = {b: paths["separate"].compute_residual_norms(b).double().square() for b in BRANCHES}  # type: ignore[arg-type]
        shown["bounds"] = {
            b: compute_bound_curve(mu[b], study.rate, study.alpha, squares[b]).clamp_min(0).sqrt().tolist()
            for b in BRANCHES
        }
    for name, claim in (("widths", "K4"), ("tracks", "C1"), ("gains", "D2")):
        if claim in found:
            shown[name] = found[claim][0].evidence
    return shown


def _collect_min_eigenvalues(study: Study) -> Report:
    """λ_min of the three kernels, and the part of it that may be rounding."""
    return {
        "V_on": compute_min_eigenvalue(study.online_kernel.V),
        "V_off": compute_min_eigenvalue(study.offline_kernel.V),
        "V": compute_min_eigenvalue(study.fused_kernel.V),
        "room": study.eigenvalue_tolerance,
    }


def _collect_draws(setting: TheoryConfig, study: Study, progress: ProgressCallback) -> list[Report]:
    """λ_min of the three kernels over draws, fewer if each is costly. With the user's data only the networks change."""
    count = max(setting.draws, FIGURE_DRAWS if len(study.problem.x) ** 2 * setting.width < 2e9 else 4)
    rows = []
    for draw in range(count):
        progress("λ_min across draws", draw, count)
        rows.append({"seed": setting.seed + draw, **_collect_min_eigenvalues(setting.build_study(draw))})
    return rows


def _collect_client_counts(setting: TheoryConfig, study: Study, progress: ProgressCallback) -> list[Report]:
    """λ_min for growing numbers of clients, each with its own data."""
    N = study.problem.clients
    largest = N if setting.data else max(N, 20)
    if len(study.problem.x) / N * largest > 1000:
        largest = N
    everyone = study.problem
    if largest > N:
        everyone = draw_synthetic_problem(
            largest, setting.samples, setting.dim,
            covariance=setting.covariance, heterogeneity=setting.heterogeneity, seed=setting.seed,
        ).to(study.problem.x.dtype, study.problem.x.device)  # fmt: skip
    counts = sorted({1, 2, 5, 10, 20, N, largest} & set(range(1, largest + 1)))
    rows = []
    for k, count in enumerate(counts):
        progress("effect of the number of clients", k, len(counts))
        selected = everyone.owner < count
        some = Problem(everyone.x[selected], everyone.y[selected], everyone.owner[selected], everyone.S[:count])
        weights: Weights = replace(study.online, gamma=study.online.gamma[:1].expand(count, -1))
        one = Study(some, weights, projection=setting.projection, chunk=setting.chunk)
        rows.append({"clients": count, **_collect_min_eigenvalues(one)})
    return rows


def collect_certificates(study: Study) -> Report:
    """Certify O2 and O3 for these matrices, as far as float64 suffices; a float32 study is recomputed in float64."""
    study = study.to_double()
    on, off = (V.double().cpu().numpy() for V in (study.online_kernel.V, study.offline_kernel.V))
    proofs = certify_orderings((on + on.T) / 2, (off + off.T) / 2)  # exactly symmetric
    return {
        name: {
            "verdict": proof.verdict,
            "margin": proof.margin,
            "left": [proof.left.low, proof.left.high],
            "right": [proof.right.low, proof.right.high],
        }
        for name, proof in proofs.items()
    }


def summarize_report(report: Report, tolerance: float) -> list[str]:
    """Summarise the report in two sentences; eigenvalues within ``tolerance`` of each other count as equal."""
    rows, table = {row["id"]: row for row in report["claims"]}, report["eigenvalues"]
    orders = [row for row in rows.values() if row["ordering"] and row["id"] in CLAIMS]
    failed = [row["id"] for row in orders if row["verdict"] == FAILS]
    on, mean = table["V_on"]["min"], table["V"]["min"]
    if mean - on > tolerance:
        gain = f"a factor {mean / on:.3g}" if on > tolerance else "from nothing"
        first = f"Adding an offline network raises λ_min from {on:.4g} (FedBN) to {mean:.4g} (Fed-CO2), {gain}"
    else:
        first = f"Adding an offline network does not raise λ_min: {on:.4g} (FedBN), {mean:.4g} (Fed-CO2)"
    if orders:
        first += f"; {', '.join(failed)} fail" if failed else f"; {', '.join(r['id'] for r in orders)} hold"
    d2 = rows.get("D2")
    if d2 is None:
        return [first + ".", "How that shows in training was not examined; add D2 to --claims to see it."]
    gains, at, steps = (d2["evidence"][key] for key in ("log10_gain", "compared_at_step", "steps"))
    literal = f"{abs(gains['joint']):.2f} digits {'ahead of' if gains['joint'] > 0 else 'behind'} FedBN"
    other = [
        f"{name} {value:+.2f}" + ("" if at[name] == steps else f" at step {at[name]}")
        for name, value in gains.items()
        if name != "joint"
    ]
    where = f", in draw {d2['draws']['shown']}," if "draws" in d2 else ""
    return [
        first + ".",
        f"Trained on the paper's own loss with one step size, Fed-CO2 is{where} {literal} after {at['joint']} steps; "
        f"in the other readings it is ahead (+) or behind (-) by: {'; '.join(other)} digits.",
    ]
