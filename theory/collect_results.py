"""From a setting to results: check every claim on every draw, and collect what the renderers show."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from theory.assumptions import describe_parallel_samples
from theory.certify import Ordering, certify_orderings
from theory.claims import Claim, Finding
from theory.claims.base import FAILS, HOLDS, UNDECIDED, format_conditional_verdict, parse_conditions
from theory.config import TheoryConfig
from theory.errors import InputError
from theory.figure_data import collect_curves, collect_mixture
from theory.formula_certificates import FormulaCertificates, certify_formula
from theory.results import ClaimFinding, DrawStatistics, EigenvalueRange, VerificationResults
from theory.study import ProgressCallback, Study, compute_max_eigenvalue, compute_min_eigenvalue
from theory.text import format_count

ONE_CLIENT_WORDS = "trivial with one client"
ONE_CLIENT_NOTE = (
    "there is only one client, so online and offline are the same network and {claims} {hold} trivially; "
    "give two or more clients to test the theory"
)


def collect_results(
    setting: TheoryConfig,
    claims: Sequence[Claim],
    *,
    certify: bool = False,
    progress: ProgressCallback = lambda what, done, total: None,
) -> VerificationResults:
    """Check the claims on every draw; eigenvalues, certificates, curves and matrices are those of the first."""
    start = time.perf_counter()
    first = setting.build_study(0, progress)
    found: dict[str, list[Finding]] = {claim.id: [] for claim in claims}
    for draw in range(setting.draws):
        study = first if draw == 0 else setting.build_study(draw, progress)
        for k, claim in enumerate(claims):
            progress(f"draw {draw + 1}: claim {claim.id}" if setting.draws > 1 else f"claim {claim.id}", k, len(claims))
            found[claim.id].append(claim.check(study))
    data, alone = setting.load_data(), first.problem.clients == 1
    findings = [combine_draws(claim, found[claim.id], alone) for claim in claims]
    trained, exact = any(claim.uses_descents for claim in claims), setting.projection == "exact"
    limits = exact and any(claim.uses_limit for claim in claims)  # of the printed projection none is known
    eigenvalues = collect_eigenvalues(first, limits)
    proofs, formula_note = certify_study_formula(first) if certify else (None, None)
    curves = collect_curves(setting, first, {name: each[0].evidence for name, each in found.items()}, trained, progress)
    return VerificationResults(
        setting,
        sizes=first.problem.sizes,
        dim=first.problem.dim,
        findings=findings,
        eigenvalues=eigenvalues,
        curves=curves,
        certificates=certify_study(first) if certify else None,
        formula_certificates=proofs,
        mixture=collect_mixture(first, data.client_names if data else None) if "O5" in found else None,
        summary=summarize(findings, eigenvalues, first.eigenvalue_tolerance),
        versions=collect_versions(),
        violated_assumptions=data.violated_assumptions if data else [],
        parallel_samples=describe_parallel_samples(first.problem, data.describe_sample if data else str),
        notes=[
            *([data.centring] if data and data.centring else []),
            *([formula_note] if formula_note else []),
            *(describe_one_client(claims, findings) if alone else []),
        ],
        matrices=collect_matrices(first, limits or (exact and trained)),
        seconds=round(time.perf_counter() - start, 2),
    )


def combine_draws(claim: Claim, found: Sequence[Finding], one_client: bool = False) -> ClaimFinding:
    """The verdict over all draws, with words, margin and evidence of the draw that decided it."""
    verdict, shown = _choose_verdict(found)
    decisive, statistics = found[shown], None
    if len(found) > 1:
        margins = [f.margin for f in found]
        counts = {v: sum(f.verdict == v for f in found) for v in sorted({f.verdict for f in found})}
        statistics = DrawStatistics(
            len(found), counts.get(HOLDS, 0), counts, shown + 1, sum(margins) / len(margins), min(margins)
        )
    trivial = one_client and claim.trivial_for_one_client and verdict == HOLDS
    return ClaimFinding(
        claim.id,
        claim.statement,
        claim.source,
        claim.ordering,
        verdict,
        decisive.margin,
        decisive.unit,
        f"{decisive.words}; {ONE_CLIENT_WORDS}" if trivial else decisive.words,
        decisive.lhs,
        decisive.rhs,
        decisive.evidence,
        statistics,
    )


def _choose_verdict(found: Sequence[Finding]) -> tuple[str, int]:
    """The worst verdict and its draw. A condition must suffice in every draw; if none does, the claim fails."""
    rank = {FAILS: 0, UNDECIDED: 1, HOLDS: 3}  # any "holds under" ranks 2
    shown = min(range(len(found)), key=lambda k: (rank.get(found[k].verdict, 2), found[k].margin))
    verdict = found[shown].verdict
    if verdict in rank:
        return verdict, shown
    sets = [parse_conditions(f.verdict) for f in found if f.verdict != HOLDS]
    common = [one for one in sets[0] if all(one in each for each in sets)]
    return (format_conditional_verdict(*common) if common else FAILS), shown


def describe_one_client(claims: Sequence[Claim], findings: Sequence[ClaimFinding]) -> list[str]:
    """Say which verdicts mean nothing because there is only one client."""
    trivial = [f.id for claim, f in zip(claims, findings, strict=True) if claim.trivial_for_one_client and f.holds]
    hold = "holds" if len(trivial) == 1 else "hold"
    return [ONE_CLIENT_NOTE.format(claims=", ".join(trivial), hold=hold)] if trivial else []


def collect_eigenvalues(study: Study, limits: bool = False) -> dict[str, EigenvalueRange]:
    """Least and greatest eigenvalue of every kernel, and of the infinite-width limits if asked for."""
    kernels = {"on": study.online_kernel, "off": study.offline_kernel, "": study.fused_kernel}
    named = {
        letter + ("_" + name if name else ""): getattr(k, letter)
        for letter in ("V", "G", "Lambda")
        for name, k in kernels.items()
    }
    if limits:
        for name, k in zip(("on", "off", ""), study.limit_kernels.values(), strict=True):
            named["_".join(filter(None, ("V", name, "inf")))] = k.V
        named["G_on_inf"] = study.limit_kernels["online"].G
    table = {}
    for name, K in named.items():
        low, high = compute_min_eigenvalue(K), compute_max_eigenvalue(K)
        table[name] = EigenvalueRange(low, high, high / low if low > 0 else math.inf)
    return table


def collect_matrices(study: Study, limits: bool = False) -> dict[str, NDArray[Any]]:
    """Data, weights and kernels as float64 arrays, for independent checks; the limits if asked for."""
    tensors = {
        "X": study.problem.x,
        "y": study.problem.y,
        "S": study.problem.S,
        "v": study.online.v,
        "c": study.online.c,
        "gamma": study.online.gamma.T,
        "V_on": study.online_kernel.V,
        "V_off": study.offline_kernel.V,
        "V": study.fused_kernel.V,
        "G_on": study.online_kernel.G,
        "G_off": study.offline_kernel.G,
    }
    if limits:
        limit = study.limit_kernels["online"]
        tensors |= {"V_on_inf": limit.V, "G_on_inf": limit.G}
    arrays = {name: tensor.detach().double().cpu().numpy() for name, tensor in tensors.items()}
    return arrays | {"owner": study.problem.owner.cpu().numpy(), "alpha": np.asarray(study.alpha)}


def certify_study(study: Study) -> dict[str, Ordering]:
    """Certify O2 and O3 for these matrices, as far as float64 suffices; a float32 study is recomputed in float64."""
    study = study.to_double()
    on, off = (V.double().cpu().numpy() for V in (study.online_kernel.V, study.offline_kernel.V))
    return certify_orderings((on + on.T) / 2, (off + off.T) / 2)  # exactly symmetric


def certify_study_formula(study: Study) -> tuple[FormulaCertificates | None, str | None]:
    """Certify O2, O3 and O5 for the matrices of the formula; where float64 cannot, say why."""
    study = study.to_double()
    try:
        return certify_formula(study.problem, study.online, study.offline, study.projection), None
    except InputError as error:
        return None, f"nothing is proved about the formula itself, only about the matrices as computed: {error}"


def collect_versions() -> dict[str, str]:
    """The versions of fedco2, Python and the libraries that compute."""
    try:
        own = version("fedco2")
    except PackageNotFoundError:
        own = "not installed"
    return {"fedco2": own, "python": platform.python_version(), **{p: version(p) for p in ("torch", "numpy", "scipy")}}


def summarize(findings: Sequence[ClaimFinding], eigenvalues: dict[str, EigenvalueRange], tolerance: float) -> list[str]:
    """Summarise the findings in two sentences; eigenvalues within ``tolerance`` of each other count as equal."""
    on, mean = eigenvalues["V_on"].min, eigenvalues["V"].min
    if mean - on > tolerance:
        gain = f"a factor {mean / on:.3g}" if on > tolerance else "from nothing"
        first = f"Adding an offline network raises λ_min from {on:.4g} (FedBN) to {mean:.4g} (Fed-CO2), {gain}"
    else:
        first = f"Adding an offline network does not raise λ_min: {on:.4g} (FedBN), {mean:.4g} (Fed-CO2)"
    return [f"{first}{_summarize_orderings(findings)}.", _summarize_training(findings)]


def _summarize_orderings(findings: Sequence[ClaimFinding]) -> str:
    orders = [f for f in findings if f.ordering]
    failed = [f for f in orders if f.verdict == FAILS]
    named = failed or orders
    if not named:
        return ""
    verb = "fail" if failed else "hold"
    return f"; {', '.join(f.id for f in named)} {verb}{'s' if len(named) == 1 else ''}"


def _summarize_training(findings: Sequence[ClaimFinding]) -> str:
    d2 = next((f for f in findings if f.id == "D2"), None)
    if d2 is None:
        return "How that shows in training was not examined; check claim D2 to see it."
    gains, at, steps = (d2.evidence[key] for key in ("log10_gain", "compared_at_step", "steps"))
    literal = f"{abs(gains['joint']):.2f} digits {'ahead of' if gains['joint'] > 0 else 'behind'} FedBN"
    other = [
        f"{name} {value:+.2f}" + ("" if at[name] == steps else f" at step {at[name]}")
        for name, value in gains.items()
        if name != "joint"
    ]
    where = f", in draw {d2.draws.shown}," if d2.draws else ""
    return (
        f"Trained on the paper's own loss with one step size, Fed-CO2 is{where} {literal} after "
        f"{format_count(at['joint'], 'step')}; in the other readings it is ahead (+) or behind (-) by: "
        f"{'; '.join(other)} digits."
    )
