"""Check the orderings while one or two settings vary."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from theory.claims import Claim
from theory.config import TheoryConfig
from theory.errors import InputError
from theory.study import ProgressCallback, compute_min_eigenvalue

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
        near = get_close_matches(name, SWEEPABLE, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InputError(f"cannot sweep {name!r}{hint} (one of {', '.join(SWEEPABLE)}, as in --sweep clients=2,5,10)")
    try:
        values = [SWEEPABLE[name](v) for v in listed.split(",") if v.strip()]
    except ValueError:
        raise InputError(f"--sweep {text}: {listed!r} is not a list of numbers, as in --sweep {name}=2,5,10") from None
    if not values:
        raise InputError(f"--sweep {text} has no values; write for example --sweep {name}=2,5,10")
    return name, values


def expand_sweeps(
    setting: TheoryConfig, sweeps: Sequence[tuple[str, list[Any]]]
) -> list[tuple[dict[str, Any], TheoryConfig]]:
    """Every combination of the swept values, in order."""
    if len(sweeps) > 2:
        raise InputError(f"{len(sweeps)} sweeps; a table and a figure can show one or two")
    names = [name for name, _ in sweeps]
    if len(set(names)) != len(names):
        raise InputError(f"{names[0]} is swept twice; put all its values into one --sweep")
    if setting.data and set(names) & {"clients", "samples", "dim", "heterogeneity"}:
        raise InputError("clients, samples, dim and heterogeneity come from your data; sweep width, alpha or steps")
    combinations = itertools.product(*(values for _, values in sweeps))
    found = [dict(zip(names, values, strict=True)) for values in combinations]
    return [(chosen, replace(setting, **chosen)) for chosen in found]


def compute_gain(V: float, V_on: float) -> float:
    """Fed-CO2's λ_min over FedBN's, both averaged over draws; NaN if FedBN's is not positive."""
    return V / V_on if V_on > 0 else math.nan


def run_sweep(
    settings: Sequence[tuple[dict[str, Any], TheoryConfig]],
    claims: Sequence[Claim],
    progress: ProgressCallback = lambda what, done, total: None,
) -> list[dict[str, Any]]:
    """Compute one row per combination: mean λ_min over draws, and how often the claims held."""
    rows: list[dict[str, Any]] = []
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
                held[claim.id] += claim.check(study).verdict == "holds"
        on, off, mean = (sum(column) / len(lows) for column in zip(*lows, strict=True))
        rows.append(
            {
                **chosen,
                "V_on": on,
                "V_off": off,
                "V": mean,
                "ratio": compute_gain(mean, on),
                "draws": one.draws,
                "held": held,
                "O_hold": sum(held.values()) / (one.draws * max(len(claims), 1)),
            }
        )
    return rows
