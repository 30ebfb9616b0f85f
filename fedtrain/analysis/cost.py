"""Estimate what a run will cost: flops are counted on shapes, the machine's speed is measured."""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import torch
from torch import nn

from fedtrain.analysis.flops import FlopCounter, fill_with_virtual_zeros
from fedtrain.config.schema import Config
from fedtrain.federated.server import count_heads_sent, sample_cohort
from fedtrain.methods.base import AnyMethod, ModelFactory, Peers, Phase, RoundContext, list_losses
from fedtrain.models import Net
from fedtrain.runs.experiment import Experiment

EFFICIENCY = 0.35
"""Of the speed of a large matrix product, what training reaches."""
MATRIX_SIDE = 512
"""Of the matrices: as fast as larger ones, and over in milliseconds."""


@dataclass(frozen=True)
class EngineCost:
    """Seconds beyond training that the place where clients train takes: roughly, as measured on two cores."""

    first_round: float = 0.0
    """More than in any other: processes are started, data are read."""
    each_round: float = 0.0
    each_byte: float = 0.0
    """That is sent, to any client or from it."""

    def estimate_seconds(self, rounds: int, bytes_per_round: float) -> float:
        """From now to the end, if there are so many rounds left."""
        return self.first_round + rounds * (self.each_round + self.each_byte * bytes_per_round)


NO_ENGINE_COST = EngineCost()
"""Of clients that train in this very process."""


def estimate_round_seconds(experiment: Experiment) -> tuple[float, float]:
    """Roughly: (training, evaluation) of one round on this machine, right within a factor of two or three."""
    data, config = experiment.federation.clients, experiment.config
    names, inputs = [client.name for client in data], data[0].train.inputs.shape[1:]
    heard = 1 + count_heads_sent(len(data), config.server.peers)
    flops = count_flops(config.method, experiment.get_model_builder(), inputs, heard, config.local.epochs)
    chosen = sample_cohort(names, config.server.participation, config.seed, 0)
    trained = len(chosen) * sum(len(client.train) for client in data) / len(data)
    always = config.evaluation.test == "always"  # else so seldom that it hardly counts
    evaluated = (config.evaluation.clients or len(data)) / len(data)
    tested = min(1, evaluated) * sum(len(client.test) * always + len(client.val or ()) for client in data)
    prepared = min(1, evaluated) * sum(len(client.train) for client in data)
    rate = EFFICIENCY * measure_matmul_rate(config.machine.resolve_device())
    return flops.training * trained / rate, (flops.prediction * tested + flops.preparation * prepared) / rate


def estimate_seconds_left(config: Config, round_seconds: tuple[float, float], done: int = 0) -> float:
    """Roughly: from after ``done`` rounds to the end, if a round takes so long."""
    rounds, due = config.server.rounds, config.evaluation.is_due
    training, evaluation = round_seconds
    evaluations = sum(due(round, rounds) for round in range(done + 1, rounds + 1))
    return (rounds - done) * training + evaluations * evaluation


class FlopCounts(NamedTuple):
    """Of one round of one client."""

    training: float
    """For each training sample."""
    prediction: float
    """For each evaluated sample."""
    preparation: float = 0.0
    """For each training sample, before a client predicts."""


def count_flops(
    method: AnyMethod, make: Callable[[], Net], inputs: tuple[int, ...], clients: int, epochs: int
) -> FlopCounts:
    """What a round and its evaluation take, whatever engine trains."""
    with torch.device("meta"):  # no memory, no time for weights
        module = method.build(ModelFactory(make, 0))
        is_looked_at = bool(method.published) or method.needs_round_start(1)
        frozen = copy.deepcopy(module).requires_grad_(False) if is_looked_at else None
    fill_with_virtual_zeros(module)
    if frozen is not None:
        fill_with_virtual_zeros(frozen)
    peers = [frozen.get_submodule(method.published)] * (clients - 1) if frozen is not None and method.published else []
    x, y = torch.zeros(2, *inputs), torch.zeros(2, dtype=torch.int64)
    view = RoundContext(1, Peers(peers), torch.ones(1), frozen)

    def go_down(phases: Sequence[Phase[nn.Module]]) -> None:
        for loss, times in Counter(loss for phase in phases for loss in list_losses(phase)).items():
            before = counter.flops
            loss(module, (x, y), view)
            counter.flops += (times - 1) * (counter.flops - before)

    with FlopCounter() as counter:
        go_down(method.phases(view.round, epochs))
    training = counter.flops
    with FlopCounter() as counter:
        go_down(method.phases_before_prediction())
        with torch.no_grad():
            view = method.prepare_prediction(module, replace(view, training_samples=lambda: iter([(x, y)])))
    preparation = counter.flops
    with FlopCounter() as counter, torch.no_grad():
        method.branches(module, x, view)
    return FlopCounts(training / len(x), counter.flops / len(x), preparation / len(x))


@cache
def measure_matmul_rate(device: torch.device) -> float:
    """Flops a second of a matrix product here and now, the best of some trials: a busy machine slows most."""
    a = torch.ones(MATRIX_SIDE, MATRIX_SIDE, device=device)
    best = float("inf")
    for _ in range(24):
        start = time.perf_counter()
        (a @ a).sum().item()
        best = min(best, time.perf_counter() - start)
    return 2 * MATRIX_SIDE**3 / best
