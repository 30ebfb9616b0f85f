"""Choose learning rate and rounds of each method by cross-validation, without a look at the test part.

``python benchmarks/choose_settings.py TABLE.csv --client-column C --target T --split-column S [--json FILE]``.

The rule: the training rows of each client are dealt into five folds, stratified by class. For each fold a model is
trained on the other four, once for each learning rate, and scored on the fold. Of all pairs of a learning rate and a
number of rounds, the one with the highest accuracy is chosen: the mean over folds of the unweighted mean over clients.
Of equal ones it is the one with the lower loss, then with fewer rounds.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

import fedtrain
from fedtrain.runs.json_types import MetricRow
from fedtrain.runs.loop import run_experiment
from fedtrain.runs.manifest import build_manifest, describe_data

PAPER_METHODS = ("singleset", "fedavg", "fedprox", "fedper", "moon", "fedrod", "copa", "fedbn", "fedco2")
LEARNING_RATES = (0.01, 0.03)
ROUNDS = (10, 20, 50)
FOLDS = 5


@dataclass(frozen=True)
class Columns:
    """What the columns of a table mean."""

    client: str
    target: str
    split: str
    categories: tuple[str, ...] = ()


@dataclass(frozen=True)
class Setting:
    """A candidate, and how it did."""

    lr: float
    rounds: int
    accuracy: float
    loss: float


def write_folds(table: Path, columns: Columns, folder: Path, seed: int = 0) -> list[Path]:
    """A table of the training rows for each fold, in which that fold is the test part."""
    with table.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        names = list(reader.fieldnames or ())
        rows = [row for row in reader if row[columns.split] == "train"]
    strata: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        strata[row[columns.client], row[columns.target]].append(place)
    fold, dealt, rng = np.zeros(len(rows), dtype=int), defaultdict[str, int](int), np.random.default_rng(seed)
    for (client, _), places in sorted(strata.items()):
        for place in rng.permutation(places):
            fold[place] = dealt[client] % FOLDS  # one deal for all classes of a client: folds differ by a row at most
            dealt[client] += 1
    paths = []
    for number in range(FOLDS):
        paths.append(folder / f"fold-{number}.csv")
        with paths[-1].open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            parts = np.where(fold == number, "test", "train").tolist()
            writer.writerows({**row, columns.split: part} for row, part in zip(rows, parts, strict=True))
    return paths


def train_on_fold(table: Path, columns: Columns, method: str, lr: float, out: Path) -> list[MetricRow]:
    """The rows of a run that is scored after every candidate number of rounds."""
    planned = fedtrain.plan(
        dataset=table,
        client_column=columns.client,
        target=columns.target,
        split_column=columns.split,
        categories=columns.categories,
        method=method,
        lr=lr,
        rounds=max(ROUNDS),
        eval_every=int(np.gcd.reduce(ROUNDS)),
        metrics="none",
        threads=1,
        out=out,
    )
    experiment = planned.experiment
    manifest = build_manifest(experiment.config, describe_data(experiment.federation), "choose_settings")
    run_experiment(experiment, planned.folder, manifest)
    return planned.folder.load_rows()


def score_settings(runs: Iterable[tuple[float, Sequence[MetricRow]]]) -> list[Setting]:
    """Every pair of a learning rate and a number of rounds, from the rows of one run for each rate and fold."""
    found: dict[tuple[float, int], list[tuple[float, float]]] = defaultdict(list)
    for lr, rows in runs:
        for rounds in ROUNDS:
            mine = [
                row for row in rows if row["round"] == rounds and row["split"] == "test" and row["branch"] == "fused"
            ]
            found[lr, rounds].append((fmean(row["accuracy"] for row in mine), fmean(row["loss"] for row in mine)))
    return [
        Setting(lr, rounds, *(round(fmean(values), 12) for values in zip(*scores, strict=True)))
        for (lr, rounds), scores in found.items()
    ]


def choose(settings: Sequence[Setting]) -> Setting:
    """The most accurate; of equal ones the one with the lower loss, then with fewer rounds."""
    return min(settings, key=lambda one: (-one.accuracy, one.loss, one.rounds))


def main() -> None:
    """For each method the chosen setting, and on demand all that were tried."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    for name in ("client", "target", "split"):
        parser.add_argument("--target" if name == "target" else f"--{name}-column", dest=name, required=True)
    parser.add_argument("--categories", default="")
    parser.add_argument("--methods", default=",".join(PAPER_METHODS))
    parser.add_argument("--json", type=Path, help="write every candidate here")
    given = parser.parse_args()
    columns = Columns(given.client, given.target, given.split, tuple(filter(None, given.categories.split(","))))
    report = {}
    with tempfile.TemporaryDirectory() as name:
        folds = write_folds(given.table, columns, Path(name))
        for method in given.methods.split(","):
            runs = [
                (lr, train_on_fold(fold, columns, method, lr, Path(name) / f"{method}-{lr}-{fold.stem}"))
                for lr in LEARNING_RATES
                for fold in folds
            ]
            tried = score_settings(runs)
            best = choose(tried)
            report[method] = {"chosen": vars(best), "tried": [vars(one) for one in tried]}
            print(f"{method}: lr {best.lr:g}, {best.rounds} rounds: {100 * best.accuracy:.1f} %", flush=True)
            if given.json is not None:
                given.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
