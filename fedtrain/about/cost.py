"""What a run will cost, foretold: flops are counted on torch's meta device, the machine's speed is measured."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import torch
from torch.utils.flop_counter import FlopCounterMode

from fedtrain.bench import Bench
from fedtrain.data.clients import ClientData, Samples
from fedtrain.experiment import Experiment
from fedtrain.protocol import cohort

EFFICIENCY = 0.35
"""Of the speed of a large matrix product, what training reaches."""


def seconds_a_round(experiment: Experiment) -> tuple[float, float]:
    """Roughly: (training, evaluation) of one round on this machine, right within a factor of two or three."""
    data, config = experiment.federation.clients, experiment.config
    names = [client.name for client in data]
    largest = max(data, key=lambda client: len(client.train))
    with torch.device("meta"):  # no memory, no time for weights
        bench = experiment.bench("meta")
        train, forward = flops(bench, largest, names)
    chosen = cohort(names, config.server.sample, config.seed, 0)
    trained = len(chosen) * sum(len(client.train) for client in data) / len(data)
    tested = sum(len(client.test) + len(client.val or ()) for client in data)
    rate = EFFICIENCY * matrix_rate(config.machine.resolved())
    return train * trained / rate, forward * tested / rate


def seconds_left(experiment: Experiment, done: int = 0) -> float:
    """Roughly: from after ``done`` rounds to the end."""
    rounds, due = experiment.config.server.rounds, experiment.config.evaluation.due
    training, evaluation = seconds_a_round(experiment)
    evaluations = sum(due(round, rounds) for round in range(done + 1, rounds + 1))
    return (rounds - done) * training + evaluations * evaluation


def flops(bench: Bench, client: ClientData, names: Sequence[str]) -> tuple[float, float]:
    """Flops for each training sample of a round, and for each evaluated sample."""
    size = min(len(client.train), bench.local.batch_size)
    samples = Samples(client.train.inputs[:size], client.train.labels[:size]).to("meta")
    few = ClientData(client.name, samples, samples)
    later = replace(bench.opening(names), round=1)
    personal = bench.start(client.name)
    with FlopCounterMode(display=False) as training:
        bench.adapt(few, personal, later)
    with FlopCounterMode(display=False) as forward:
        bench.predict(few, personal, later, samples.inputs)
    return training.get_total_flops() / size, forward.get_total_flops() / size


@cache
def matrix_rate(device: torch.device) -> float:
    """Flops a second of a matrix product here and now, the best of some trials: a busy machine slows most."""
    a = torch.ones(1024, 1024, device=device)
    best = float("inf")
    for _ in range(12):
        start = time.perf_counter()
        (a @ a).sum().item()
        best = min(best, time.perf_counter() - start)
    return 2 * 1024**3 / best
