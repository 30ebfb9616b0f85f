"""A run on Flower's nodes, from meeting the clients to the summary; the server has no data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from rich.console import Console

from fedtrain.analysis.cost import EngineCost
from fedtrain.data.client_data import combine_fingerprints
from fedtrain.flower.backend import FlowerBackend, WaitPolicy, build_node_query
from fedtrain.flower.client_manager import ClientManager
from fedtrain.flower.server_plan import ServerPlan, parse_plan
from fedtrain.flower.sites import SITES_DATASET, check_same_schema
from fedtrain.inference.trained_run import build_federation_from_manifest
from fedtrain.report.progress_view import ProgressView
from fedtrain.report.run_figures import DrawFigures
from fedtrain.runs.callbacks import Callback
from fedtrain.runs.experiment import Experiment
from fedtrain.runs.folder import MANIFEST_FILE
from fedtrain.runs.json_types import DataDescription, NodeDescription, RunSummary
from fedtrain.runs.loop import run_experiment
from fedtrain.runs.manifest import build_manifest
from theory.errors import InputError

CLIENT_WAIT_TIMEOUT = 300.0
"""Seconds until all clients must have said who they are."""
LOG_WIDTH = 200
"""Columns; a file has none."""
SIMULATION_COST = EngineCost(first_round=10.0, each_round=0.2, each_byte=6e-9)
DEPLOYMENT_COST = EngineCost(first_round=10.0, each_round=4.0, each_byte=2e-8)
"""As measured on two cores: docs/guides/distributed.md, "What it costs"."""


def run_server(
    grid: Grid, plan: ServerPlan, callbacks: Sequence[Callback] = (), tell: Callable[[str], None] = lambda line: None
) -> RunSummary:
    """Meet the clients, then make rounds as any run does, with their nodes as the backend; the summary.

    ``tell`` hears what is waited for, and what is done again.
    """
    config, folder = plan.config, plan.folder
    manager = ClientManager(grid, build_node_query(config, str(folder.path.absolute())), plan.stop_requested, tell)
    begun = folder.has_run
    manager.wait_for_clients(plan.min_clients if begun else plan.num_clients, CLIENT_WAIT_TIMEOUT)
    if begun:  # who is away may come back; what it said of itself was written down
        manager.descriptions = restore_client_descriptions(folder.read_manifest()["data"]) | manager.descriptions
    manager.is_complete = True
    if config.data.dataset == SITES_DATASET:
        number_sites(manager.descriptions)
    in_order = sorted(manager.descriptions.values(), key=lambda one: int(one["place"]))
    data = merge_data_descriptions([description["data"] for description in in_order])
    manifest = build_manifest(config, data, plan.command)
    experiment = Experiment(config, build_federation_from_manifest(config, manifest, folder.path / MANIFEST_FILE))
    experiment.validate()
    patience = WaitPolicy(plan.min_clients, plan.round_timeout)

    @contextmanager
    def open_backend() -> Iterator[FlowerBackend]:
        yield FlowerBackend(manager, experiment.build_client_trainer(), config, folder, patience)

    return run_experiment(experiment, folder, manifest, [*callbacks, DrawFigures()], open_backend)


def restore_client_descriptions(data: DataDescription) -> dict[str, NodeDescription]:
    """What each client of a run said of itself when the run began."""
    return {
        one["name"]: {"client": one["name"], "place": place, "data": {**data, "clients": [one]}}
        for place, one in enumerate(data["clients"])
    }


def number_sites(descriptions: Mapping[str, NodeDescription]) -> None:
    """By their names, for sites do not know of each other; and check that they fit together."""
    for place, name in enumerate(sorted(descriptions)):
        descriptions[name]["place"] = place
    check_same_schema([descriptions[name]["data"] for name in sorted(descriptions)])


def merge_data_descriptions(parts: Sequence[DataDescription]) -> DataDescription:
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


def main(grid: Grid, context: Context) -> None:
    """The server of a deployment: one run, from the first round or from where it stopped, reported in a log file."""
    plan, log = parse_plan(context.run_config)
    with log.open("a", encoding="utf-8", buffering=1) as file:
        screen = Console(file=file, width=LOG_WIDTH, markup=False, highlight=False, emoji=False)
        try:
            run_server(grid, plan, [ProgressView(screen, DEPLOYMENT_COST)], screen.print)
        except Exception as error:  # Flower tells it to those alone who ask for the run's status
            screen.print(f"the run has ended: {error}")
            raise


app = ServerApp()
app.main()(main)
