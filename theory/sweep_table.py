"""The orderings while one or two settings vary: which settings, what is measured on each, and the table of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from theory.claims import Claim
from theory.claims.base import HOLDS
from theory.config import TheoryConfig
from theory.errors import InputError
from theory.results import make_json_safe
from theory.study import ProgressCallback, compute_min_eigenvalue
from theory.text import suggest_name

SWEEP_CLAIMS = "O1,O2,O3,O4"
"""What a sweep checks unless it is told: the orderings, which take no training."""
SWEEPABLE = {
    "clients": int,
    "samples": int,
    "dim": int,
    "width": int,
    "alpha": float,
    "heterogeneity": float,
    "steps": int,
}


def parse_sweep(text: str) -> tuple[str, list[Any]]:
    """Parse "clients=2,5,10" into a name and its values."""
    name, _, listed = text.partition("=")
    name = name.strip().replace("-", "_")
    if name not in SWEEPABLE:
        raise InputError(f"cannot sweep {name!r}; {suggest_name(name, SWEEPABLE)}, as in clients=2,5,10")
    try:
        values = [SWEEPABLE[name](v) for v in listed.split(",") if v.strip()]
    except ValueError:
        raise InputError(f"sweep {text}: {listed!r} is not a list of numbers, as in {name}=2,5,10") from None
    if not values:
        raise InputError(f"sweep {text} has no values; write for example {name}=2,5,10")
    return name, values


def expand_sweeps(
    setting: TheoryConfig, sweeps: Sequence[tuple[str, list[Any]]]
) -> list[tuple[dict[str, Any], TheoryConfig]]:
    """Every combination of the swept values, in order."""
    if len(sweeps) > 2:
        raise InputError(f"{len(sweeps)} sweeps; a table and a figure can show one or two")
    names = [name for name, _ in sweeps]
    if len(set(names)) != len(names):
        raise InputError(f"{names[0]} is swept twice; put all its values into one list")
    if setting.dataset and set(names) & {"clients", "samples", "dim", "heterogeneity"}:
        raise InputError("clients, samples, dim and heterogeneity come from your data; sweep width, alpha or steps")
    combinations = itertools.product(*(values for _, values in sweeps))
    found = [dict(zip(names, values, strict=True)) for values in combinations]
    return [(chosen, replace(setting, **chosen)) for chosen in found]


def compute_gain(V: float, V_on: float) -> float:
    """Fed-CO2's λ_min over FedBN's, both averaged over draws; NaN if FedBN's is not positive."""
    return V / V_on if V_on > 0 else math.nan


@dataclass(frozen=True)
class SweepRow:
    """One combination of the swept settings: λ_min averaged over draws, and how often the claims held."""

    chosen: dict[str, float]
    """The swept settings and their values."""
    V_on: float
    V_off: float
    V: float
    draws: int
    held: dict[str, int]
    """In how many draws each claim held."""

    @property
    def gain(self) -> float:
        """Fed-CO2's λ_min over FedBN's."""
        return compute_gain(self.V, self.V_on)

    @property
    def share_held(self) -> float:
        """The share of claims and draws that held."""
        return sum(self.held.values()) / (self.draws * max(len(self.held), 1))

    def to_dict(self) -> dict[str, Any]:
        """The row of sweep.json."""
        means = {"V_on": self.V_on, "V_off": self.V_off, "V": self.V, "ratio": self.gain}
        return self.chosen | means | {"draws": self.draws, "held": self.held, "O_hold": self.share_held}


@dataclass(frozen=True)
class SweepTable:
    """A row for each combination of the swept settings."""

    swept: list[str]
    claims: list[Claim]
    rows: list[SweepRow]

    @property
    def holds(self) -> bool:
        """Whether every ordering held everywhere."""
        orderings = [claim.id for claim in self.claims if claim.ordering]
        return all(row.held[name] == row.draws for row in self.rows for name in orderings)

    def to_dict(self) -> dict[str, Any]:
        """The table as sweep.json holds it; numbers that are not finite become None."""
        rows = [row.to_dict() for row in self.rows]
        table: dict[str, Any] = make_json_safe(
            {"swept": self.swept, "claims": [claim.id for claim in self.claims], "rows": rows}
        )
        return table


def measure_sweep(
    settings: Sequence[tuple[dict[str, Any], TheoryConfig]],
    claims: Sequence[Claim],
    progress: ProgressCallback = lambda what, done, total: None,
) -> SweepTable:
    """Measure one row per combination."""
    rows: list[SweepRow] = []
    total = sum(one.draws for _, one in settings)
    for chosen, one in settings:
        lows: list[tuple[float, float, float]] = []
        held: dict[str, int] = {claim.id: 0 for claim in claims}
        for draw in range(one.draws):
            progress("sweep", len(rows) * one.draws + draw, total)
            study = one.build_study(draw)
            lows.append(
                (
                    compute_min_eigenvalue(study.online_kernel.V),
                    compute_min_eigenvalue(study.offline_kernel.V),
                    compute_min_eigenvalue(study.fused_kernel.V),
                )
            )
            for claim in claims:
                held[claim.id] += claim.check(study).verdict == HOLDS
        on, off, mean = (sum(column) / len(lows) for column in zip(*lows, strict=True))
        rows.append(SweepRow(chosen, on, off, mean, one.draws, held))
    return SweepTable(list(settings[0][0]), list(claims), rows)
