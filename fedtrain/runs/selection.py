"""Which number is reported: named rules over the rows of a run, never chosen by test accuracy.

A row is ``{"round", "client", "split", "branch", "accuracy", "loss", "n"}``: one for each evaluated round, client,
split and branch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean, pstdev
from typing import Any

from fedtrain.runs.json_types import ByBranch, ClientStatistics, MetricRow, RuleResult

RULE_DESCRIPTIONS = {
    "last": "after the last round",
    "best-by-validation": "at the round of the best mean validation accuracy",
    "window": "mean over the evaluations of the window at the end",
}
"""In words."""


def parse_row(row: Any) -> MetricRow:
    """The row, if a row is what it is."""
    if len(row) != 7 or not all(isinstance(row[key], str) for key in ("client", "split", "branch")):
        raise ValueError("a row is not what fedco2 writes")
    return {
        "round": int(row["round"]),
        "client": row["client"],
        "split": row["split"],
        "branch": row["branch"],
        "accuracy": float(row["accuracy"]),
        "loss": float(row["loss"]),
        "n": int(row["n"]),
    }


def summarise_rows(rows: Sequence[MetricRow], in_window: Callable[[int], bool]) -> dict[str, RuleResult]:
    """Every rule that applies: ``last`` if that round was tested, ``best-by-validation`` with validation data, and
    ``window`` if there is one and all that was evaluated in it was tested."""
    test = [row for row in rows if row["split"] == "test"]
    if not test:
        return {}
    tested, evaluated = {row["round"] for row in test}, {row["round"] for row in rows if row["split"] != "train"}
    last, window = max(evaluated), sorted(filter(in_window, evaluated))
    result = (
        {"last": summarise_round(test, last)} if last in tested else {}
    )  # an earlier one may be there for being good
    if (best := find_best_round([row for row in rows if row["round"] in tested])) is not None:
        result["best-by-validation"] = summarise_round(test, best)
    if window and tested.issuperset(window):  # a run cut short may have rounds there that waited for a better one
        result["window"] = summarise_window(test, window)
    return result


def find_best_round(rows: Sequence[MetricRow]) -> int | None:
    """The first round with the highest unweighted mean over clients of fused validation accuracy."""
    means: dict[int, list[float]] = {}
    for row in rows:
        if row["split"] == "val" and row["branch"] == "fused":
            means.setdefault(row["round"], []).append(row["accuracy"])
    # rounded, or equal means such as those of (1/5, 5/5) and (2/5, 4/5) would be told apart by their last digit
    return max(means, key=lambda number: (round(fmean(means[number]), 12), -number), default=None)


def summarise_round(test: Sequence[MetricRow], round: int) -> RuleResult:
    """Accuracies of one round: by client and branch, and over clients."""
    clients: dict[str, ByBranch] = {}
    sizes: dict[str, int] = {}
    for row in test:
        if row["round"] == round:
            clients.setdefault(row["client"], {})[row["branch"]] = row["accuracy"]
            sizes[row["client"]] = row["n"]
    return {"round": round, "clients": clients, **summarise_clients(clients, sizes)}  # type: ignore[typeddict-item]


def summarise_window(test: Sequence[MetricRow], rounds: Sequence[int]) -> RuleResult:
    """Means over several rounds, and how much the mean over clients moved between them."""
    each = [summarise_round(test, round) for round in rounds]
    clients = {
        name: {branch: fmean(one["clients"][name][branch] for one in each) for branch in branches}
        for name, branches in each[0]["clients"].items()
    }
    sizes = {row["client"]: row["n"] for row in test}
    return {
        "rounds": list(rounds),
        "clients": clients,
        **summarise_clients(clients, sizes),  # type: ignore[typeddict-item]
        "mean_std_over_rounds": measure_std([one["mean"] for one in each]),
        "micro_std_over_rounds": measure_std([one["micro"] for one in each]),
    }


def measure_std(each: Sequence[ByBranch]) -> ByBranch:
    """The population std (ddof 0) of each branch."""
    return {branch: pstdev([one[branch] for one in each]) for branch in each[0]}


def summarise_clients(clients: dict[str, ByBranch], sizes: dict[str, int]) -> ClientStatistics:
    """Unweighted mean, mean over all test samples (micro), worst client, and population std (ddof 0), by branch."""
    total = sum(sizes[name] for name in clients)
    table: ClientStatistics = {"mean": {}, "micro": {}, "worst": {}, "std": {}}
    for branch in next(iter(clients.values())):
        values = {name: accuracies[branch] for name, accuracies in clients.items()}
        table["mean"][branch] = fmean(values.values())
        table["micro"][branch] = sum(value * sizes[name] for name, value in values.items()) / total
        table["worst"][branch] = min(values.values())
        table["std"][branch] = pstdev(values.values())
    return table
