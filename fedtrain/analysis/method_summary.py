"""A method on one network: what it shares, keeps and shows, and the bytes of a round, without any data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from fedtrain.analysis.entry_description import describe_entries
from fedtrain.analysis.model_summary import ModelSummary, get_entry_prefix, summarise_model
from fedtrain.config.presets import resolve_preset
from fedtrain.config.schema import Config
from fedtrain.data.datasets import get_dataset_info
from fedtrain.methods.base import ModelFactory
from fedtrain.parameters import all_entries, entries_under
from fedtrain.runs.experiment import get_model_builder
from theory.errors import InputError

PRESET_FOR_MODEL = {
    "digits": "digits",
    "alexnet": "office",
    "cifar": "cifar10",
    "two-layer": "digits",
    "mlp": "digits",
    "resnet": "digits",
}
"""The data set that each network is for; its preset decides batch norm, the cut and the method's options."""


@dataclass(frozen=True)
class MethodSummary:
    """A method on a network, as the preset of the network's data set has it."""

    config: Config
    clients: int
    entry_descriptions: dict[str, str]
    """Which entries are ``shared``, ``personal`` and ``published``."""
    model_summary: ModelSummary
    shared_entries: dict[str, list[str]]
    """Names that are averaged, by the part of the module that they are in."""


def summarise_method(name: str, model: str, clients: int | None = None) -> MethodSummary:
    """Take the method apart on this network; without a number of clients there are as many as in the preset."""
    given: dict[str, Any] = {"method": {"name": name}, "model": {"name": model}}
    config = resolve_preset(PRESET_FOR_MODEL[model], given)
    data = get_dataset_info(config.data.dataset)
    clients = config.data.clients or len(data.domains) if clients is None else clients
    if clients < 1:
        raise InputError(f"clients is {clients}; there must be at least 1")
    method, make = (
        config.method,
        get_model_builder(config.model, config.method, len(data.classes), data.input_shape),
    )
    with torch.device("meta"):
        module = method.build(ModelFactory(make, 0))
    shared = method.shared(module)
    names = {
        "shared": shared,
        "personal": all_entries(module) - shared,
        "published": entries_under(module, method.published) if method.published else frozenset(),
    }
    words = {kind: describe_entries(module, entries) for kind, entries in names.items()}
    grouped: dict[str, list[str]] = {}
    for entry in module.state_dict():
        if entry in shared:
            grouped.setdefault(get_entry_prefix(entry), []).append(entry)
    return MethodSummary(config, clients, words, summarise_model(method, make, clients), grouped)
