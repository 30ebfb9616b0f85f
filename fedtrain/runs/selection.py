"""Rules of reporting: which accuracy counts, by name, never chosen by test accuracy.

A row is ``{"round", "client", "split", "branch", "accuracy", "loss", "n"}``: one for each evaluated round, client,
split and branch. Runs with further scores have them as ``"metrics"``, null where the labels do not define one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean, pstdev
from typing import Any

from fedtrain.runs.json_types import (
    ByBranch,
    ClientStatistics,
    GapSummary,
    MetricRow,
    MetricStatistics,
    RuleResult,
)

RULE_DESCRIPTIONS = {
    "last": "after the last round",
    "best-by-validation": "at the round of the best mean validation accuracy",
    "window": "mean over the evaluations of the window at the end",
}
"""In words."""


def parse_row(row: Any) -> MetricRow:
    """The row, if a row is what it is."""
    has_all_keys = len(row) == 7 + ("metrics" in row)
    if not has_all_keys or not all(isinstance(row[key], str) for key in ("client", "split", "branch")):
        raise ValueError("a row is not what fedco2 writes")
    more = {str(name): None if value is None else float(value) for name, value in row.get("metrics", {}).items()}
    return {
        "round": int(row["round"]),
        "client": row["client"],
        "split": row["split"],
        "branch": row["branch"],
        "accuracy": float(row["accuracy"]),
        "loss": float(row["loss"]),
        "n": int(row["n"]),
        **({"metrics": more} if more else {}),  # type: ignore[typeddict-item]
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
    found: RuleResult = {"round": round, "clients": clients, **summarise_clients(clients, sizes)}  # type: ignore[typeddict-item]
    if metrics := summarise_metrics([row for row in test if row["round"] == round]):
        found["metrics"] = metrics
    return found


def summarise_window(test: Sequence[MetricRow], rounds: Sequence[int]) -> RuleResult:
    """Means over several rounds, and how much the mean over clients moved between them."""
    each = [summarise_round(test, round) for round in rounds]
    clients = {
        name: {branch: fmean(one["clients"][name][branch] for one in each) for branch in branches}
        for name, branches in each[0]["clients"].items()
    }
    sizes = {row["client"]: row["n"] for row in test}
    found: RuleResult = {
        "rounds": list(rounds),
        "clients": clients,
        **summarise_clients(clients, sizes),  # type: ignore[typeddict-item]
        "mean_std_over_rounds": measure_std([one["mean"] for one in each]),
        "micro_std_over_rounds": measure_std([one["micro"] for one in each]),
    }
    if metrics := summarise_metrics([row for row in test if row["round"] in rounds]):
        found["metrics"] = metrics
    return found


def measure_gap(accuracies: ByBranch) -> float | None:
    """How far the prediction is above the better branch, below it if negative; None without branches."""
    rivals = [accuracy for branch, accuracy in accuracies.items() if branch != "fused"]
    return accuracies["fused"] - max(rivals) if rivals else None


def summarise_gaps(clients: dict[str, ByBranch], mean: ByBranch) -> GapSummary | None:
    """The gap of each client, and that of the means over clients."""
    gaps = {name: gap for name, each in clients.items() if (gap := measure_gap(each)) is not None}
    whole = measure_gap(mean)
    return None if whole is None else {"clients": gaps, "mean": whole}


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


def summarise_metrics(rows: Sequence[MetricRow]) -> dict[str, MetricStatistics]:
    """Each further score of these rows: by client and branch, over several rounds their mean, and over clients."""
    values: dict[str, dict[str, dict[str, list[float | None]]]] = {}
    for row in rows:
        for name, value in row.get("metrics", {}).items():
            by_branch = values.setdefault(name, {}).setdefault(row["client"], {})
            by_branch.setdefault(row["branch"], []).append(value)
    return {name: _summarise_metric(clients) for name, clients in values.items()}


def _summarise_metric(values: dict[str, dict[str, list[float | None]]]) -> MetricStatistics:
    clients = {
        client: {branch: average_defined(each, every=True) for branch, each in branches.items()}
        for client, branches in values.items()
    }
    branches = {branch: [one[branch] for one in clients.values()] for branch in next(iter(clients.values()))}
    return {
        "clients": clients,
        "mean": {branch: average_defined(each) for branch, each in branches.items()},
        "defined": {branch: sum(value is not None for value in each) for branch, each in branches.items()},
    }


def average_defined(values: Sequence[float | None], *, every: bool = False) -> float | None:
    """The mean of those that are defined, if any are, or with ``every`` if all are."""
    there = [value for value in values if value is not None]
    return fmean(there) if there and not (every and len(there) < len(values)) else None
