"""The tables of the page: cells as text, the best of a column marked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedtrain.report.formatting import format_percent, format_points, join_words
from fedtrain.report.rows import MeanStd, TableRow, compute_mean_std
from fedtrain.report.tables import RULE_DESCRIPTIONS, ResultTable, is_finished
from fedtrain.runs.json_types import StatisticName

MAX_CLIENT_COLUMNS = 12
"""So many clients have a column each; of more, a few points of their distribution are shown."""


@dataclass(frozen=True)
class Cell:
    """A mean, its std over seeds if there is one, and whether it is the best of its column."""

    text: str
    std: str | None
    best: bool


@dataclass(frozen=True)
class FormattedTable:
    """Headings, and for each row its name and cells."""

    heads: list[str]
    rows: list[tuple[str, list[Cell]]]


def format_results(table: ResultTable) -> FormattedTable:
    """A column for each client and the mean; of many clients the mean and four points of their distribution."""
    if len(table.clients) <= MAX_CLIENT_COLUMNS:
        columns = [(name, _select_client(name)) for name in table.clients] + [("mean", _select_statistic("mean"))]
    else:
        columns = [
            ("mean", _select_statistic("mean")),
            ("worst", _select_percentile(0)),
            ("10 % point", _select_percentile(10)),
            ("median", _select_percentile(50)),
            ("best", _select_percentile(100)),
        ]
    return _format_table(table, columns)


def format_all_clients(table: ResultTable) -> FormattedTable:
    """All clients, however many."""
    return _format_table(table, [(name, _select_client(name)) for name in table.clients])


def format_branches(table: ResultTable) -> list[tuple[str, str, list[str]]]:
    """(row, branch, accuracies) of all models of the rows that have several, and how far the prediction is above."""
    found = []
    for row in table.rows:
        if len(row.first.branches) < 2:
            continue
        for branch in row.first.branches:
            accuracies = [_format_mean_std(row.client_accuracy(name, branch)) for name in table.clients]
            found.append((row.label, branch, [*accuracies, _format_mean_std(row.client_statistic("mean", branch))]))
        gaps = [format_points(row.measure_gap(name).mean) for name in table.clients]
        found.append((row.label, "gap", [*gaps, format_points(row.measure_gap().mean)]))
    return found


def write_headline(table: ResultTable) -> str:
    """The result in a sentence: who is ahead among rows that can be compared, and which rows cannot."""
    comparable = find_comparable_rows(table.rows)
    if not comparable:
        return write_headline_without_ranking(table)
    ahead, mean = _find_best(comparable, "mean")
    fairest, worst = _find_best(comparable, "worst")
    seeds = "with one seed each" if {len(row.runs) for row in comparable} == {1} else "(means over seeds)"
    rounds = comparable[0].first.rounds
    when = f"After {rounds} rounds" if table.rule == "last" else f"Of {rounds} rounds, {RULE_DESCRIPTIONS[table.rule]},"
    headline = f"{when} {seeds}, {_name_best(ahead)} the highest mean accuracy on {table.title}, {mean}"
    if len(ahead) == 1:
        top, second = sorted(comparable, key=lambda row: -row.client_statistic("mean").mean)[:2]
        lead = top.client_statistic("mean").mean - second.client_statistic("mean").mean
        headline += f", {format_points(lead).lstrip('+')} points above {second.label}"
    again = ("It also has" if len(ahead) == 1 else "They also share") if fairest == ahead else _name_best(fairest)
    headline += f". {again} the highest worst client, {worst}."
    others = [row.label for row in table.rows if is_finished(row) and row not in comparable]
    if not others:
        return headline
    return f"{headline} Trained for another number of rounds, and so not compared: {', '.join(others)}."


def _find_best(rows: Sequence[TableRow], kind: StatisticName) -> tuple[list[TableRow], str]:
    """The rows with the highest number as it is shown, and that number: what looks alike is called alike."""
    shown = [_format_with_unit(row.client_statistic(kind).mean) for row in rows]
    top = _format_with_unit(max(row.client_statistic(kind).mean for row in rows))
    return [row for row, number in zip(rows, shown, strict=True) if number == top], top


def _name_best(rows: Sequence[TableRow]) -> str:
    return f"{join_words([row.label for row in rows])} {'has' if len(rows) == 1 else 'share'}"


def find_comparable_rows(rows: Sequence[TableRow]) -> list[TableRow]:
    """Finished rows with equally many rounds, at least two: the largest such group, the longer trained of two."""
    finished = [row for row in rows if is_finished(row)]
    groups = [[row for row in finished if row.first.rounds == n] for n in {row.first.rounds for row in finished}]
    return max(
        (group for group in groups if len(group) > 1), key=lambda group: (len(group), group[0].first.rounds), default=[]
    )


def write_headline_without_ranking(table: ResultTable) -> str:
    """The mean of each row, and why none is ahead."""
    rows = [
        f"{row.label} has {_format_with_unit(row.client_statistic('mean').mean)} after round "
        f"{row.first.last_evaluated_round}"
        for row in table.rows
    ]
    why = (
        "This is one configuration: there is nothing to compare it with."
        if len(rows) == 1
        else "No two of them are finished after equally many rounds, so none is called better."
    )
    return f"Mean accuracy on {table.title}: {'; '.join(rows)}. {why}"


def _format_with_unit(accuracy: float) -> str:
    return f"{format_percent(accuracy)}\N{NO-BREAK SPACE}%"


def _format_table(table: ResultTable, columns: Sequence[tuple[str, Callable[[TableRow], MeanStd]]]) -> FormattedTable:
    rows: list[tuple[str, list[Cell]]] = [(row.label, []) for row in table.rows]
    ranked = {row.label for row in table.ranked}
    for _, pick in columns:
        values = [pick(row) for row in table.rows]
        rivals = [format_percent(pick(row).mean) for row in table.ranked]
        top = max(rivals, key=float, default=None)
        for row, value, (_, cells) in zip(table.rows, values, rows, strict=True):
            shown = format_percent(value.mean)
            best = row.label in ranked and shown == top
            cells.append(Cell(shown, None if value.std is None else format_percent(value.std), best))
    return FormattedTable([head for head, _ in columns], rows)


def _select_client(name: str) -> Callable[[TableRow], MeanStd]:
    return lambda row: row.client_accuracy(name)


def _select_statistic(kind: StatisticName) -> Callable[[TableRow], MeanStd]:
    return lambda row: row.client_statistic(kind)


def _select_percentile(point: float) -> Callable[[TableRow], MeanStd]:
    """A point of the distribution over clients, seed by seed."""
    return lambda row: compute_mean_std(
        [float(np.percentile([client["fused"] for client in one["clients"].values()], point)) for one in row.results]
    )


def _format_mean_std(value: MeanStd) -> str:
    return format_percent(value.mean) + ("" if value.std is None else f" ± {format_percent(value.std)}")


def describe_runs(table: ResultTable) -> list[dict[str, object]]:
    """What each run was made with, as far as its manifest says."""
    return [
        {
            "label": row.label,
            "path": run.path,
            "seeds": run.seeds,
            "rounds": f"{run.rounds}" if run.finished else f"{run.last_evaluated_round} of {run.rounds}, unfinished",
            "begun": str(run.manifest.get("started", "–"))[:16].replace("T", " "),
            "versions": _join_pairs(run.manifest.get("versions")) + _format_commit(run.manifest.get("git")),
            "machine": _join_pairs(run.manifest.get("machine")),
            "command": run.manifest.get("command", "–"),
        }
        for row in table.rows
        for run in row.runs
    ]


def _join_pairs(table: object) -> str:
    return ", ".join(f"{key} {value}" for key, value in table.items()) if isinstance(table, dict) else "–"


def _format_commit(name: object) -> str:
    return f", commit {name[:10]}{'+' * name.endswith('+')}" if isinstance(name, str) else ""
