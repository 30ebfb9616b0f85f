"""The types of ``report.json``: what a verification found, as JSON holds it."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict


class EigenvalueEntry(TypedDict):
    """The least and greatest eigenvalue of a kernel; None for what is not finite."""

    min: float | None
    max: float | None
    condition: float | None


class DrawsEntry(TypedDict):
    """How a claim fared over several draws."""

    draws: int
    held: int
    verdicts: dict[str, int]
    shown: int
    mean_margin: float | None
    worst_margin: float | None


class ClaimEntry(TypedDict):
    """A claim, and what was found."""

    id: str
    statement: str
    source: str
    ordering: bool
    margin: float | None
    unit: str
    words: str
    lhs: float | None
    rhs: float | None
    evidence: dict[str, Any]
    """Other numbers for each claim."""
    verdict: str
    draws: NotRequired[DrawsEntry]
    """Where there were several."""


class ProofEntry(TypedDict):
    """An ordering of eigenvalues that was proved, or not, with the intervals of both sides."""

    verdict: str
    margin: float | None
    left: list[float]
    right: list[float]


class FormulaProofsEntry(TypedDict):
    """Proofs about the kernels of the formula, in real numbers."""

    orderings: dict[str, ProofEntry]
    offline_is_pinched_online: bool
    rounding_of_V: dict[str, float]
    gates_decided_exactly: int


class TheoryReport(TypedDict):
    """All of ``report.json``."""

    setting: dict[str, Any]
    """The settings by name, the sizes of the problem, and ``versions``."""
    eigenvalues: dict[str, EigenvalueEntry]
    claims: list[ClaimEntry]
    curves: dict[str, Any]
    """The numbers behind the figures."""
    certificates: NotRequired[dict[str, ProofEntry]]
    formula_certificates: NotRequired[FormulaProofsEntry]
    mixture: NotRequired[dict[str, Any]]
    summary: list[str]
    seconds: float
    notes: NotRequired[list[str]]
    command: NotRequired[str]
