"""How sure is a ranking of methods with several seeds each? Seeds are compared in pairs.

  python benchmarks/seed_ranking.py RUN RUN ... [--rule last] [--json]

RUN is the folder of a finished run, or one that holds several; records will do, for no weights are needed. Runs that
differ in nothing but their seeds are one row. Three tables: accuracy of every client and their mean (mean ± std over
seeds, ddof 1); the place of every method with each seed; and what each method loses against the best one with the same
seed, with an interval of 95 % (paired t test). The last says how much other seeds would move the ranking, not how much
other test images would: for these see bootstrap_ranking.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import click

from fedtrain.report.grouping import get_test_data_key
from fedtrain.report.records import find_runs, read_record
from fedtrain.report.rows import MeanStd, TableRow, build_table_rows, compute_mean_std
from fedtrain.report.significance import run_paired_tests
from theory.errors import InputError

RULES = ("last", "best-by-validation", "window")
Seed = tuple[int, int]
"""Of the networks and of the data."""
Accuracies = Mapping[Seed, float]
"""By seed, in %."""
RankedMethod = dict[str, Any]


def load_rows(paths: Sequence[Path], rule: str | None) -> list[TableRow]:
    """A row for each configuration; runs on other data, or with another number of rounds, are refused."""
    records = [read_record(run) for path in paths for run in find_runs(path)]
    first = records[0]
    rule = rule or first.reporting_rule
    for record in records:
        if not record.finished:
            raise InputError(f"{record.path}: this run is not finished; leave it out or go on with it")
        if get_test_data_key(record) != get_test_data_key(first):
            raise InputError(
                f"{record.path}: it was tested on other data than {first.path}; name runs on the same data"
            )
        if record.rounds != first.rounds:
            raise InputError(f"{record.path}: {record.rounds} rounds, {first.path} has {first.rounds}; name runs alike")
        if rule not in record.rules:
            raise InputError(f"{record.path}: it has no result by the rule {rule!r}; choose another one")
    return build_table_rows(records, rule)


def collect_means(rows: Sequence[TableRow]) -> dict[str, dict[Seed, float]]:
    """By row and seed: the mean over clients."""
    return {row.label: {run.seeds: 100 * run.rules[row.rule]["mean"]["fused"] for run in row.runs} for row in rows}


def rank_methods(means: Mapping[str, Accuracies]) -> list[RankedMethod]:
    """The best first, by the mean over its seeds; each beside the best one and the next, with the same seeds."""
    order = sorted(means, key=lambda name: -fmean(means[name].values()))
    places = _find_places(means)
    return [
        {
            "name": name,
            "accuracy": _to_dict(compute_mean_std(list(means[name].values()))),
            "seeds": [
                {"seed": seed[0], "data_seed": seed[1], "accuracy": value, "place": places[name, seed]}
                for seed, value in mine.items()
            ],
            "behind": None if name == order[0] else _compare(mine, means[order[0]]),
            "above_next": None if place + 1 == len(order) else _count_wins(mine, means[order[place + 1]]),
        }
        for place, name in enumerate(order)
        for mine in [means[name]]
    ]


def _find_places(means: Mapping[str, Accuracies]) -> dict[tuple[str, Seed], int | None]:
    """1 for the best with a seed, among the methods that have it; equals share the better place, one alone has none."""
    found: dict[tuple[str, Seed], int | None] = {}
    for name, mine in means.items():
        for seed, value in mine.items():
            rivals = [other[seed] for other in means.values() if seed in other]
            found[name, seed] = 1 + sum(rival > value for rival in rivals) if len(rivals) > 1 else None
    return found


def _compare(mine: Accuracies, best: Accuracies) -> dict[str, Any] | None:
    """What is lost against the best with the same seeds; None without a common one."""
    common = sorted(set(mine) & set(best))
    if not common:
        return None
    if len(common) == 1:
        return {"pairs": 1, "mean": mine[common[0]] - best[common[0]], "interval": None}
    found = run_paired_tests([best[seed] for seed in common], [mine[seed] for seed in common])
    interval = None if found.low is None else [found.low, found.high]
    return {"pairs": len(common), "mean": found.difference, "interval": interval}


def _count_wins(mine: Accuracies, after: Accuracies) -> list[int]:
    """With how many seeds it is above the next, and of how many."""
    common = set(mine) & set(after)
    return [sum(mine[seed] > after[seed] for seed in common), len(common)]


def _to_dict(found: MeanStd) -> dict[str, float | None]:
    return {"mean": found.mean, "std": found.std}


def format_mean_std(found: MeanStd) -> str:
    """In %, for values that are shares."""
    return f"{100 * found.mean:.1f}" + ("" if found.std is None else f" ± {100 * found.std:.1f}")


def format_accuracies(rows: Sequence[TableRow]) -> str:
    """Every client and the mean, in Markdown."""
    clients = list(rows[0].first.clients)
    body = [
        [
            row.label,
            *(format_mean_std(row.client_accuracy(client)) for client in clients),
            format_mean_std(row.client_statistic("mean")),
            str(len(row.runs)),
        ]
        for row in rows
    ]
    return format_table(["", *clients, "mean", "seeds"], body)


def format_places(found: Sequence[RankedMethod]) -> str:
    """The mean over clients with each seed, and the place among the methods that have the seed."""
    cells = [{(one["seed"], one["data_seed"]): one for one in method["seeds"]} for method in found]
    seeds = sorted(set().union(*cells))
    several = len({data for _, data in seeds}) > 1
    heads = ["", *(f"seed {seed}{f', data {data}' * several}" for seed, data in seeds)]
    body = [
        [method["name"], *(_format_place(mine.get(seed)) for seed in seeds)]
        for method, mine in zip(found, cells, strict=True)
    ]
    return format_table(heads, body)


def _format_place(one: dict[str, Any] | None) -> str:
    if one is None:
        return "-"
    return f"{one['accuracy']:.1f}" + ("" if one["place"] is None else f" ({one['place']})")


def format_ranking(found: Sequence[RankedMethod]) -> str:
    """Mean over seeds, what is lost against the best, and how often a method is above the next."""
    body = []
    for one in found:
        std = one["accuracy"]["std"]
        mean = f"{one['accuracy']['mean']:.1f}" + ("" if std is None else f" ± {std:.1f}")
        lost = one["behind"]
        behind = "-" if lost is None else f"{lost['mean']:.1f}"
        interval = "-" if not (lost and lost["interval"]) else "{:.1f} to {:.1f}".format(*lost["interval"])
        above = "-" if one["above_next"] is None else "{} of {} seeds".format(*one["above_next"])
        body.append([one["name"], mean, behind, interval, above])
    return format_table(["run", "mean test accuracy, %", "behind the best", "95 % interval", "above the next in"], body)


def format_table(heads: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """In Markdown."""
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@click.command(help=__doc__)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--rule", type=click.Choice(RULES), help="Which accuracy.  [default: what the first run reports by]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(runs: tuple[Path, ...], rule: str | None, as_json: bool) -> None:
    """See the docstring of this file."""
    rows = load_rows(runs, rule)
    found = rank_methods(collect_means(rows))
    if as_json:
        click.echo(json.dumps({"rule": rows[0].rule, "methods": found}, ensure_ascii=False))
        return
    click.echo("\n\n".join([format_accuracies(rows), format_places(found), format_ranking(found)]))


if __name__ == "__main__":
    main()
