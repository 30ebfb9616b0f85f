"""What of a client's module is shared, personal and published, and what a round costs: known before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from fedtrain.config.schema import CodecName
from fedtrain.federated.codec import encode_head, encode_shared
from fedtrain.federated.communication import CommunicationCost, PayloadBytes, measure_message
from fedtrain.federated.messages import extract_published
from fedtrain.federated.server import count_heads_sent
from fedtrain.methods.base import AnyMethod, ModelFactory
from fedtrain.models import Net
from fedtrain.parameters import EntryNames, all_entries, batch_norm_entries
from fedtrain.runs.experiment import DTYPES, Experiment


@dataclass(frozen=True)
class EntrySummary:
    """Some entries of the state dict: how many numbers, how many of them in batch norm, and below which modules."""

    numbers: int
    in_norm: int
    places: tuple[str, ...]


@dataclass(frozen=True)
class ModelSummary:
    """A client's module taken apart."""

    shared: EntrySummary
    personal: EntrySummary
    published: EntrySummary
    traffic: CommunicationCost
    """Of one client in one round."""


def summarise_model(
    method: AnyMethod,
    make: Callable[[], Net],
    clients: int,
    dtype: torch.dtype = torch.float32,
    peers: int = 0,
    codec: CodecName = "none",
) -> ModelSummary:
    """Take a method's module apart, without memory for its weights; ``peers`` and ``codec`` are the server's."""
    with torch.device("meta"):
        module = method.build(ModelFactory(make, 0)).to(dtype)
    shared = method.shared(module)
    head = extract_published(method, module.state_dict())
    state, norm = module.state_dict(), batch_norm_entries(module)
    averaged = {name: value for name, value in state.items() if name in shared}
    up = measure_message(encode_shared(averaged, averaged, codec), norm, [encode_head(head, codec)])
    received = measure_message(averaged, norm, [])
    down = PayloadBytes(received.shared, received.bn, up.head * count_heads_sent(clients, peers))
    names = frozenset(f"{method.published}.{name}" for name in head)
    personal = all_entries(module) - shared
    return ModelSummary(
        summarise_entries(module, shared),
        summarise_entries(module, personal),
        summarise_entries(module, names),
        CommunicationCost(up, down),
    )


def summarise_experiment(experiment: Experiment) -> ModelSummary:
    """Take apart the module that an experiment trains."""
    config = experiment.config
    return summarise_model(
        config.method,
        experiment.get_model_builder(),
        len(experiment.federation.clients),
        DTYPES[config.machine.dtype],
        config.server.peers,
        config.server.codec,
    )


def summarise_entries(module: nn.Module, names: EntryNames) -> EntrySummary:
    """Count what these names hold."""
    state, norm = module.state_dict(), batch_norm_entries(module)
    numbers = sum(state[name].numel() for name in names)
    in_norm = sum(state[name].numel() for name in names & norm)
    places = {get_entry_prefix(name) for name in names}
    return EntrySummary(numbers, in_norm, tuple(sorted(places)))


def get_entry_prefix(name: str) -> str:
    """``online.features.0.weight`` is in ``online.features``, ``head.0.bias`` in ``head``."""
    steps = name.split(".")[:-1]
    named = [step for step in steps if not step.isdigit()]
    return ".".join(named[:2]) or name
