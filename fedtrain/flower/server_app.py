"""A run on Flower's nodes, from meeting the clients to the summary; the server has no data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from flwr.serverapp import Grid

from fedtrain.config.schema import Config
from fedtrain.data.client_data import combine_fingerprints
from fedtrain.flower.backend import FlowerBackend, WaitPolicy, build_node_query
from fedtrain.flower.client_manager import ClientManager
from fedtrain.inference.trained_run import build_federation_from_manifest
from fedtrain.runs.experiment import Experiment
from fedtrain.runs.folder import MANIFEST_FILE, RunFolder
from fedtrain.runs.loop import RoundProgress, run_rounds
from fedtrain.runs.manifest import build_manifest
from fedtrain.runs.resume import prepare_resume
from theory.errors import InputError

ProgressContext = AbstractContextManager[Callable[[RoundProgress], None]]
CLIENT_WAIT_TIMEOUT = 300.0
"""Seconds until all clients must have said who they are."""


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
            raise InputError(f"--min-clients {self.min_clients}: {there}")


def run_server(
    grid: Grid, plan: ServerPlan, open_progress: Callable[[Experiment], ProgressContext], log: Callable[[str], None]
) -> dict[str, Any]:
    """Begin or go on; the summary. ``watching`` gives what looks on while the experiment runs."""
    config, folder = plan.config, plan.folder
    post = ClientManager(grid, build_node_query(config, str(folder.path.absolute())), plan.stop_requested)
    begun = folder.has_run
    post.wait_for_clients(plan.min_clients if begun else plan.num_clients, CLIENT_WAIT_TIMEOUT)
    if begun:  # who is away may come back; what it said of itself was written down
        post.descriptions = restore_client_descriptions(folder.read_json(MANIFEST_FILE)["data"]) | post.descriptions
    data = merge_data_descriptions(
        [told["data"] for told in sorted(post.descriptions.values(), key=lambda told: int(told["place"]))]
    )
    told = build_manifest(config, data, plan.command)
    work = Experiment(config, build_federation_from_manifest(config, told, folder.path / MANIFEST_FILE))
    work.validate()
    with folder.exclusive_lock():
        if begun:
            for note in prepare_resume(folder, config, told):
                log(f"note: {note}")
        else:
            folder.begin(config, told)
        fleet = FlowerBackend(
            post, work.build_client_trainer(), config, folder, WaitPolicy(plan.min_clients, plan.round_timeout)
        )
        with open_progress(work) as watch:
            return run_rounds(work, folder, watch, fleet)


def restore_client_descriptions(data: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What each client of a run said of itself when the run began."""
    return {
        one["name"]: {"client": one["name"], "place": place, "data": {**data, "clients": [one]}}
        for place, one in enumerate(data["clients"])
    }


def merge_data_descriptions(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The description of all clients' data from that of each one's."""
    first = parts[0]
    for part in parts[1:]:
        for key in ("title", "standin", "classes"):
            if part[key] != first[key]:
                name = part["clients"][0]["name"]
                raise InputError(
                    f"client {name}: its {key} is {part[key]!r}, others' {first[key]!r}; give all the same data set"
                )
    return {
        **first,
        "sha256": combine_fingerprints(part["clients"][0]["sha256"] for part in parts),
        "notes": list(dict.fromkeys(note for part in parts for note in part["notes"])),
        "clients": [client for part in parts for client in part["clients"]],
    }
