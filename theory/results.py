"""What a verification found, as typed values: everything that the renderers read, and its JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from theory.certify import Ordering
from theory.claims.base import HOLDS, parse_conditions
from theory.config import TheoryConfig
from theory.errors import InputError
from theory.formula_certificates import FormulaCertificates
from theory.json_types import (
    ClaimEntry,
    DrawsEntry,
    EigenvalueEntry,
    FormulaProofsEntry,
    ProofEntry,
    TheoryReport,
)
from theory.kernels.mixture import MixtureCurve
from theory.leave_one_out import ClientSharing, SharingChoice
from theory.text import suggest_name
from theory.user_data import UserData, format_offsets

VerdictKind = Literal["holds", "under", "fails", "undecided"]


@dataclass(frozen=True)
class DrawStatistics:
    """How a claim fared over several draws."""

    draws: int
    held: int
    verdicts: dict[str, int]
    """How often each verdict was given."""
    shown: int
    """The draw, counted from 1, whose words, margin and evidence are shown: the one that decided."""
    mean_margin: float
    worst_margin: float

    def to_dict(self) -> DrawsEntry:
        """The entry "draws" of a claim in report.json."""
        return {
            "draws": self.draws,
            "held": self.held,
            "verdicts": self.verdicts,
            "shown": self.shown,
            "mean_margin": self.mean_margin,
            "worst_margin": self.worst_margin,
        }


@dataclass(frozen=True)
class ClaimFinding:
    """A claim, and what was found over all draws."""

    id: str
    statement: str
    source: str
    ordering: bool
    """Whether it is one of the orderings on which the theory rests."""
    verdict: str
    """"holds", "fails", "undecided" or "holds under: ..."."""
    margin: float
    """How far the claim as printed is from failing; above 0 it holds."""
    unit: str
    """The unit of the margin: "absolute", "relative" or "digits" (log10 of a ratio)."""
    words: str
    lhs: float
    rhs: float
    evidence: dict[str, Any]
    draws: DrawStatistics | None = None
    """None where there was only one draw."""

    @property
    def holds(self) -> bool:
        """Whether the claim is true as stated."""
        return self.verdict == HOLDS

    @property
    def conditions(self) -> list[str]:
        """The conditions under which it holds, each sufficient; none if it simply holds, or fails."""
        return parse_conditions(self.verdict)

    @property
    def kind(self) -> VerdictKind:
        """The verdict without its conditions."""
        if self.conditions:
            return "under"
        return "holds" if self.holds else "undecided" if self.verdict == "undecided" else "fails"

    def to_dict(self) -> ClaimEntry:
        """The claim's entry in report.json."""
        entry: ClaimEntry = {
            "id": self.id,
            "statement": self.statement,
            "source": self.source,
            "ordering": self.ordering,
            "margin": self.margin,
            "unit": self.unit,
            "words": self.words,
            "lhs": self.lhs,
            "rhs": self.rhs,
            "evidence": self.evidence,
            "verdict": self.verdict,
        }
        if self.draws is not None:
            entry["draws"] = self.draws.to_dict()
        return entry


@dataclass(frozen=True)
class EigenvalueRange:
    """The least and greatest eigenvalue of a kernel."""

    min: float
    max: float
    condition: float
    """max / min; infinite for a singular kernel."""

    def to_dict(self) -> EigenvalueEntry:
        """The kernel's entry in report.json."""
        return {"min": self.min, "max": self.max, "condition": self.condition}


@dataclass(frozen=True)
class DrawPoint:
    """λ_min of the three kernels in one draw."""

    seed: int
    V_on: float
    V_off: float
    V: float
    room: float
    """How much of it may be rounding."""


@dataclass(frozen=True)
class ClientsPoint:
    """λ_min of the three kernels on so many clients."""

    clients: int
    V_on: float
    V_off: float
    V: float
    room: float
    """How much of it may be rounding."""


class WidthEvidence(TypedDict):
    """How far V is from its limit at each width (claim K4)."""

    slope: float | None
    slope_error: float | None
    relative_error: dict[str, float]


class TrackEvidence(TypedDict):
    """λ_min(Λ(t)) during training (claim C1)."""

    mu: dict[str, float]
    least_ratio: dict[str, float]
    lambda_min: dict[str, dict[str, list[float]]]


class GainEvidence(TypedDict):
    """By how many digits Fed-CO2 is ahead of FedBN in each reading (claim D2)."""

    log10_gain: dict[str, float]
    compared_at_step: dict[str, int]
    residual: dict[str, dict[str, float]]
    residual_predicted_by_the_kernel: dict[str, dict[str, dict[str, float]]]
    steps: int


