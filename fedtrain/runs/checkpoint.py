"""Checkpoints: what the server would send next, and what every client keeps, as safetensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import torch
from safetensors import SafetensorError

from fedtrain.aggregators import ServerState
from fedtrain.config.toml import format_error, format_value
from fedtrain.federated.communication import CommunicationCost, PayloadBytes
from fedtrain.federated.messages import Broadcast
from fedtrain.parameters import StateDict
from fedtrain.runs.client_state import ClientStateStore
from fedtrain.runs.json_types import SkippedClient
from fedtrain.serialization.checked_file import CORRUPT_FILE_ERRORS, load_checked, read_header, save_checked
from fedtrain.serialization.message_codec import flatten_groups, group_entries
from theory.errors import InputError

CHECKPOINT_FORMAT = "fedco2 checkpoint 2"


@dataclass(frozen=True)
class RunState:
    """All that the next round depends on, and how far the records reach."""

    message: Broadcast
    client_states: Mapping[str, StateDict]
    communication: CommunicationCost = field(default_factory=CommunicationCost)
    seconds: float = 0.0
    rows_end: int = 0
    """The length of metrics.jsonl in bytes when this was true."""
    skipped: tuple[SkippedClient, ...] = ()
    last_trained_round: Mapping[str, int] = field(default_factory=dict)
    """Clients whose entries are where they train, not here: the round in which each trained last, 0 for none yet."""
    server: ServerState = field(default_factory=dict)
    """What the server's aggregator remembers."""

    def load_client_state(
        self, client: str, store: ClientStateStore, build_initial: Callable[[str], StateDict]
    ) -> StateDict:
        """What a client keeps, wherever it is; ``start`` is asked for who never trained."""
        if client in self.client_states:
            return self.client_states[client]
        turn = self.last_trained_round.get(client)
        if turn is None:
            raise InputError(f"client {client} has no part in this checkpoint; start the run anew")
        return store.load(client, turn) if turn else build_initial(client)

    def to(self, device: torch.device, *, client_states: bool = True) -> RunState:
        """The same on a device; what is personal may stay where it is."""

        def moved(state: StateDict) -> StateDict:
            return {name: value.to(device) for name, value in state.items()}

        peers = {name: moved(entries) for name, entries in self.message.peers.items()}
        message = Broadcast(self.message.round, moved(self.message.shared), peers)
        kept = {name: moved(own) for name, own in self.client_states.items()} if client_states else self.client_states
        server = {what: moved(entries) for what, entries in self.server.items()}
        return replace(self, message=message, client_states=kept, server=server)


def save_checkpoint(state: RunState, path: Path) -> None:
    """Write to a temporary file, wait for the disk, then rename: the checkpoint is complete or absent."""
    names = [*state.client_states, *state.last_trained_round]
    places = {name: i for i, name in enumerate(names)}
    groups = {"shared": state.message.shared}
    for kind, states in (("personal", state.client_states), ("peers", state.message.peers)):
        groups |= {f"{kind}/{places[name]}": entries for name, entries in states.items()}
    groups |= {f"server/{what}": entries for what, entries in state.server.items()}
    about = {
        "format": CHECKPOINT_FORMAT,
        "round": state.message.round,
        "clients": names,
        "publishing": list(state.message.peers),
        "server": list(state.server),
        "elsewhere": dict(state.last_trained_round),
        "ledger": asdict(state.communication),
        "seconds": state.seconds,
        "rows_end": state.rows_end,
        "skipped": [dict(one) for one in state.skipped],
    }
    try:
        save_checked(path, flatten_groups(groups), about)
    except SafetensorError as error:  # its words for a full disk and the like
        raise InputError(f"{path}: cannot be written ({error}); make room or get leave, and resume") from None


def read_round(path: Path) -> int:
    """How many rounds were made, without reading the tensors."""
    try:
        return int(read_header(path)["round"])
    except CORRUPT_FILE_ERRORS as error:
        raise build_damage_error(path, error) from None


def read_last_trained_rounds(path: Path) -> dict[str, int]:
    """Clients whose entries are elsewhere, and the round in which each trained last."""
    try:
        return {str(name): int(turn) for name, turn in read_header(path).get("elsewhere", {}).items()}
    except CORRUPT_FILE_ERRORS as error:
        raise build_damage_error(path, error) from None


def build_damage_error(path: Path, error: Exception) -> InputError:
    """What to say of a file that is no checkpoint; a kept one may help, unless it is another name of the same file."""
    kept = [one for one in sorted(path.parent.glob("round-*.safetensors")) if not one.samefile(path)]
    way = f"rename {kept[-1].name} to {path.name} to go on from there" if kept else "start the run anew"
    return InputError(f"{path}: not a checkpoint of fedco2, or damaged ({format_error(error)}); {way}")


def load_checkpoint(path: Path) -> RunState:
    """Read a checkpoint."""
    try:
        if (about := read_header(path))["format"] != CHECKPOINT_FORMAT:
            raise InputError(f"{path}: made by another version ({format_value(about['format'])}); use that version")
        tensors, about = load_checked(path)
        names: list[str] = about["clients"]
        places, groups = {name: i for i, name in enumerate(names)}, group_entries(tensors)
        elsewhere = read_last_trained_rounds(path)
        personal = {name: groups[f"personal/{i}"] for name, i in places.items() if name not in elsewhere}
        peers = {name: groups[f"peers/{places[name]}"] for name in about["publishing"]}
        cost = CommunicationCost(PayloadBytes(**about["ledger"]["up"]), PayloadBytes(**about["ledger"]["down"]))
        message = Broadcast(int(about["round"]), groups["shared"], peers)
        seconds, end = float(about["seconds"]), int(about["rows_end"])
        skipped = tuple(
            SkippedClient(round=one["round"], client=one["client"], reason=one["reason"]) for one in about["skipped"]
        )
        server = {str(what): groups[f"server/{what}"] for what in about.get("server", [])}
        return RunState(message, personal, cost, seconds, end, skipped, elsewhere, server)
    except InputError:
        raise
    except CORRUPT_FILE_ERRORS as error:
        raise build_damage_error(path, error) from None
