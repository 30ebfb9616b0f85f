"""Rows of a report: runs that differ only in their seeds are one row, rows on the same data one table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TypedDict

from fedtrain.methods import METHODS
from fedtrain.report.grouping import build_labels, get_configuration_key, group_records
from fedtrain.report.records import FUSED, RunRecord
from fedtrain.runs.json_types import RuleResult, StatisticName
from fedtrain.runs.selection import measure_gap


class MeanStdEntry(TypedDict):
    """A `MeanStd` in JSON."""

    mean: float
    std: float | None


@dataclass(frozen=True)
class MeanStd:
    """A number over the seeds of a row."""

    mean: float
    std: float | None
    """With ddof 1; None of a single seed."""

    def to_dict(self) -> MeanStdEntry:
        """As JSON can hold it."""
        return {"mean": self.mean, "std": self.std}


def compute_mean_std(values: Sequence[float]) -> MeanStd:
    """Mean, and std with ddof 1 where there are two or more."""
    return MeanStd(fmean(values), stdev(values) if len(values) > 1 else None)


@dataclass(frozen=True)
class TableRow:
    """A row of the table: one configuration, one or more seeds."""

    label: str
    runs: tuple[RunRecord, ...]
    rule: str

    @property
    def first(self) -> RunRecord:
        """Any of its runs, for what they have in common."""
        return self.runs[0]

    @property
    def results(self) -> list[RuleResult]:
        """Of each run, by the rule."""
        return [run.rules[self.rule] for run in self.runs]

    def over_seeds(self, pick: Callable[[RuleResult], float]) -> MeanStd:
        """A number of the results, over the seeds."""
        return compute_mean_std([pick(one) for one in self.results])

    def client_statistic(self, kind: StatisticName, branch: str = FUSED) -> MeanStd:
        """The mean, worst, std or micro over clients, over the seeds."""
        return self.over_seeds(lambda one: one[kind][branch])

    def client_accuracy(self, name: str, branch: str = FUSED) -> MeanStd:
        """The accuracy of one client, over the seeds."""
        return self.over_seeds(lambda one: one["clients"][name][branch])

    def measure_gap(self, name: str | None = None) -> MeanStd:
        """How far the prediction is above the better branch, of one client or of the means over clients."""
        return self.over_seeds(lambda one: measure_gap(one["mean"] if name is None else one["clients"][name]) or 0.0)

    def get_curve(self, split: str, client: str | None = None, branch: str = FUSED) -> dict[int, list[float]]:
        """Accuracy by round, one for each seed, in the rounds that all have; of the mean over clients if None."""
        each = [_average_over_clients(run, split, client, branch) for run in self.runs]
        common = sorted(set.intersection(*(set(one) for one in each)))
        return {round: [one[round] for one in each] for round in common}

    @property
    def bytes_a_round(self) -> dict[str, float]:
        """Up and down, all clients together; every round of a run moves the same number."""
        return {way: fmean(run.bytes[way] / max(run.rounds_done, 1) for run in self.runs) for way in ("up", "down")}

    @property
    def seconds_a_round(self) -> MeanStd | None:
        """With its evaluations; None if no round is on record."""
        times = [run.seconds / run.rounds_done for run in self.runs if run.rounds_done]
        return compute_mean_std(times) if times else None


def _average_over_clients(run: RunRecord, split: str, client: str | None, branch: str) -> dict[int, float]:
    values: dict[int, list[float]] = {}
    for name in run.clients if client is None else [client]:
        for round, accuracy in run.curves[split, name, branch].items():
            values.setdefault(round, []).append(accuracy)
    return {round: fmean(found) for round, found in values.items()}


def build_table_rows(records: Sequence[RunRecord], rule: str) -> list[TableRow]:
    """A row for each configuration; a run that is not as far as the others, or repeats a seed, has a row of its own.

    Methods stand in the order of the paper, those outside fedco2 after them.
    """
    parts: dict[tuple[str, int, int], list[RunRecord]] = {}
    for alike in group_records(records, get_configuration_key):
        seen: dict[tuple[int, int], int] = {}
        for record in sorted(alike, key=lambda one: one.seeds):
            again = seen[record.seeds] = seen.get(record.seeds, -1) + 1
            parts.setdefault((get_configuration_key(record), record.last_evaluated_round, again), []).append(record)
    order = {name: place for place, name in enumerate(METHODS)}
    groups = sorted(  # a stable sort: rows of one method stay as they were named
        parts.values(), key=lambda runs: order.get(runs[0].settings["method"]["name"], len(order))
    )
    return [TableRow(label, tuple(runs), rule) for label, runs in zip(build_labels(groups), groups, strict=True)]