@dataclass(frozen=True)
class Curves:
    """The numbers behind the figures; what was not measured is empty."""

    spectra: dict[str, list[float]] = field(default_factory=dict)
    """All eigenvalues of V_on, V_off and V, the greatest first."""
    draws: list[DrawPoint] = field(default_factory=list)
    """The draws of the setting, and more that are drawn for the figure alone."""
    clients: list[ClientsPoint] = field(default_factory=list)
    residuals: dict[str, list[float]] = field(default_factory=dict)
    """|F(t) - y| by reading and branch, such as "joint: fused"."""
    bounds: dict[str, list[float]] = field(default_factory=dict)
    """C2's bound on the residual of each branch."""
    widths: WidthEvidence | None = None
    tracks: TrackEvidence | None = None
    gains: GainEvidence | None = None

    def to_dict(self) -> dict[str, Any]:
        """The entry "curves" of report.json."""
        return {name: value for name, value in asdict(self).items() if value}


@dataclass(frozen=True)
class MixtureResults:
    """How much sharing two criteria want: w V_on + (1 - w) V_off by λ_min, and by the error on samples left out."""

    curve: MixtureCurve
    sharing: SharingChoice | None
    """By leave-one-out error on the targets of the data; None where the kernels are singular."""
    expected: dict[float, SharingChoice] = field(default_factory=dict)
    """The same in expectation, by how much the clients' targets have in common: 0 nothing, 1 everything."""
    noise: bool = False
    """Whether the targets were drawn at random, so that nothing can be learned from them."""
    client_names: list[str] = field(default_factory=list)

    @property
    def shows_expected(self) -> bool:
        """Whether renderers show what is expected of other targets, as those at hand are noise."""
        return self.noise or self.sharing is None

    def list_rows(self) -> list[tuple[str, ClientSharing]]:
        """What renderers show: a row for each client and one for all; for noise, one for each agreement."""
        if self.shows_expected:
            words = {0.0: "nothing", 1.0: "everything"}
            found = {words.get(tau, f"a share of {tau:g}"): one for tau, one in self.expected.items()}
            return [(f"{share} in common", one.together) for share, one in found.items()]
        assert self.sharing is not None
        return [*zip(self.client_names, self.sharing.clients, strict=True), ("all samples", self.sharing.together)]

    def describe(self) -> list[str]:
        """What the two criteria say, in sentences."""
        curve = self.curve
        if curve.is_flat:
            criterion = "λ_min, the paper's criterion, is the same for every share of the online network: "
        else:
            criterion = (
                f"By λ_min, the paper's criterion, the best share of the online network is w = {curve.best_w:g}: "
            )
        sentences = [
            f"{criterion}it speaks of how fast training data are fitted, not of what is learned from others (O5)."
        ]
        if self.shows_expected and self.expected:
            sentences.append(
                "The errors are those expected of clients whose targets have so much in common, with noise of a tenth "
                "of their variance: they want exactly as much sharing."
                + (" The targets drawn here are noise, which nobody can predict." if self.noise else "")
            )
        elif self.sharing is not None:
            sentences.append(
                f"Errors are relative to predicting 0, with a ridge of {self.sharing.ridge:g} of the mean variance; "
                "below 1 something was learned."
            )
        return sentences

    def to_dict(self) -> dict[str, Any]:
        """The entry "mixture" of report.json."""
        return {
            "curve": asdict(self.curve),
            "leave_one_out": None if self.sharing is None else asdict(self.sharing),
            "expected_leave_one_out": {f"{agreement:g}": asdict(one) for agreement, one in self.expected.items()},
            "targets_are_noise": self.noise,
        }


