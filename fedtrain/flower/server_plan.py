"""What the server of a Flower run is to do, and how a Flower app carries it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

from fedtrain.config.schema import Config, parse_config
from fedtrain.flower.allowed_code import load_allowed_code
from fedtrain.runs.folder import RunFolder
from theory.errors import InputError


@dataclass(frozen=True)
class ServerPlan:
    """What the server is to do."""

    config: Config
    folder: RunFolder
    num_clients: int
    """How many there are."""
    min_clients: int
    """How many must answer in a round; all others are waited for only so long."""
    round_timeout: float
    command: str
    stop_requested: Event = field(default_factory=Event)

    def __post_init__(self) -> None:
        if not 1 <= self.min_clients <= self.num_clients:
            there = f"there are {self.num_clients} clients; choose from 1 to {self.num_clients}"
            raise InputError(f"{self.min_clients} clients cannot be required: {there}", options=("min_clients",))


def parse_plan(run_config: Mapping[str, Any]) -> tuple[ServerPlan, Path]:
    """What the server is to do, and where it tells how it goes."""
    tables = tomllib.loads(str(run_config["config"]))
    load_allowed_code(tables)
    config = parse_config(tables)
    plan = ServerPlan(
        config,
        RunFolder(Path(str(run_config["out"]))),
        int(run_config["clients"]),
        int(run_config["least"]),
        float(run_config["patience"]),
        str(run_config["command"]),
    )
    return plan, Path(str(run_config["log"]))
