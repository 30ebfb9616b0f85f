"""What a table or figure of the paper takes here and now, before anything has run."""

from __future__ import annotations

from dataclasses import dataclass

from fedtrain.reproduction.estimate import estimate_total_seconds
from fedtrain.reproduction.plan import Plan


@dataclass(frozen=True)
class ItemSummary:
    """An entry of ``fedco2 reproduce --list --json``."""

    name: str
    title: str
    data: dict[str, str]
    """By data set: here or stand-in."""
    rounds: list[int]
    paper_rounds: list[int]
    seeds: int
    paper_seeds: int
    runs: int
    estimated_seconds: float


def summarise_item(one: Plan) -> ItemSummary:
    """What it needs, and how long that takes on this machine."""
    specs = one.run_specs.values()
    return ItemSummary(
        name=one.paper_item.name,
        title=one.paper_item.title,
        data={name: "stand-in" if found.standin else "here" for name, found in one.sources.items()},
        rounds=sorted({cell.config.server.rounds for cell in specs}),
        paper_rounds=sorted({config.server.rounds for config in one.paper_configs}),
        seeds=len(one.seeds),
        paper_seeds=len(one.paper_item.seeds),
        runs=len({cell.identity for cell in specs}),
        estimated_seconds=estimate_total_seconds(specs, one.sources),
    )
