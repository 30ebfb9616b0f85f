"""The tables of a report: for each set of test data its rows, by one rule, and what must be said about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NotRequired, TypedDict

from fedtrain.report.formatting import join_words
from fedtrain.report.grouping import get_test_data_key, group_records
from fedtrain.report.records import FUSED, RunRecord
from fedtrain.report.rows import MeanStdEntry, TableRow, build_table_rows
from fedtrain.runs import selection
from theory.errors import InputError
from theory.text import suggest_name

RULE_DESCRIPTIONS = selection.RULE_DESCRIPTIONS | {
    "last": "after the last evaluated round"
}  # a run of a report need not be finished


@dataclass(frozen=True)
class ResultTable:
    """Rows that were tested on the same data."""

    title: str
    standin: bool
    notes: list[str]
    rule: str
    clients: list[str]
    rows: list[TableRow]
    cautions: list[str]

    @property
    def ranked(self) -> list[TableRow]:
        """The rows among which a best one is named: finished, and after equally many rounds."""
        whole = [row for row in self.rows if is_finished(row)]
        return whole if len(whole) > 1 and len({row.first.rounds for row in whole}) == 1 else []

    @property
    def curve_split(self) -> str:
        """The data whose accuracy is shown over rounds: validation where test data waited for a better round."""
        runs = [run for row in self.rows for run in row.runs]
        return "val" if any(run.has_untested_rounds for run in runs) and all(run.val for run in runs) else "test"


def is_finished(row: TableRow) -> bool:
    """Whether all its runs came to their end."""
    return all(run.finished for run in row.runs)


def build_result_tables(records: Sequence[RunRecord], rule: str | None = None) -> list[ResultTable]:
    """One for each set of test data; by the rule, or by the one that the runs themselves report by."""
    return [_build_result_table(alike, rule) for alike in group_records(records, get_test_data_key)]


def _build_result_table(records: list[RunRecord], wanted: str | None) -> ResultTable:
    own = {record.reporting_rule for record in records}
    rule = wanted or (min(own) if len(own) == 1 else "last")
    for record in records:
        if rule not in record.rules:
            way = suggest_name(rule, record.rules)
            raise InputError(f"{record.path}: nothing to report by the rule {rule!r}; {way}")
    rows = build_table_rows(records, rule)
    notes = list(dict.fromkeys(note for record in records for note in record.data["notes"]))
    title, standin = records[0].data["title"], records[0].data["standin"]
    name = title if not standin or "stand-in" in title else f"{title} (stand-in)"
    cautions = list_cautions(rows)
    if not wanted and len(own) > 1:
        cautions.append("The runs report by different rules; here all are taken after their last evaluated round.")
    return ResultTable(name, standin, notes, rule, list(records[0].clients), rows, cautions)


def list_cautions(rows: Sequence[TableRow]) -> list[str]:
    """What a reader must know before comparing."""
    notes = []
    for row in rows:
        if not is_finished(row):
            notes.append(
                f"{row.label}: round {row.first.last_evaluated_round} of {row.first.rounds}. It is not ranked."
            )
        if len({run.seeds[1] for run in row.runs}) > 1:
            notes.append(f"{row.label}: the seeds of the data differ too, so its spread is that of clients drawn anew.")
    rounds = sorted({row.first.rounds for row in rows if is_finished(row)})
    if len(rounds) > 1:
        notes.append(
            f"The runs have different numbers of rounds ({join_words(rounds)}), so none is called the best of all."
        )
    counts = sorted({len(row.runs) for row in rows})
    if counts == [1]:
        notes.append(f"One seed{' each' * (len(rows) > 1)}: how much the numbers move from seed to seed is not known.")
    elif len(counts) > 1:
        notes.append(f"The rows have different numbers of seeds ({join_words(counts)}).")
    seeds = {tuple(run.seeds for run in row.runs) for row in rows}
    if len(counts) == 1 and len(seeds) > 1:
        notes.append("The rows have different seeds.")
    bits = {(repr(run.settings["data"]), run.data.get("sha256")) for row in rows for run in row.runs}
    if len(bits) > len({settings for settings, _ in bits}):
        notes.append(
            "The checksums of the data differ though the settings are the same: these are not the same images."
        )
    return notes


class BranchEntry(TypedDict):
    """The accuracies of one branch."""

    mean: MeanStdEntry
    clients: dict[str, MeanStdEntry]


class GapEntry(TypedDict):
    """By how much the prediction is above the better branch, on average and by client."""

    mean: MeanStdEntry
    clients: dict[str, MeanStdEntry]


class RowEntry(TypedDict):
    """A row of a table as JSON holds it; accuracies are shares, times are seconds."""

    label: str
    method: str
    runs: list[str]
    seeds: list[int]
    data_seeds: list[int]
    finished: bool
    round: int
    """The last that was evaluated."""
    rounds: int
    mean: MeanStdEntry
    micro: MeanStdEntry
    worst: MeanStdEntry
    std_over_clients: MeanStdEntry
    worst_client: str
    clients: dict[str, MeanStdEntry]
    branches: dict[str, BranchEntry]
    """But for the prediction."""
    gap: NotRequired[GapEntry]
    """Only where there are several branches."""
    bytes_a_round: dict[str, float]
    bytes: dict[str, float]
    seconds_a_round: MeanStdEntry | None
    seconds: float


class TableEntry(TypedDict):
    """A table as JSON holds it."""

    title: str
    standin: bool
    notes: list[str]
    cautions: list[str]
    rule: str
    clients: list[str]
    ranked: list[str]
    ddof_over_seeds: int
    ddof_over_clients: int
    rows: list[RowEntry]


def table_to_dict(table: ResultTable) -> TableEntry:
    """All numbers of a table, as JSON can hold them."""
    return {
        "title": table.title,
        "standin": table.standin,
        "notes": table.notes,
        "cautions": table.cautions,
        "rule": table.rule,
        "clients": table.clients,
        "ranked": [row.label for row in table.ranked],
        "ddof_over_seeds": 1,
        "ddof_over_clients": 0,
        "rows": [_row_to_dict(row, table.clients) for row in table.rows],
    }


def _row_to_dict(row: TableRow, clients: Sequence[str]) -> RowEntry:
    each = {name: row.client_accuracy(name).mean for name in clients}
    time = row.seconds_a_round
    entry: RowEntry = {
        "label": row.label,
        "method": row.first.settings["method"]["name"],
        "runs": [str(run.path) for run in row.runs],
        "seeds": [run.seeds[0] for run in row.runs],
        "data_seeds": [run.seeds[1] for run in row.runs],
        "finished": is_finished(row),
        "round": row.first.last_evaluated_round,
        "rounds": row.first.rounds,
        "mean": row.client_statistic("mean").to_dict(),
        "micro": row.client_statistic("micro").to_dict(),
        "worst": row.client_statistic("worst").to_dict(),
        "std_over_clients": row.client_statistic("std").to_dict(),
        "worst_client": min(each, key=each.__getitem__),
        "clients": {name: row.client_accuracy(name).to_dict() for name in clients},
        "branches": {
            branch: {
                "mean": row.client_statistic("mean", branch).to_dict(),
                "clients": {name: row.client_accuracy(name, branch).to_dict() for name in clients},
            }
            for branch in row.first.branches
            if branch != FUSED
        },
        "bytes_a_round": row.bytes_a_round,
        "bytes": {way: fmean(run.bytes[way] for run in row.runs) for way in ("up", "down")},
        "seconds_a_round": None if time is None else time.to_dict(),
        "seconds": fmean(run.seconds for run in row.runs),
    }
    if len(row.first.branches) > 1:
        entry["gap"] = {
            "mean": row.measure_gap().to_dict(),
            "clients": {name: row.measure_gap(name).to_dict() for name in clients},
        }
    return entry
