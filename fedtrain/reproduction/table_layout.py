"""Where numbers stand: the panels of a table or figure, their columns, and what a run has to say in each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fedtrain.data.datasets import DATASETS
from fedtrain.report.records import RunRecord
from fedtrain.reproduction.paper_item import MethodVariant, Metric, PaperItem
from fedtrain.reproduction.plan import Plan

MEAN_COLUMN = "mean"
NumberReader = Callable[[RunRecord, MethodVariant], float | None]


def get_plan_panels(plan: Plan) -> dict[str, dict[str, str]]:
    """Panels and the columns of each, before anything has run."""
    blocks = range(len(plan.paper_item.blocks))
    return build_panels(plan.paper_item, [plan.run_specs[b, 0, plan.seeds[0]].config.server.rounds for b in blocks])


def build_panels(shown: PaperItem, last: Sequence[int]) -> dict[str, dict[str, str]]:
    """The same for runs of so many rounds, block by block."""
    many = len(shown.blocks) > 1
    if shown.layout == "clients":
        domains = {block.name: DATASETS[block.dataset].domains for block in shown.blocks}
        return {name: {**titles, MEAN_COLUMN: "Avg"} for name, titles in domains.items()}
    if shown.layout == "blocks":
        return {value.label: {block.name: block.name for block in shown.blocks} for value in shown.values}
    rounds = [sorted({*(r for r in shown.rounds if r <= end), end}) for end in last]
    heads = [{str(r): f"round {r}" if not many else f"{r}" for r in each} for each in rounds]
    return {block.name: each for block, each in zip(shown.blocks, heads, strict=True)}


def get_panel_blocks(plan: Plan, panel: int) -> list[int]:
    """The blocks whose runs a panel shows."""
    return list(range(len(plan.paper_item.blocks))) if plan.paper_item.layout == "blocks" else [panel]


def build_column_readers(plan: Plan, panel: int, columns: Mapping[str, str]) -> list[tuple[int, NumberReader]]:
    """Of each column: its block, and the number that a record has for it."""
    shown = plan.paper_item
    if shown.layout == "blocks":
        return [
            (block, _build_metric_reader(plan.get_rule(block), shown.values[panel]))
            for block in get_panel_blocks(plan, panel)
        ]
    if shown.layout == "rounds":
        return [(panel, _build_round_reader(shown.blocks[panel].client, int(column))) for column in columns]
    rule = plan.get_rule(panel)
    return [(panel, _build_metric_reader(rule, Metric(name, "" if name == MEAN_COLUMN else name))) for name in columns]


def _build_metric_reader(rule: str, value: Metric) -> NumberReader:
    def pick(record: RunRecord, row: MethodVariant) -> float | None:
        if (found := record.rules.get(rule)) is None:
            return None
        return float(found["clients"][value.client][row.branch] if value.client else found[value.over][row.branch])

    return pick


def _build_round_reader(client: str, round: int) -> NumberReader:
    return lambda record, row: record.curves["test", client, row.branch].get(round)
