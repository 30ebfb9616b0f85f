"""Where numbers stand: the panels of a table or figure, their columns, and what a run has to say in each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fedtrain.data.catalogue import DATASETS
from fedtrain.report.records import RunRecord
from fedtrain.reproduce.exhibits import Exhibit, Row, Value
from fedtrain.reproduce.plan import Plan

MEAN = "mean"
Pick = Callable[[RunRecord, Row], float | None]


def frame(plan: Plan) -> dict[str, dict[str, str]]:
    """Panels and the columns of each, before anything has run."""
    blocks = range(len(plan.exhibit.blocks))
    return panels(plan.exhibit, [plan.cells[b, 0, plan.seeds[0]].config.server.rounds for b in blocks])


def panels(shown: Exhibit, last: Sequence[int]) -> dict[str, dict[str, str]]:
    """The same for runs of so many rounds, block by block."""
    many = len(shown.blocks) > 1
    if shown.layout == "clients":
        domains = {block.name: DATASETS[block.dataset].domains for block in shown.blocks}
        return {name: {**titles, MEAN: "Avg"} for name, titles in domains.items()}
    if shown.layout == "blocks":
        return {value.label: {block.name: block.name for block in shown.blocks} for value in shown.values}
    rounds = [sorted({*(r for r in shown.rounds if r <= end), end}) for end in last]
    heads = [{str(r): f"round {r}" if not many else f"{r}" for r in each} for each in rounds]
    return {block.name: each for block, each in zip(shown.blocks, heads, strict=True)}


def blocks_of(plan: Plan, panel: int) -> list[int]:
    """The blocks whose runs a panel shows."""
    return list(range(len(plan.exhibit.blocks))) if plan.exhibit.layout == "blocks" else [panel]


def picks(plan: Plan, panel: int, columns: Mapping[str, str]) -> list[tuple[int, Pick]]:
    """Of each column: its block, and the number that a record has for it."""
    shown = plan.exhibit
    if shown.layout == "blocks":
        return [(block, _value(plan.rule(block), shown.values[panel])) for block in blocks_of(plan, panel)]
    if shown.layout == "rounds":
        return [(panel, _at(shown.blocks[panel].client, int(column))) for column in columns]
    rule = plan.rule(panel)
    return [(panel, _value(rule, Value(name, "" if name == MEAN else name))) for name in columns]


def _value(rule: str, value: Value) -> Pick:
    def pick(record: RunRecord, row: Row) -> float | None:
        if (found := record.rules.get(rule)) is None:
            return None
        return float(found["clients"][value.client][row.branch] if value.client else found[value.over][row.branch])

    return pick


def _at(client: str, round: int) -> Pick:
    return lambda record, row: record.curves["test", client, row.branch].get(round)
