"""How sure is a ranking of runs with one seed? Their test images are drawn anew, the same ones for all runs.

  python benchmarks/bootstrap_ranking.py RUN RUN ... [--draws 10000] [--data-dir DIR] [--json]

Every client's own model (the last checkpoint) predicts its own test images. Of these, as many are drawn with
replacement, client by client, and the mean accuracy of every run is taken on the same draw; 10,000 times. The intervals
hold 95 % of the draws. They speak of other test images, not of another seed of the network.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from numpy.typing import NDArray

from fedtrain.inference.evaluate import load_run_data
from fedtrain.inference.trained_run import TrainedRun, load_trained_run
from fedtrain.utils.malloc import keep_freed_memory
from theory.errors import InputError

CorrectFlags = NDArray[np.bool_]
AccuracyDraws = NDArray[np.float64]
RankedRun = dict[str, Any]
INTERVAL_PERCENTILES = (2.5, 97.5)


def find_correct_predictions(run: TrainedRun, data_dir: Path | None) -> dict[str, CorrectFlags]:
    """For each client, which of its test images its model gets right."""
    found = {}
    for client in load_run_data(run, data_dir).clients:
        if client.noise:
            raise InputError(f"{run.folder.path}: its images are noisy, so no two draws see the same; name other runs")
        predicted = run.compute_logits(client.name, client.test.inputs)["fused"].argmax(1).cpu()
        found[client.name] = (predicted == client.test.labels).numpy()
    return found


def resample_accuracies(right: Sequence[CorrectFlags], draws: int, rng: np.random.Generator) -> AccuracyDraws:
    """(draws, runs): the share that each run gets right of the same images, drawn with replacement.

    Images that the same runs get right are alike, so it is enough to draw how many there are of each kind.
    """
    kinds, counts = np.unique(np.stack(right, 1), axis=0, return_counts=True)
    drawn = rng.multinomial(counts.sum(), counts / counts.sum(), size=draws)
    shares: AccuracyDraws = drawn @ kinds / counts.sum()
    return shares


def rank_runs(
    names: Sequence[str], right: Sequence[dict[str, CorrectFlags]], draws: int, seed: int = 0
) -> list[RankedRun]:
    """The runs, the best first: mean accuracy over clients in %, its interval, and what is lost against the best."""
    rng = np.random.default_rng(seed)
    clients = list(right[0])
    means = 100 * np.mean(
        [resample_accuracies([one[client] for one in right], draws, rng) for client in clients], axis=0
    )
    here = [100 * float(np.mean([one[client].mean() for client in clients])) for one in right]
    order = sorted(range(len(names)), key=lambda k: -here[k])
    best = order[0]
    return [
        {
            "name": names[k],
            "mean": here[k],
            "interval": np.percentile(means[:, k], INTERVAL_PERCENTILES).tolist(),
            "behind": here[k] - here[best],
            "behind_interval": np.percentile(means[:, k] - means[:, best], INTERVAL_PERCENTILES).tolist(),
            "above_next": None if place + 1 == len(order) else float(np.mean(means[:, k] > means[:, order[place + 1]])),
        }
        for place, k in enumerate(order)
    ]


def format_table(found: Sequence[RankedRun]) -> str:
    """In Markdown."""
    heads = ("run", "mean test accuracy, %", "95 % of draws", "behind the best", "95 % of draws", "above the next in")
    rows = []
    for one in found:
        low, high = one["interval"]
        lost, least = one["behind_interval"]
        behind = f"{one['behind']:.1f} | {lost:.1f} to {least:.1f}" if one["behind"] else "- | -"
        above = "-" if one["above_next"] is None else f"{100 * one['above_next']:.0f} % of draws"
        rows.append(f"| {one['name']} | {one['mean']:.1f} | {low:.1f} to {high:.1f} | {behind} | {above} |")
    return "\n".join([f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *rows])


@click.command(help=__doc__)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--draws", type=click.IntRange(100), default=10_000, show_default=True)
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where the data are.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(runs: tuple[Path, ...], draws: int, data_dir: Path | None, as_json: bool) -> None:
    """See the docstring of this file."""
    keep_freed_memory()
    names, right, tested = [], [], set()
    for path in runs:
        run = load_trained_run(path)
        torch.set_num_threads(run.config.machine.threads or torch.get_num_threads())
        click.echo(f"{path} ...", err=True)
        tested.add(run.manifest["data"]["sha256"])
        if len(tested) > 1:
            raise InputError(f"{path}: it has other data than those before it; name runs on the same data")
        names.append(run.config.method.title)
        right.append(find_correct_predictions(run, data_dir))
    found = rank_runs(names, right, draws)
    click.echo(json.dumps(found) if as_json else format_table(found))


if __name__ == "__main__":
    main()
