"""Lay out what the runs found as the paper does, each number beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fedtrain.report.records import RunRecord
from fedtrain.report.rows import MeanStd, compute_mean_std
from fedtrain.report.tables import RULE_DESCRIPTIONS
from fedtrain.reproduction.deviations import list_deviations
from fedtrain.reproduction.paper_numbers import PaperNumber, PaperNumbers
from fedtrain.reproduction.plan import Plan
from fedtrain.reproduction.table_layout import NumberReader, build_column_readers, get_panel_blocks, get_plan_panels

LEGACY_NOTE = "with the quirks of the published code"
MISSING_NUMBERS_NOTE = (
    "Where no number of the paper stands, fedco2 does not hold it; add it with `fedco2 reproduce --paper FILE`."
)
NO_NUMBERS_NOTE = (
    "fedco2 holds none of the paper's numbers of this table; add them with `fedco2 reproduce --paper FILE`."
)
STANDIN_NOTE = "The paper's numbers are not shown beside those of stand-in images."
DIFFERENT_IMAGES_NOTE = "The checksums of the data differ: these runs do not have the same images."


@dataclass(frozen=True)
class ComparedNumber:
    """One number of ours, in %, and the paper's."""

    ours: MeanStd | None
    seeds: int
    """How many runs it is of."""
    paper: PaperNumber | None

    @property
    def difference(self) -> float | None:
        """Ours - paper."""
        return None if self.ours is None or self.paper is None else self.ours.mean - self.paper.value

    @property
    def exceeds_spread(self) -> bool | None:
        """Whether the difference exceeds both spreads together; ours counts twice where the paper's is not known."""
        if self.difference is None or self.ours is None or self.ours.std is None or self.paper is None:
            return None
        theirs = self.ours.std if self.paper.std is None else self.paper.std
        return abs(self.difference) > self.ours.std + theirs


@dataclass(frozen=True)
class ComparisonTable:
    """A table."""

    name: str
    """Of the panel."""
    title: str
    deviations: list[str]
    """Why it is not the paper's protocol; with any reason there are no marks."""
    columns: dict[str, str]
    """Names and what is written above them."""
    rows: dict[str, list[ComparedNumber]]
    std_description: str
    """What ± means here."""
    notes: list[str] = field(default_factory=list)

    def is_marked(self, entry: ComparedNumber) -> bool:
        """Whether ours disagrees with the paper's."""
        return not self.deviations and bool(entry.exceeds_spread)


RecordsByIdentity = Mapping[str, RunRecord]
"""Finished runs, by the identity of their cells."""


def build_comparison_tables(plan: Plan, records: RecordsByIdentity, paper: PaperNumbers) -> list[ComparisonTable]:
    """A table for each panel."""
    return [
        _build_comparison_table(plan, k, name, columns, records, paper)
        for k, (name, columns) in enumerate(get_plan_panels(plan).items())
    ]


def _build_comparison_table(
    plan: Plan, panel: int, name: str, columns: dict[str, str], records: RecordsByIdentity, paper: PaperNumbers
) -> ComparisonTable:
    shown, blocks = plan.paper_item, get_panel_blocks(plan, panel)
    chosen = build_column_readers(plan, panel, columns)
    held = {(row, column): number for (where, row, column), number in paper.items() if where in ("", name)}
    rows = {}
    for r, row in enumerate(shown.rows):
        beside = (
            held.get((row.name, c)) if is_comparable(plan, b) else None
            for c, (b, _) in zip(columns, chosen, strict=True)
        )
        rows[row.name] = [
            _build_compared_number(plan, r, *of, records, n) for of, n in zip(chosen, beside, strict=True)
        ]
    missing = {cell.identity for (block, _, _), cell in plan.run_specs.items() if block in blocks} - set(records)
    words = list_deviations(plan, len(missing), blocks)
    which = RULE_DESCRIPTIONS[plan.get_rule(blocks[0])] if shown.layout != "rounds" else "after so many rounds"
    title = f"{shown.title}{f', {name}' * (len(get_plan_panels(plan)) > 1)}: test accuracy in %, {which}"
    title += f", {LEGACY_NOTE}" * plan.request.legacy + (f" (reduced: {'; '.join(words)})" if words else "")
    return ComparisonTable(
        name, title, words, columns, rows, _describe_std(plan, rows), list_footnotes(plan, rows, blocks, records)
    )


def is_comparable(plan: Plan, block: int) -> bool:
    """Whether the paper's numbers may stand beside ours: of the same data set, and not of stand-in images."""
    return not plan.replaced_dataset and not plan.sources[plan.paper_item.blocks[block].dataset].standin


def _build_compared_number(
    plan: Plan, r: int, block: int, pick: NumberReader, records: RecordsByIdentity, paper: PaperNumber | None
) -> ComparedNumber:
    row = plan.paper_item.rows[r]
    mine = [records[i] for seed in plan.seeds if (i := plan.run_specs[block, r, seed].identity) in records]
    values = [100 * value for record in mine if (value := pick(record, row)) is not None]
    if not values:
        return ComparedNumber(None, 0, paper)
    found = compute_mean_std(values)
    if _is_std_over_rounds(plan):
        window = mine[0].rules["window"]
        several = len(window["rounds"]) > 1
        found = MeanStd(found.mean, 100 * float(window["micro_std_over_rounds"][row.branch]) if several else None)
    return ComparedNumber(found, len(values), paper)


def _is_std_over_rounds(plan: Plan) -> bool:
    return plan.paper_item.std_over == "rounds" and len(plan.seeds) == 1 and plan.get_rule(0) == "window"


def _describe_std(plan: Plan, rows: Mapping[str, list[ComparedNumber]]) -> str:
    if _is_std_over_rounds(plan):
        return "± std over the evaluations of the window of one run (ddof 0)"
    counts = sorted({entry.seeds for entries in rows.values() for entry in entries if entry.ours}) or [len(plan.seeds)]
    if counts[-1] == 1:
        return "one seed, so no ±"
    many = f"{counts[-1]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"± std over {many} seeds (ddof 1)"


def list_footnotes(
    plan: Plan, rows: Mapping[str, list[ComparedNumber]], blocks: Sequence[int], records: RecordsByIdentity
) -> list[str]:
    """Sources of the paper's numbers, which of them are not held, and what must be known of ours."""
    notes = [] if plan.replaced_dataset else list(plan.paper_item.notes)  # they speak of the paper's data
    sources: dict[str, dict[str, None]] = {}
    for row, entries in rows.items():
        for number in (entry.paper for entry in entries if entry.paper):
            sources.setdefault(number.source, {})[row] = None
    notes += [f"paper, {', '.join(names)}: {source}" for source, names in sources.items()]
    fit = [block for block in blocks if is_comparable(plan, block)]
    notes += [STANDIN_NOTE] * (len(fit) < len(blocks) and not plan.replaced_dataset)
    if fit and not sources:
        notes.append(NO_NUMBERS_NOTE)
    elif fit and any(entry.paper is None for entries in rows.values() for entry in entries):
        notes.append(MISSING_NUMBERS_NOTE)
    sums: dict[int, set[object]] = {}
    for (block, _, _), cell in plan.run_specs.items():
        if cell.identity in records and block in blocks:
            sums.setdefault(block, set()).add(records[cell.identity].data.get("sha256"))
    return [*notes, *[DIFFERENT_IMAGES_NOTE] * any(len(found) > 1 for found in sums.values())]
