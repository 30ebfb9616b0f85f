"""Further scores of a report: for each row and score a number of every client, and their mean."""

from __future__ import annotations

from typing import TypedDict

from fedtrain.config.schema import parse_metrics
from fedtrain.registry import MetricName
from fedtrain.report.formatting import format_score
from fedtrain.report.intervals import ScoreIntervals, compute_intervals, load_run_predictions
from fedtrain.report.records import FUSED, RunRecord
from fedtrain.report.rows import MeanStd, MeanStdEntry, TableRow, compute_mean_std
from fedtrain.report.tables import ResultTable

SLOW_FOR_MANY_CLASSES: tuple[MetricName, ...] = ("auroc", "auprc")
"""They rank all samples for each class, in each draw: with more than two classes they get no interval."""


def list_scores(row: TableRow) -> list[str]:
    """The further scores that all runs of a row have."""
    first, *others = [result.get("metrics", {}) for result in row.results]
    return [name for name in first if all(name in other for other in others)]


def get_score(row: TableRow, score: str, client: str | None, branch: str = FUSED) -> MeanStd | None:
    """Of a client, or without one the mean over those that have it; None where it is undefined in a run."""
    found = [result["metrics"][score] for result in row.results]
    values = [one["mean"][branch] if client is None else one["clients"][client][branch] for one in found]
    defined = [value for value in values if value is not None]
    return compute_mean_std(defined) if len(defined) == len(values) else None


class BranchScores(TypedDict):
    """A further score of one branch."""

    mean: MeanStdEntry | None
    """Over the clients that have it; None where it is undefined in a run."""
    clients: dict[str, MeanStdEntry | None]


def score_rows_to_dict(row: TableRow, clients: list[str]) -> dict[str, dict[str, BranchScores]]:
    """All further scores of a row, by branch, as JSON can hold them."""

    def convert(value: MeanStd | None) -> MeanStdEntry | None:
        return None if value is None else value.to_dict()

    return {
        score: {
            branch: {
                "mean": convert(get_score(row, score, None, branch)),
                "clients": {name: convert(get_score(row, score, name, branch)) for name in clients},
            }
            for branch in row.first.branches
        }
        for score in list_scores(row)
    }


def format_score_rows(table: ResultTable) -> list[tuple[str, str, list[str]]]:
    """(row, score, cells) of the prediction: every client and the mean, as mean ± std over seeds."""
    return [
        (
            row.label,
            score.replace("_", " "),
            [_format(get_score(row, score, client)) for client in [*table.clients, None]],
        )
        for row in table.rows
        for score in list_scores(row)
    ]


def compute_run_intervals(run: RunRecord) -> ScoreIntervals | None:
    """Bootstrap intervals, if the run has saved its predictions."""
    found = load_run_predictions(run.path)
    if found is None:
        return None
    classes = found.logits[FUSED].shape[1]
    wanted = parse_metrics(str(run.settings["evaluation"]["metrics"]), classes)
    return compute_intervals(found, [name for name in wanted if classes == 2 or name not in SLOW_FOR_MANY_CLASSES])


def format_interval_rows(table: ResultTable) -> list[tuple[str, str, list[str]]]:
    """(row, score, intervals) of each run that has saved its predictions."""
    rows = []
    for row in table.rows:
        for run in row.runs:
            if (found := compute_run_intervals(run)) is None:
                continue
            seed = f", seed {run.seeds[0]}" if len(row.runs) > 1 else ""
            for score, mean in found["mean"].items():
                each = [found["clients"].get(client, {}).get(score) for client in table.clients]
                cells = ["–" if one is None else f"{one[0]:.3f} to {one[1]:.3f}" for one in [*each, mean]]
                rows.append((f"{row.label}{seed}", score.replace("_", " "), cells))
    return rows


def _format(value: MeanStd | None) -> str:
    if value is None:
        return format_score(None)
    return format_score(value.mean) + ("" if value.std is None else f" ± {format_score(value.std)}")