@dataclass(frozen=True)
class VerificationResults:
    """Everything that a verification found."""

    setting: TheoryConfig
    sizes: list[int]
    """The samples of each client."""
    dim: int
    findings: list[ClaimFinding]
    eigenvalues: dict[str, EigenvalueRange]
    curves: Curves
    summary: list[str]
    versions: dict[str, str]
    certificates: dict[str, Ordering] | None = None
    """O2 and O3 as proved for these matrices; None if no proof was asked for."""
    formula_certificates: FormulaCertificates | None = None
    """O2, O3 and O5 as proved for the matrices of the formula, in real numbers."""
    mixture: MixtureResults | None = None
    """Where claim O5 was checked."""
    violated_assumptions: list[str] = field(default_factory=list)
    """In which ways the inputs violate Assumption 4.1."""
    parallel_samples: list[str] = field(default_factory=list)
    """The first few pairs of parallel samples, which it forbids too."""
    notes: list[str] = field(default_factory=list)
    """What else a reader should know of this setting."""
    seconds: float = 0.0
    matrices: Mapping[str, NDArray[Any]] = field(default_factory=dict, repr=False, compare=False)
    """The kernels of the first draw with data and weights, as matrices.npz holds them."""
    command: str | None = None
    """The command or call that asked for it."""

    @property
    def clients(self) -> int:
        """N."""
        return len(self.sizes)

    @property
    def data(self) -> UserData | None:
        """The user's own data, if any were given."""
        return self.setting.load_data()

    @property
    def inputs(self) -> str:
        """What the networks see, in words."""
        return "the user's own data" if self.data else "synthetic Gaussian clients"

    @property
    def assumptions_broken(self) -> list[str]:
        """Everything in which the inputs break Assumption 4.1."""
        return self.parallel_samples + self.violated_assumptions

    @property
    def holds(self) -> bool:
        """Whether every ordering held (O1-O4, X1, those that were checked)."""
        return all(finding.holds for finding in self.findings if finding.ordering)

    def __getitem__(self, claim: str) -> ClaimFinding:
        """The finding on a claim, by its identifier."""
        known = {finding.id: finding for finding in self.findings}
        if claim not in known:
            raise InputError(f"claim {claim!r} was not checked; {suggest_name(claim, known)}")
        return known[claim]

    def to_dict(self) -> TheoryReport:
        """Everything but the matrices, as report.json holds it; numbers that are not finite become None."""
        report: TheoryReport = {
            "setting": self._describe_setting(),
            "eigenvalues": {name: values.to_dict() for name, values in self.eigenvalues.items()},
            "claims": [finding.to_dict() for finding in self.findings],
            "curves": self.curves.to_dict(),
            "summary": self.summary,
            "seconds": self.seconds,
        }
        if self.certificates is not None:
            report["certificates"] = {name: _describe_proof(proof) for name, proof in self.certificates.items()}
        if self.formula_certificates is not None:
            report["formula_certificates"] = _describe_formula_proofs(self.formula_certificates)
        if self.mixture is not None:
            report["mixture"] = self.mixture.to_dict()
        if self.notes:
            report["notes"] = self.notes
        if self.command:
            report["command"] = self.command
        safe: TheoryReport = make_json_safe(report)
        return safe

    def _describe_setting(self) -> dict[str, Any]:
        """The entry "setting" of report.json, which has "data" for the data set and the problem's own sizes."""
        names = [name for name in TheoryConfig.__dataclass_fields__ if name != "dataset"]
        setting = {name: getattr(self.setting, name) for name in names}
        ridge, data = setting.pop("ridge"), self.data
        offsets = data.offsets if data else []
        return setting | {
            "clients": self.clients,
            "samples": self.sizes,
            "dim": self.dim,
            "data": data.source if data else None,
            "ridge": ridge,
            "inputs": self.inputs,
            "assumptions_broken": [
                *self.parallel_samples,
                *([_describe_offsets(offsets)] if offsets else []),
                *self.violated_assumptions,
            ],
            "versions": self.versions,
        }


def _describe_offsets(offsets: list[tuple[str, float]]) -> str:
    """Programs find centred inputs among the broken assumptions; to people they are a note."""
    return (
        f"inputs are not centred (mean over standard deviation: {format_offsets(offsets)}); "
        "they were centred for each client, as batch norm does"
    )


def _describe_proof(proof: Ordering) -> ProofEntry:
    return {
        "verdict": proof.verdict,
        "margin": proof.margin,
        "left": [proof.left.low, proof.left.high],
        "right": [proof.right.low, proof.right.high],
    }


def _describe_formula_proofs(found: FormulaCertificates) -> FormulaProofsEntry:
    return {
        "orderings": {name: _describe_proof(proof) for name, proof in found.orderings.items()},
        "offline_is_pinched_online": found.pinched,
        "rounding_of_V": found.rounding,
        "gates_decided_exactly": found.exact_gates,
    }


def make_json_safe(value: Any) -> Any:
    """Convert to what strict JSON can hold: numbers that are not finite become None."""
    if isinstance(value, dict):
        return {str(k): make_json_safe(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [make_json_safe(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
