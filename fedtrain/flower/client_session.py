"""One client where its data are: its experiment, what it keeps, and its half of a round."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fedtrain.backends.serial import SerialBackend
from fedtrain.config.schema import parse_config
from fedtrain.config.toml import merge_tables
from fedtrain.data.build import build_single_client
from fedtrain.federated.messages import Update
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
    """Made anew for each message: Flower gives every one a process of its own."""

    experiment: Experiment
    """With this client alone."""
    client_index: int
    """Of the client, among all."""
    client_state_store: ClientStateStore

    @classmethod
    def from_node_config(cls, node: Mapping[str, Any], note: Mapping[str, Any]) -> ClientSession:
        """As the node's own settings say; the server says which experiment it is, and never names a folder here."""
        if "partition-id" not in node:
            raise InputError(
                'no client is named for this node; start it with flower-supernode --node-config "partition-id=0"'
            )
        place, simulated = int(node["partition-id"]), SIMULATION_VARIABLE in os.environ
        own = (
            {} if simulated else {"machine": {"device": str(node.get("device", "auto"))}}
        )  # a node's, not the server's
        config = parse_config(merge_tables(note["config"], own))
        if config.machine.threads is not None:
            torch.set_num_threads(config.machine.threads)
        root = Path(str(node["data-dir"])) if "data-dir" in node else None
        work = Experiment(config, build_single_client(config.data, place, root))
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

    def run_round(self, note: Mapping[str, Any], entries: StateDict) -> EncodedMessage:
        """Evaluate, then train, as far as asked for: the answer.

        ``note["turn"]`` says in which round this client trained last, as far as the server knows: a turn whose answer
        was lost did not happen. What it kept then is on the disk, where what it keeps now goes before the server
        hears of it.
        """
        message, turn, name = decode_broadcast(note, entries), int(note["turn"]), self.name
        backend = SerialBackend(
            self.experiment.build_client_trainer(), self.experiment.federation.clients, skip_failures=True
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
