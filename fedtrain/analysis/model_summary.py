"""What of a client's module is shared, personal and published, and what a round costs: known before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from fedtrain.config.schema import ServerSettings
from fedtrain.federated.codec.states import count_encoded_bytes
from fedtrain.federated.communication import CommunicationCost, PayloadBytes
from fedtrain.federated.messages import extract_published
from fedtrain.federated.server import count_heads_sent
from fedtrain.methods.base import AnyMethod, ModelFactory
from fedtrain.models import Net
from fedtrain.parameters import EntryNames, StateDict, all_entries, batch_norm_entries
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
    """Of one client in one round with heads."""


def summarise_model(
    method: AnyMethod,
    make: Callable[[], Net],
    clients: int,
    dtype: torch.dtype = torch.float32,
    server: ServerSettings | None = None,
) -> ModelSummary:
    """Take a method's module apart, without memory for its weights."""
    settings = server or ServerSettings()
    with torch.device("meta"):
        module = method.build(ModelFactory(make, 0)).to(dtype)
    shared = method.shared(module)
    head = extract_published(method, module.state_dict())
    state, norm = module.state_dict(), batch_norm_entries(module)
    averaged = {name: value for name, value in state.items() if name in shared}
    sent = count_encoded_bytes(head, settings.codec)
    up = foretell_payload(averaged, norm, settings.codec, sent)
    down = foretell_payload(averaged, norm, settings.broadcast_codec, sent * count_heads_sent(clients, settings.peers))
    names = frozenset(f"{method.published}.{name}" for name in head)
    personal = all_entries(module) - shared
    return ModelSummary(
        summarise_entries(module, shared),
        summarise_entries(module, personal),
        summarise_entries(module, names),
        CommunicationCost(up, down),
    )


def foretell_payload(shared: StateDict, norm: EntryNames, codec: str, heads: int) -> PayloadBytes:
    """The bytes of a message with these entries in this codec, and so many bytes of heads."""
    bn = count_encoded_bytes({name: value for name, value in shared.items() if name in norm}, codec)
    return PayloadBytes(count_encoded_bytes(shared, codec) - bn, bn, heads)


def summarise_experiment(experiment: Experiment) -> ModelSummary:
    """Take apart the module that an experiment trains."""
    config = experiment.config
    return summarise_model(
        config.method,
        experiment.get_model_builder(),
        len(experiment.federation.clients),
        DTYPES[config.machine.dtype],
        config.server,
    )


def foretell_run(traffic: CommunicationCost, server: ServerSettings, cohort: int) -> CommunicationCost:
    """What such rounds cost in all, of which some are without heads, with so many clients in each."""
    rounds, every = server.rounds, server.heads_every
    up, down = (
        PayloadBytes(
            cohort * rounds * each.shared,
            cohort * rounds * each.bn,
            cohort * times * each.head,
        )
        for each, times in ((traffic.up, rounds // every), (traffic.down, -(-rounds // every)))
    )
    return CommunicationCost(up, down)


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
