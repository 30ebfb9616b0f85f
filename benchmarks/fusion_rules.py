"""Every rule of fusion on what a run has predicted: python benchmarks/fusion_rules.py RUN [--pair online offline].

RUN/predictions.npz must be there: fedco2 evaluate RUN --save-predictions RUN/predictions.npz. Clients choose by their
validation samples. The branches may be any two of a run; without transfer each trains as it would alone, so a
cooperation of four methods holds all their pairs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import torch

from fedtrain.methods.fusion import average_probabilities, choose_branch_weights, fuse_weighted
from fedtrain.registry import FusionRule
from fedtrain.runs.predictions import PREDICTIONS_FILE, SavedPredictions, load_predictions

CHOSEN: tuple[FusionRule, ...] = ("weighted", "best")
RULES = ("logits", "probabilities", *CHOSEN)


def compare_rules(found: SavedPredictions, online: str = "online", offline: str = "offline") -> list[dict[str, Any]]:
    """Of each client the test accuracy of both branches alone and by every rule."""
    rows = []
    for client in found.clients:
        val, test = found.select(client, "val"), found.select(client)
        on_val, branches = (
            {name: torch.from_numpy(part.logits[of]) for name, of in (("online", online), ("offline", offline))}
            for part in (val, test)
        )
        said = dict(branches)
        said["logits"] = torch.stack(list(branches.values())).sum(0)
        said["probabilities"] = average_probabilities(branches)
        for rule in CHOSEN:
            weights = choose_branch_weights(rule, on_val, torch.from_numpy(val.label))
            said[rule] = fuse_weighted(branches, weights)
        right = {rule: (logits.argmax(-1).numpy() == test.label).mean() for rule, logits in said.items()}
        rows.append(
            {"client": client, **{rule: round(float(share), 6) for rule, share in right.items()}}
            | {"validation": len(val.label), "test": len(test.label)}
        )
    return rows


def format_table(rows: list[dict[str, Any]]) -> str:
    """In Markdown: means over clients in %, and points above the better branch."""
    means = {rule: 100 * sum(row[rule] for row in rows) / len(rows) for rule in ("online", "offline", *RULES)}
    better = max(means["online"], means["offline"])
    gaps = ["-", "-", *(f"{means[rule] - better:+.1f}" for rule in RULES)]
    cells = [f"{mean:.1f}" for mean in means.values()]
    lines = [("", *means), ("---", *(["---:"] * len(means))), ("accuracy", *cells), ("above the better", *gaps)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@click.command(help=__doc__)
@click.argument("run", type=click.Path(path_type=Path, exists=True))
@click.option("--pair", nargs=2, default=("online", "offline"), show_default=True, help="Two branches of the run.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with every client.")
def main(run: Path, pair: tuple[str, str], as_json: bool) -> None:
    """See the docstring of this file."""
    found = load_predictions(run / PREDICTIONS_FILE)
    rows = compare_rules(found, *pair)
    click.echo(json.dumps({"round": found.round, "clients": rows}) if as_json else format_table(rows))


if __name__ == "__main__":
    main()
