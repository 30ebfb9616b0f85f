"""A run put to use: the model of each client, opened from the run's folder alone, without the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from fedtrain.config.schema import Config, parse_config
from fedtrain.config.toml import format_error, merge_tables
from fedtrain.data.client_data import ClientData, Federation, Preprocessing, Samples
from fedtrain.data.datasets import DATASETS, get_dataset_info
from fedtrain.data.own_clients import INPUT_TYPES
from fedtrain.data.scaling import Scaling
from fedtrain.data.standin import get_standin_size
from fedtrain.data.table_schema import TableSchema
from fedtrain.federated.client import EVAL_BATCH_SIZE, ClientTrainer
from fedtrain.federated.delivery import Delivery
from fedtrain.federated.messages import Broadcast
from fedtrain.inference.read_inputs import NamedInputs, read_inputs
from fedtrain.models.own import ModelBuilder
from fedtrain.parameters import StateDict
from fedtrain.runs.checkpoint import RunState, build_damage_error
from fedtrain.runs.experiment import Experiment
from fedtrain.runs.folder import LAST_CHECKPOINT, MANIFEST_FILE, RunFolder
from fedtrain.runs.json_types import DataDescription, Manifest
from theory.errors import InputError
from theory.text import suggest_name

MAX_SAMPLES = 10**8
"""More samples than any manifest of ours speaks of."""


@dataclass(frozen=True, eq=False)
class TrainedRun:
    """What a run has come to: its last checkpoint, in a client trainer."""

    folder: RunFolder
    config: Config
    federation: Federation
    """The clients as the run's manifest remembers them: names, class counts and noise, but no images."""
    trainer: ClientTrainer
    state: RunState
    manifest: Manifest

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of the images that the network reads."""
        height, width = self.federation.clients[0].train.inputs.shape[-2:]
        return height, width

    def get_client(self, name: str) -> ClientData:
        """What is remembered of a client."""
        clients = {client.name: client for client in self.federation.clients}
        if name not in clients:
            raise InputError(f"{self.folder.path}: no client {name!r} was trained; {suggest_name(name, clients)}")
        return clients[name].to(self.trainer.device)

    def compute_logits(self, client: str, images: Tensor) -> dict[str, Tensor]:
        """What a client's own model says of images (n, 3, H, W): of the prediction, ``fused``, and of each branch."""
        return self.compute_logits_with(self.get_client(client), self.state.client_states[client], images)

    def compute_logits_with(self, client: ClientData, personal: StateDict, images: Tensor) -> dict[str, Tensor]:
        """The same with any personal entries. Images are what the client sees: no noise is added to them."""
        seen, message = replace(client, noise=0.0), self.broadcast_for(client.name)
        pieces = [self.trainer.predict(seen, personal, message, part) for part in images.split(EVAL_BATCH_SIZE)]
        return {branch: torch.cat([piece[branch] for piece in pieces]) for branch in pieces[0]}

    def broadcast_for(self, client: str) -> Broadcast:
        """What the server tells this client: of the others' heads as many as the run has it."""
        return self.delivery.receive_for_prediction(self.state.message, client)

    @cached_property
    def delivery(self) -> Delivery:
        """What of the message reaches clients."""
        return Delivery(self.trainer.starting_entries.get_shared, self.config.server, self.config.seed)

    def read_inputs(self, paths: Sequence[Path], client: str | None = None) -> NamedInputs:
        """Image files, resized to what the network reads, or rows of tables, standardised as the client's."""
        return read_inputs(self.federation, client, paths)


def load_trained_run(path: Path, device: str | None = None, build_model: ModelBuilder | None = None) -> TrainedRun:
    """Read what a run has written; ``device`` takes the place of the run's own.

    A network of the user's own is not in the folder: ``build_model`` builds it.
    """
    folder = RunFolder(path)
    config = parse_config(merge_tables(folder.load_tables(), {"machine": {"device": device}} if device else {}))
    state = folder.load_checkpoint()
    if state is None and folder.is_finished:
        raise InputError(f"{path}: these are the records of a run, without its weights; name a run that has them")
    if state is None:
        raise InputError(f"{path}: no checkpoint is here yet; go on with: fedco2 train --resume {path}")
    manifest = folder.read_manifest()
    federation = build_federation_from_manifest(config, manifest, path / MANIFEST_FILE)
    trainer = Experiment(config, federation, build_model).build_client_trainer()
    own = {
        client.name: state.load_client_state(client.name, folder.client_state_store, trainer.initial_client_state)
        for client in federation.clients
    }
    state = replace(state, client_states=own, last_trained_round={})
    for client in federation.clients:
        if not trainer.is_compatible({**state.client_states.get(client.name, {}), **state.message.shared}):
            raise build_damage_error(
                path / LAST_CHECKPOINT, ValueError(f"it does not fit the network of client {client.name}")
            )
    return TrainedRun(folder, config, federation, trainer, state.to(trainer.device), manifest)


def build_federation_from_manifest(config: Config, manifest: Manifest, path: Path) -> Federation:
    """The federation of a run from its manifest, with empty hands."""
    try:
        about = manifest["data"]
        none, how = _describe_inputs(config, about)
        labels = torch.arange(len(about["classes"]))

        def held(counts: list[int]) -> Samples:
            return Samples(none, labels.repeat_interleave(torch.tensor(counts)))

        most = max((sum(sum(one[part]) for one in about["clients"]) for part in ("train", "val", "test")), default=0)
        if not about["clients"] or most > MAX_SAMPLES:
            raise ValueError("no clients, or more samples than there can be")
        clients = tuple(
            ClientData(
                str(one["name"]),
                held(one["train"]),
                held(one["test"]),
                held(one["val"]) if sum(one["val"]) else None,
                noise=float(one["noise"]),
                scaling=Scaling.from_table(one["scaling"]) if "scaling" in one else None,
            )
            for one in about["clients"]
        )
        return Federation(
            clients,
            tuple(about["classes"]),
            about["title"],
            about["standin"],
            how,
            tuple(about["notes"]),
            is_own="input_shape" in about,
            table=TableSchema.from_table(about["table"]) if "table" in about else None,
            scaling=Scaling.from_table(about["scaling"]) if "scaling" in about else None,
        )
    except (KeyError, TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise InputError(f"{path}: not what fedco2 writes ({format_error(error)}); train anew") from None


def _describe_inputs(config: Config, about: DataDescription) -> tuple[Tensor, Preprocessing]:
    """No inputs, of the shape and type that clients hold, and how they become what the network reads."""
    settings = config.data
    if settings.dataset not in DATASETS:
        mean, std = tuple(map(float, about.get("mean", [0]))), tuple(map(float, about.get("std", [1])))
        how = Preprocessing(mean, std, settings.augment, settings.augment_val, settings.noise_unit)
        return torch.empty((0, *about["input_shape"]), dtype=INPUT_TYPES[about["input_type"]]), how
    data = get_dataset_info(settings.dataset)
    side = get_standin_size(data.name) if about["standin"] else data.image_size
    how = Preprocessing(data.mean, data.std, settings.augment, settings.augment_val, settings.noise_unit)
    return torch.empty((0, 3, side, side), dtype=torch.uint8), how
