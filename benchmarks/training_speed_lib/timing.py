"""What a round must cost, what the machine could do, and where the time goes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile

from fedtrain.analysis.cost import count_flops
from fedtrain.federated.aggregate import aggregate
from fedtrain.federated.messages import Split
from fedtrain.federated.server import sample_cohort
from fedtrain.runs.experiment import Experiment

OPERATION_KINDS = {
    "convolution": ("conv",),
    "matrix products": ("mm", "linear", "matmul", "_product"),
    "batch norm": ("batch_norm", "batchnorm"),
    "pooling and activation": ("pool", "relu", "threshold", "clamp_min"),
    "losses": ("softmax", "nll_loss", "kl_div", "cross_entropy", "argmax", "xlogy"),
    "data": ("index", "grid", "div_", "sub_", "copy", "::to", "clone", "contiguous"),
}
"""A kind of work by what the names of torch's operations contain; the first that fits."""


def count_useful_flops(experiment: Experiment, splits: Sequence[Split], rounds: int) -> list[float]:
    """Of each round after the first: the products that a round is made of, as one counts them by hand."""
    data, config = experiment.federation.clients, experiment.config
    names = [client.name for client in data]
    inputs = tuple(data[0].train.inputs.shape[1:])
    flops = count_flops(config.method, experiment.get_model_builder(), inputs, len(data), config.local.epochs)
    scored = sum(len(getattr(client, split)) for client in data for split in splits)
    sizes = {client.name: len(client.train) for client in data}
    cohorts = [sample_cohort(names, config.server.participation, config.seed, round) for round in range(1, rounds)]
    evaluation = flops.prediction * scored + flops.preparation * sum(sizes.values())
    return [flops.training * sum(sizes[name] for name in chosen) + evaluation for chosen in cohorts]


class FlopRate(NamedTuple):
    """Flops a second."""

    wall: float
    cpu: float
    """A second of the processor, of which several threads use several at a time."""


def measure_sgemm_rate(size: int, trials: int = 8) -> FlopRate:
    """Of a square product, the best of some trials."""
    a = torch.ones(size, size)
    _ = a @ a
    times = []
    for _ in range(trials):
        wall, cpu = time.perf_counter(), time.process_time()
        _ = a @ a
        times.append((time.perf_counter() - wall, time.process_time() - cpu))
    wall, cpu = (min(each) for each in zip(*times, strict=True))
    return FlopRate(2 * size**3 / wall, 2 * size**3 / cpu)


def profile_round(experiment: Experiment, splits: Sequence[Split]) -> dict[str, float]:
    """Shares of a second round."""
    backend, server, seed = experiment.build_backend(), experiment.config.server, experiment.config.seed
    message = replace(backend.initial_broadcast(), round=1)
    chosen = sample_cohort(backend.client_names, server.participation, seed, 1)
    backend.train(message, chosen[:1])  # to have memory and threads at hand
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        begun = time.perf_counter()
        answers: Any = backend.train(message, chosen)
        backend.evaluate(aggregate(message, answers, server.weights), splits)
        took = time.perf_counter() - begun
    spent = dict.fromkeys([*OPERATION_KINDS, "optimiser"], 0.0)
    for event in seen.events() or ():
        kind = classify_operation(event)
        if kind:
            spent[kind] += event.self_cpu_time_total / 1e6
    return {kind: seconds / took for kind, seconds in spent.items()} | {"rest": 1 - sum(spent.values()) / took}


def classify_operation(event: Any) -> str | None:
    """Optimiser is all that happens within it."""
    above: Any = event
    while above is not None:
        if above.name.startswith("Optimizer."):
            return "optimiser"
        above = above.cpu_parent
    name = event.name.lower()
    return next((kind for kind, parts in OPERATION_KINDS.items() if any(part in name for part in parts)), None)
