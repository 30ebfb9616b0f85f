"""What is run: a network of a few kB and one of 228 MB, on so few stand-in images that messages are all there is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedtrain.config.schema import Config
from fedtrain.config.toml import merge_tables
from fedtrain.data.build import assemble_federation
from fedtrain.data.source import LoadedDataset
from fedtrain.runs.experiment import Experiment, build_experiment, plan_experiment

COMMON_SETTINGS: dict[str, Any] = {
    "machine": {"threads": 1, "device": "cpu"},
    "evaluation": {"every": 10**6, "report": "last"},
    "data": {"source": "standin", "percent": "none", "val_size": 0, "augment": False},
}
NETWORK_SIZES: dict[str, tuple[str, dict[str, Any]]] = {
    "small": (
        "digits",
        {
            "data": {"train_size": 24},
            "model": {"name": "two-layer", "width": 8},
            "local": {"lr": 0.05, "batch_size": 16},
        },
    ),
    "large": ("office", {"data": {"train_size": 8}, "model": {"name": "alexnet"}, "local": {"batch_size": 8}}),
}
"""Preset, and what is different."""


@dataclass(frozen=True)
class Case:
    """A method on a network."""

    size: str
    method: str
    rounds: int
    """That are made; there would be one more, which is evaluated and so never begun."""

    @cached_property
    def config_and_source(self) -> tuple[Config, LoadedDataset]:
        """The configuration, and where its data come from."""
        preset, own = NETWORK_SIZES[self.size]
        last = {"method": {"name": self.method}, "server": {"rounds": self.rounds + 1}}
        return plan_experiment(preset, merge_tables(COMMON_SETTINGS, own, last))

    @property
    def num_clients(self) -> int:
        """How many there are; no image is drawn for this."""
        config, found = self.config_and_source
        return len(assemble_federation(config.data, found.without_inputs()).clients)

    def build_experiment(self) -> Experiment:
        """With all clients' data."""
        return build_experiment(*self.config_and_source)
