"""A claim, and the finding that checking it gives."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from theory.study import Study

HOLDS, FAILS, HOLDS_UNDER_PREFIX = "holds", "fails", "holds under: "
UNDECIDED = "undecided"
"""Neither could be shown: the computed values are not accurate enough."""


def format_conditional_verdict(*conditions: str) -> str:
    """The verdict for a claim that fails as printed but holds under any of these conditions."""
    return HOLDS_UNDER_PREFIX + "; ".join(conditions)


def parse_conditions(verdict: str) -> list[str]:
    """The conditions listed by ``format_conditional_verdict``, each sufficient; none for any other verdict."""
    return verdict.removeprefix(HOLDS_UNDER_PREFIX).split("; ") if verdict.startswith(HOLDS_UNDER_PREFIX) else []


@dataclass(frozen=True)
class Finding:
    """What was measured: lhs and rhs of the claim, how far it is from failing (margin > 0: it holds), and evidence."""

    verdict: str
    """holds, fails, undecided, or holds under some condition."""
    lhs: float
    """The left side of the statement, as measured."""
    rhs: float
    """The right side."""
    margin: float
    """How far it is from failing; above 0 it holds."""
    unit: str
    """The unit of the margin: "absolute", "relative", "digits" (log10 of a ratio)."""
    words: str
    """One sentence in plain words."""
    evidence: dict[str, Any] = field(default_factory=dict)
    """All else that was measured."""


@dataclass(frozen=True)
class Claim:
    """A lemma, theorem or corollary with the check that measures it."""

    id: str
    """Such as O2."""
    statement: str
    """In formulas."""
    source: str
    """Where in the paper it is."""
    check: Callable[[Study], Finding]
    """Measures it on a study."""
    ordering: bool = False
    """Whether it is one of the orderings on which the theory rests."""
    trivial_for_one_client: bool = False
    """Whether it says nothing for a single client, whose online and offline networks are the same."""
    uses_limit: bool = False
    """Whether its check computes the infinite-width limit of the study."""
    uses_descents: bool = False
    """Whether its check trains the networks of the study."""


def compute_relative_error(error: float, scale: float) -> float:
    """error / scale, 0 where both vanish."""
    return error / scale if scale > 0 else (0.0 if error == 0 else float("inf"))


def compute_margin_digits(error: float, tolerance: float) -> float:
    """By how many digits the error is below the tolerance; errors below 1e-16, zero included, count as 1e-16."""
    return math.log10(tolerance / max(error, 1e-16))
