"""Which method will win, predicted with the kernels of the network that would be trained, at its initial weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedtrain.config.schema import Config
from fedtrain.data.client_data import Federation
from fedtrain.federated.aggregate import aggregate
from fedtrain.federated.client import ClientTrainer
from fedtrain.inference.kernel_study import KernelStudyOptions, build_checkpoint, draw_samples
from fedtrain.methods.base import AnyMethod
from fedtrain.methods.fedavg import FedAvg
from fedtrain.models import Net
from fedtrain.parameters import EntryNames, all_entries
from fedtrain.runs.checkpoint import RunState
from fedtrain.runs.experiment import Experiment
from theory.errors import InputError
from theory.forecast import Forecast
from theory.networks.forecast import compute_mean_ntk, forecast_networks
from theory.networks.kernels import ClientSamples, FederatedKernel

TOTAL_SAMPLES = 500
"""Of all clients together, unless it is said how many."""


@dataclass(frozen=True)
class NamedSharing(FedAvg):
    """A method that is nothing but its shared names: one network, of which the entries that match are averaged."""

    patterns: tuple[str, ...] = ("*",)
    title: ClassVar[str] = "named entries"

    def shared(self, module: Net) -> EntryNames:
        """Every entry that matches one of the patterns."""
        entries = all_entries(module)
        for pattern in self.patterns:
            if not any(fnmatchcase(name, pattern) for name in entries):
                raise InputError(f"no entry of the network matches {pattern!r}; there are {', '.join(sorted(entries))}")
        return frozenset(name for name in entries if any(fnmatchcase(name, one) for one in self.patterns))


def count_network_samples(data: Federation, samples: int | None) -> list[int]:
    """How many training samples of each client are looked at: so many, or as many as are quick."""
    most = samples or max(1, TOTAL_SAMPLES // len(data.clients))
    return [min(most, len(client.train)) for client in data.clients]


def forecast_run(
    configs: Mapping[str, Config],
    data: Federation,
    samples: int | None = None,
    seed: int = 0,
    memory: int | None = None,
) -> Forecast:
    """Foretell how runs with these settings, one for each title, would compare on these clients; nothing is trained.

    Batch norm does nothing sensible before it has seen data. So its statistics are measured first, by every client on
    its own samples; the server averages those that the method shares, as it would after a round.
    """
    first = next(iter(configs.values()))
    most = max(count_network_samples(data, samples))
    options = KernelStudyOptions(samples=most, dtype="float32", seed=seed)
    chosen = draw_samples(data, first, options, first.machine.resolve_device())
    found = {title: compute_kernels(config, data, chosen, memory) for title, config in configs.items()}
    return forecast_networks(found, torch.cat(list(chosen.labels)).cpu(), seed=seed, names=chosen.names)


def compute_kernels(
    config: Config, data: Federation, samples: ClientSamples, memory: int | None = None
) -> list[FederatedKernel]:
    """The kernels of a method's models as training begins: of each, or of its prediction if that is not their sum."""
    plain = replace(
        config,
        machine=replace(config.machine, fast_path=False, backend="serial", amp=False),
        server=replace(config.server, codec="none", broadcast_codec="none", heads_every=1),
    )
    trainer = Experiment(plain, data).build_client_trainer()
    state = measure_statistics(trainer, data, samples, config)
    checkpoint = build_checkpoint(state, config, data, trainer, samples)
    models = list(checkpoint.networks.values())
    if len(models) > 1 and not checkpoint.is_sum:
        models = [checkpoint.fused]
    return [compute_mean_ntk(networks, samples, checkpoint.shared, memory) for networks in models]


@torch.no_grad()
def measure_statistics(trainer: ClientTrainer, data: Federation, samples: ClientSamples, config: Config) -> RunState:
    """The start of a run after a round in which nobody takes a step: only batch norm has looked at the samples."""
    names = [client.name for client in data.clients]
    message, states = trainer.initial_broadcast(names), trainer.initial_client_states(names)
    updates, kept = [], {}
    for client, x in zip(data.clients, samples.inputs, strict=True):
        context = trainer.start_round(client.to(trainer.device), states[client.name], message)
        look_at(trainer.module, trainer.method, x, context)
        update, kept[client.name] = trainer.build_update(client, states[client.name], message, 0.0)
        updates.append(update)
    return RunState(aggregate(message, updates, config.server.weights), kept)


def look_at(module: nn.Module, method: AnyMethod, x: Tensor, context: object) -> None:
    """One pass over the samples; batch norm keeps their mean and variance, layer after layer."""
    layers = [layer.train() for layer in module.eval().modules() if isinstance(layer, _BatchNorm)]
    usual = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # the mean over all that was seen
    method.branches(module, x, context)  # type: ignore[arg-type]
    for layer, momentum in zip(layers, usual, strict=True):
        layer.momentum = momentum
    module.eval()
