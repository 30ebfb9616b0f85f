"""The tables of the page: cells as text, the best of a column marked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedtrain.report.boards import RULES, Board
from fedtrain.report.rows import Line, Spread, spread
from fedtrain.report.wording import percent, points

MANY = 12
"""So many clients have a column each; of more, a few points of their distribution are shown."""


@dataclass(frozen=True)
class Cell:
    """A mean, its std over seeds if there is one, and whether it is the best of its column."""

    text: str
    std: str | None
    best: bool


@dataclass(frozen=True)
class Grid:
    """Headings, and for each row its name and cells."""

    heads: list[str]
    rows: list[tuple[str, list[Cell]]]


def results(board: Board) -> Grid:
    """A column for each client and the mean; of many clients the mean and four points of their distribution."""
    if len(board.clients) <= MANY:
        columns = [(name, _client(name)) for name in board.clients] + [("mean", _over("mean"))]
    else:
        columns = [
            ("mean", _over("mean")),
            ("worst", _at(0)),
            ("10 % point", _at(10)),
            ("median", _at(50)),
            ("best", _at(100)),
        ]
    return _grid(board, columns)


def everyone(board: Board) -> Grid:
    """All clients, however many."""
    return _grid(board, [(name, _client(name)) for name in board.clients])


def branches(board: Board) -> list[tuple[str, str, list[str]]]:
    """(row, branch, accuracies) of all models of the rows that have several."""
    return [
        (
            row.label,
            branch,
            [_plain(row.client(name, branch)) for name in board.clients] + [_plain(row.over("mean", branch))],
        )
        for row in board.rows
        if len(row.first.branches) > 1
        for branch in row.first.branches
    ]


def headline(board: Board) -> str | None:
    """The result in a sentence, if there is one."""
    order = sorted(board.ranked, key=lambda row: -row.over("mean").mean)
    if not order:
        return None
    best, second = order[:2]
    top, next_ = (row.over("mean").mean for row in (best, second))
    fairest = max(order, key=lambda row: row.over("worst").mean)
    seeds = "with one seed each" if {len(row.runs) for row in order} == {1} else "(means over seeds)"
    also = "It also has" if fairest is best else f"{fairest.label} has"
    rounds = best.first.rounds
    when = f"After {rounds} rounds" if board.rule == "last" else f"Of {rounds} rounds, {RULES[board.rule]},"
    return (
        f"{when} {seeds}, {best.label} has the highest mean accuracy on {board.title}, "
        f"{percent(top)}\N{NO-BREAK SPACE}%, {points(top - next_).lstrip('+')} points above {second.label}. "
        f"{also} the highest worst client, {percent(fairest.over('worst').mean)}\N{NO-BREAK SPACE}%."
    )


def _grid(board: Board, columns: Sequence[tuple[str, Callable[[Line], Spread]]]) -> Grid:
    rows: list[tuple[str, list[Cell]]] = [(row.label, []) for row in board.rows]
    ranked = {row.label for row in board.ranked}
    for _, pick in columns:
        values = [pick(row) for row in board.rows]
        rivals = [percent(pick(row).mean) for row in board.ranked]
        top = max(rivals, key=float, default=None)
        for row, value, (_, cells) in zip(board.rows, values, rows, strict=True):
            shown = percent(value.mean)
            best = row.label in ranked and shown == top
            cells.append(Cell(shown, None if value.std is None else percent(value.std), best))
    return Grid([head for head, _ in columns], rows)


def _client(name: str) -> Callable[[Line], Spread]:
    return lambda row: row.client(name)


def _over(kind: str) -> Callable[[Line], Spread]:
    return lambda row: row.over(kind)


def _at(point: float) -> Callable[[Line], Spread]:
    """A point of the distribution over clients, seed by seed."""
    return lambda row: spread(
        [float(np.percentile([client["fused"] for client in one["clients"].values()], point)) for one in row.results]
    )


def _plain(value: Spread) -> str:
    return percent(value.mean) + ("" if value.std is None else f" ± {percent(value.std)}")


def runs_table(board: Board) -> list[dict[str, Any]]:
    """What each run was made with, as far as its manifest says."""
    return [
        {
            "label": row.label,
            "path": run.path,
            "seeds": run.seeds,
            "rounds": f"{run.rounds}" if run.finished else f"{run.reached} of {run.rounds}, unfinished",
            "begun": str(run.manifest.get("started", "–"))[:16].replace("T", " "),
            "versions": _pairs(run.manifest.get("versions")) + _commit(run.manifest.get("git")),
            "machine": _pairs(run.manifest.get("machine")),
            "command": run.manifest.get("command", "–"),
        }
        for row in board.rows
        for run in row.runs
    ]


def _pairs(table: object) -> str:
    return ", ".join(f"{key} {value}" for key, value in table.items()) if isinstance(table, dict) else "–"


def _commit(name: object) -> str:
    return f", commit {name[:10]}{'+' * name.endswith('+')}" if isinstance(name, str) else ""
