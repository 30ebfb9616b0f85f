"""What the runs say, laid out as the paper does, each number beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fedtrain.report.boards import RULE_DESCRIPTIONS
from fedtrain.report.records import RunRecord
from fedtrain.report.rows import MeanStd, compute_mean_std
from fedtrain.reproduce.layout import Pick, blocks_of, frame, picks
from fedtrain.reproduce.paper import Number, Numbers
from fedtrain.reproduce.plan import Plan
from fedtrain.reproduce.reduced import reduced

LEGACY = "with the quirks of the published code"
ABSENT = "Where no number of the paper stands, fedco2 does not hold it; add it with --paper."
NONE_HELD = "fedco2 holds none of the paper's numbers of this table; add them with --paper."
STANDIN = "The paper's numbers are not shown beside those of stand-in images."
OTHER_IMAGES = "The checksums of the data differ: these runs do not have the same images."


@dataclass(frozen=True)
class Entry:
    """One number of ours, in %, and the paper's."""

    ours: MeanStd | None
    seeds: int
    """How many runs it is of."""
    paper: Number | None

    @property
    def difference(self) -> float | None:
        """Ours - paper."""
        return None if self.ours is None or self.paper is None else self.ours.mean - self.paper.value

    @property
    def outside(self) -> bool | None:
        """Whether the difference exceeds both spreads together; ours counts twice where the paper's is not known."""
        if self.difference is None or self.ours is None or self.ours.std is None or self.paper is None:
            return None
        theirs = self.ours.std if self.paper.std is None else self.paper.std
        return abs(self.difference) > self.ours.std + theirs


@dataclass(frozen=True)
class Grid:
    """A table."""

    name: str
    """Of the panel."""
    title: str
    reduced: list[str]
    """Why it is not the paper's protocol; with any reason there are no marks."""
    columns: dict[str, str]
    """Names and what is written above them."""
    rows: dict[str, list[Entry]]
    spread: str
    """What ± means here."""
    notes: list[str] = field(default_factory=list)

    def marked(self, entry: Entry) -> bool:
        """Whether ours disagrees with the paper's."""
        return not self.reduced and bool(entry.outside)


Records = Mapping[str, RunRecord]
"""Finished runs, by the identity of their cells."""


def grids(plan: Plan, records: Records, paper: Numbers) -> list[Grid]:
    """A table for each panel."""
    return [_grid(plan, k, name, columns, records, paper) for k, (name, columns) in enumerate(frame(plan).items())]


def _grid(plan: Plan, panel: int, name: str, columns: dict[str, str], records: Records, paper: Numbers) -> Grid:
    shown, blocks = plan.exhibit, blocks_of(plan, panel)
    chosen = picks(plan, panel, columns)
    held = {(row, column): number for (where, row, column), number in paper.items() if where in ("", name)}
    rows = {}
    for r, row in enumerate(shown.rows):
        beside = (
            held.get((row.name, c)) if comparable(plan, b) else None for c, (b, _) in zip(columns, chosen, strict=True)
        )
        rows[row.name] = [_entry(plan, r, *of, records, n) for of, n in zip(chosen, beside, strict=True)]
    missing = {cell.identity for (block, _, _), cell in plan.cells.items() if block in blocks} - set(records)
    words = reduced(plan, len(missing), blocks)
    which = RULE_DESCRIPTIONS[plan.rule(blocks[0])] if shown.layout != "rounds" else "after so many rounds"
    title = f"{shown.title}{f', {name}' * (len(frame(plan)) > 1)}: test accuracy in %, {which}"
    title += f", {LEGACY}" * plan.request.legacy + (f" (reduced: {'; '.join(words)})" if words else "")
    return Grid(name, title, words, columns, rows, _spread_words(plan, rows), footnotes(plan, rows, blocks, records))


def comparable(plan: Plan, block: int) -> bool:
    """Whether the paper's numbers may stand beside ours: of the same data set, and not of stand-in images."""
    return not plan.instead_of and not plan.found[plan.exhibit.blocks[block].dataset].standin


def _entry(plan: Plan, r: int, block: int, pick: Pick, records: Records, paper: Number | None) -> Entry:
    row = plan.exhibit.rows[r]
    mine = [records[i] for seed in plan.seeds if (i := plan.cells[block, r, seed].identity) in records]
    values = [100 * value for record in mine if (value := pick(record, row)) is not None]
    if not values:
        return Entry(None, 0, paper)
    found = compute_mean_std(values)
    if _over_rounds(plan):
        window = mine[0].rules["window"]
        several = len(window["rounds"]) > 1
        found = MeanStd(found.mean, 100 * float(window["micro_std_over_rounds"][row.branch]) if several else None)
    return Entry(found, len(values), paper)


def _over_rounds(plan: Plan) -> bool:
    return plan.exhibit.spread == "rounds" and len(plan.seeds) == 1 and plan.rule(0) == "window"


def _spread_words(plan: Plan, rows: Mapping[str, list[Entry]]) -> str:
    if _over_rounds(plan):
        return "± std over the evaluations of the window of one run (ddof 0)"
    counts = sorted({entry.seeds for entries in rows.values() for entry in entries if entry.ours}) or [len(plan.seeds)]
    if counts[-1] == 1:
        return "one seed, so no ±"
    many = f"{counts[-1]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"± std over {many} seeds (ddof 1)"


def footnotes(plan: Plan, rows: Mapping[str, list[Entry]], blocks: Sequence[int], records: Records) -> list[str]:
    """Sources of the paper's numbers, which of them are not held, and what must be known of ours."""
    notes = [] if plan.instead_of else list(plan.exhibit.notes)  # they speak of the paper's data
    sources: dict[str, dict[str, None]] = {}
    for row, entries in rows.items():
        for number in (entry.paper for entry in entries if entry.paper):
            sources.setdefault(number.source, {})[row] = None
    notes += [f"paper, {', '.join(names)}: {source}" for source, names in sources.items()]
    fit = [block for block in blocks if comparable(plan, block)]
    notes += [STANDIN] * (len(fit) < len(blocks) and not plan.instead_of)
    if fit and not sources:
        notes.append(NONE_HELD)
    elif fit and any(entry.paper is None for entries in rows.values() for entry in entries):
        notes.append(ABSENT)
    sums: dict[int, set[object]] = {}
    for (block, _, _), cell in plan.cells.items():
        if cell.identity in records and block in blocks:
            sums.setdefault(block, set()).add(records[cell.identity].data.get("sha256"))
    return [*notes, *[OTHER_IMAGES] * any(len(found) > 1 for found in sums.values())]
