"""A method on one network: what it shares, keeps and shows, and the bytes of a round, without any data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from fedtrain.about.anatomy import Anatomy, anatomy, branch
from fedtrain.about.parts import in_words
from fedtrain.config import Config
from fedtrain.data.catalogue import dataset
from fedtrain.experiment import get_model_builder
from fedtrain.methods.base import ModelFactory
from fedtrain.partition import all_entries, entries_under
from fedtrain.presets import resolve_preset
from theory.errors import InputError

PRESETS = {"digits": "digits", "alexnet": "office", "cifar": "cifar10", "two-layer": "digits"}
"""The data set that each network is for; its preset decides batch norm, the cut and the method's options."""


@dataclass(frozen=True)
class MethodOn:
    """A method on a network, as the preset of the network's data set has it."""

    config: Config
    clients: int
    words: dict[str, str]
    """Which entries are ``shared``, ``personal`` and ``published``."""
    parts: Anatomy
    shared: dict[str, list[str]]
    """Names that are averaged, by the part of the module that they are in."""


def method_on(name: str, model: str, clients: int | None = None) -> MethodOn:
    """Take the method apart on this network; without a number of clients there are as many as in the preset."""
    given: dict[str, Any] = {"method": {"name": name}, "model": {"name": model}}
    config = resolve_preset(PRESETS[model], given)
    data = dataset(config.data.dataset)
    clients = config.data.clients or len(data.domains) if clients is None else clients
    if clients < 1:
        raise InputError(f"clients is {clients}; there must be at least 1")
    method, make = (
        config.method,
        get_model_builder(config.model, config.method, len(data.classes), (3, data.size, data.size)),
    )
    with torch.device("meta"):
        module = method.build(ModelFactory(make, 0))
    shared = method.shared(module)
    names = {
        "shared": shared,
        "personal": all_entries(module) - shared,
        "published": entries_under(module, method.published) if method.published else frozenset(),
    }
    words = {kind: in_words(module, entries) for kind, entries in names.items()}
    grouped: dict[str, list[str]] = {}
    for entry in module.state_dict():
        if entry in shared:
            grouped.setdefault(branch(entry), []).append(entry)
    return MethodOn(config, clients, words, anatomy(method, make, clients), grouped)
