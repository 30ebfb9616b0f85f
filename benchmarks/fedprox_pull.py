"""Does FedProx's pull matter? One local epoch of every client with it and without it, from the same weights.

  python benchmarks/fedprox_pull.py [--dataset digits] [--data real] [--json]

For each client: how far FedAvg moves its weights (the norm of the difference), how far the pull of FedProx can have
moved them at the most, and how far from FedAvg's they end: with the squared norm (μ 0.01), as in the published code
(μ 0.001, the norm itself), and with a pull of no account (μ 1e-9). Batches and all else are the same, so the last one
shows how far a network with batch norm and ReLU ends elsewhere for a reason as small as rounding.
"""

from __future__ import annotations

import json
from dataclasses import replace
from math import sqrt
from typing import Any

import click
import torch

from fedtrain.federated.messages import Update
from fedtrain.methods.fedprox import FedProx
from fedtrain.parameters import StateDict
from fedtrain.runs.experiment import build_experiment, plan_experiment
from fedtrain.utils.malloc import keep_freed_memory

METHODS: dict[str, dict[str, Any]] = {
    "none": {"name": "fedavg"},
    "squared": {"name": "fedprox"},
    "published": {"name": "fedprox", "squared": False, "mu": 1e-3},
    "next to none": {"name": "fedprox", "mu": 1e-9},
}
PullByClient = dict[str, dict[str, float]]


def compute_distance(a: StateDict, b: StateDict) -> float:
    """Over all weights; running statistics are not moved by gradients."""
    weights = (name for name in a if a[name].is_floating_point() and "running_" not in name)
    return sqrt(sum(float((a[name].double() - b[name].double()).square().sum()) for name in weights))


def compute_max_pull(method: FedProx, way: float) -> float:
    """The longest gradient that the pull can have, for a client that goes so far."""
    return method.mu * way if method.squared else method.mu / 2


def measure_pull(dataset: str, source: str, more: dict[str, Any] | None = None) -> PullByClient:
    """By client: how far it moves; of each pull what it can move, and how far from there it ends."""
    found: PullByClient = {}
    alone: dict[str, StateDict] = {}
    for name, chosen in METHODS.items():
        config, data = plan_experiment(dataset, {"data": {"source": source}, "method": chosen, **(more or {})})
        backend = build_experiment(config, data).build_backend()
        message = replace(backend.initial_broadcast(), round=1)  # in round 0 the published one does not pull
        for one in backend.train(message, backend.client_names):
            if not isinstance(one, Update):
                raise RuntimeError(f"{one.client} failed")
            if not isinstance(config.method, FedProx):
                alone[one.client] = one.shared
                found[one.client] = {"moved": compute_distance(one.shared, message.shared)}
                continue
            steps = config.local.epochs * -(-one.num_examples // config.local.batch_size)
            pull = compute_max_pull(config.method, compute_distance(one.shared, message.shared))
            ends = compute_distance(one.shared, alone[one.client])
            found[one.client] |= {f"{name}: pull": steps * config.local.lr * pull, f"{name}: ends": ends}
    return found


def format_table(found: PullByClient) -> str:
    """In Markdown."""
    kinds = [name for name in METHODS if name != "none"]
    heads = ["client", "an epoch moves it", *(word for kind in kinds for word in (f"{kind}: pull", "ends away"))]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for client, one in found.items():
        cells = [f"{one[f'{kind}: {word}']:.2g}" for kind in kinds for word in ("pull", "ends")]
        lines.append(f"| {client} | {one['moved']:.2g} | {' | '.join(cells)} |")
    return "\n".join(lines)


@click.command(help=__doc__)
@click.option("--dataset", default="digits", show_default=True)
@click.option("--data", "source", type=click.Choice(("auto", "real", "standin")), default="auto", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(dataset: str, source: str, as_json: bool) -> None:
    """See the docstring of this file."""
    keep_freed_memory()
    torch.set_num_threads(1)
    found = measure_pull(dataset, source)
    click.echo(json.dumps(found) if as_json else format_table(found))


if __name__ == "__main__":
    main()
