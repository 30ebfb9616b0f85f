"""One client where its data are: its experiment, what it keeps, and its half of a round."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from fedtrain.backends.serial import SerialBackend
from fedtrain.config.data import DataSettings
from fedtrain.config.schema import ServerSettings, parse_config
from fedtrain.config.toml import merge_tables
from fedtrain.data.build import build_single_client
from fedtrain.data.client_data import Federation
from fedtrain.data.datasets import DATASETS
from fedtrain.federated.client import ClientTrainer
from fedtrain.federated.delivery import Delivery
from fedtrain.federated.messages import Broadcast, Update
from fedtrain.flower.allowed_code import load_allowed_code
from fedtrain.flower.site_keys import DATA_KEY, NAMED_FILES_KEY, SITE_KEY
from fedtrain.flower.sites import SITES_DATASET, build_site
from fedtrain.parameters import StateDict
from fedtrain.runs.client_state import ClientStateStore, make_folder_name
from fedtrain.runs.experiment import Experiment
from fedtrain.runs.folder import RunFolder
from fedtrain.serialization.message_codec import EncodedMessage, decode_broadcast, encode_replies, encode_scores
from theory.errors import InputError

SIMULATION_VARIABLE = "FEDCO2_SIMULATED"
"""Environment: set where server and nodes are one process's, and what clients keep goes into the run's own folder."""


@dataclass(frozen=True)
class ClientSession:
    """Holds nothing of a turn: that is on the disk, so it does not matter which process takes which turn."""

    experiment: Experiment
    """With this client alone."""
    client_index: int
    """Of the client, among all."""
    client_state_store: ClientStateStore

    @classmethod
    def from_node_config(cls, node: Mapping[str, Any], note: Mapping[str, Any]) -> ClientSession:
        """As the node's own settings say; the server says which experiment it is, and never names a folder here."""
        if SITE_KEY not in node and "partition-id" not in node:
            raise InputError(
                'no client is named for this node; start it with flower-supernode --node-config "partition-id=0"'
            )
        place, simulated = int(node.get("partition-id", 0)), SIMULATION_VARIABLE in os.environ
        own = (
            {} if simulated else {"machine": {"device": str(node.get("device", "auto"))}}
        )  # a node's, not the server's
        load_allowed_code(note["config"], node)
        config = parse_config(merge_tables(note["config"], own))
        if config.machine.threads is not None:
            torch.set_num_threads(config.machine.threads)
        work = Experiment(config, build_node_federation(config.data, node, place))
        if "state-dir" in node:
            kept = Path(str(node["state-dir"])) / make_folder_name(str(note["run"]))
        elif simulated:
            kept = RunFolder(Path(str(note["run"]))).client_state_store.folder
        else:
            raise InputError(
                'this node has no folder for its state; start it with flower-supernode --node-config "state-dir=..."'
            )
        return cls(work, place, ClientStateStore(kept))

    @property
    def name(self) -> str:
        """Of the client."""
        return self.experiment.federation.clients[0].name

    @cached_property
    def trainer(self) -> ClientTrainer:
        """Loads what it needs for every turn anew."""
        return self.experiment.build_client_trainer()

    @property
    def received(self) -> ServerSettings:
        """The server's settings for what was chosen and encoded by it already."""
        return replace(self.experiment.config.server, peers=0, codec="none", broadcast_codec="none")

    def _read_message(self, note: Mapping[str, Any], entries: StateDict) -> Broadcast:
        """The server's message with its entries in full."""
        trainer, server = self.trainer, self.experiment.config.server
        sent = decode_broadcast(note, entries)
        if "start" in note and note["start"] != trainer.starting_entries.compute_digest():
            raise InputError(
                "this node draws other weights to begin with than the server, so it cannot read what is encoded as the "
                "difference to them; use the server's versions of torch and of the network, or set server.codec = "
                "float16 or none"
            )
        delivery = Delivery(trainer.starting_entries.get_shared, server, trainer.seed)
        try:
            return delivery.receive(sent, trainer.list_shared_forms())
        except ValueError as error:
            raise InputError(f"the server's message: {error}; update the node or the server") from None

    def run_round(self, note: Mapping[str, Any], entries: StateDict) -> EncodedMessage:
        """Evaluate, then train, as far as asked for: the answer.

        ``note["turn"]`` says in which round this client trained last, as far as the server knows: a turn whose answer
        was lost did not happen. What it kept then is on the disk, where what it keeps now goes before the server
        hears of it.
        """
        message, turn, name = self._read_message(note, entries), int(note["turn"]), self.name
        backend = SerialBackend(
            self.trainer, self.experiment.federation.clients, skip_failures=True, delivery=self.received
        )
        if turn:
            backend.client_states = {name: self.client_state_store.load(name, turn)}
        scores = encode_scores(backend.evaluate(message, note["splits"])) if note["splits"] else {}
        answers = backend.train(message, [name]) if note["train"] else []
        note_back, sent = encode_replies(answers)
        if any(isinstance(answer, Update) for answer in answers):
            self.client_state_store.save(name, message.round + 1, backend.client_states[name])
        self.client_state_store.prune(name, {turn, *note["needed"]}, before=message.round + 1)
        return {**note_back, "client": name, "scores": scores}, sent


def build_node_federation(settings: DataSettings, node: Mapping[str, Any], place: int) -> Federation:
    """The one client of a node: that of its site, or the one with this number among those that the settings make."""
    if SITE_KEY in node:
        return build_site(settings, Path(str(node[DATA_KEY])), str(node[SITE_KEY]))
    if settings.dataset == SITES_DATASET:
        raise InputError("this node has no data of its own; start it with fedco2 flower node --name NAME --data PATH")
    if settings.dataset not in DATASETS and NAMED_FILES_KEY not in node and SIMULATION_VARIABLE not in os.environ:
        raise InputError(
            f"the run names {settings.dataset!r}, and a node reads no file because a message names it; "
            "give the node its own data: fedco2 flower node --name NAME --data PATH"
        )
    return build_single_client(settings, place, Path(str(node["data-dir"])) if "data-dir" in node else None)
