"""A run at rest: what the server would send next, and what every client keeps, as safetensors."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from torch import Tensor

from fedtrain.files import replacing
from fedtrain.ledger import Ledger, Traffic
from fedtrain.partition import StateDict
from fedtrain.protocol import Broadcast
from fedtrain.tables import brief, shown
from theory.errors import InputError

FORMAT = "fedco2 checkpoint 2"
DAMAGE = (SafetensorError, KeyError, TypeError, AttributeError, ValueError, OverflowError, RecursionError)
"""What reading a damaged file may raise."""


@dataclass(frozen=True)
class State:
    """All that the next round depends on, and how far the records reach."""

    message: Broadcast
    personal: Mapping[str, StateDict]
    ledger: Ledger = field(default_factory=Ledger)
    seconds: float = 0.0
    rows_end: int = 0
    """The length of metrics.jsonl in bytes when this was true."""
    skipped: tuple[Mapping[str, Any], ...] = ()
    """Clients that were left out of a round: ``{"round", "client", "reason"}``."""

    def to(self, device: torch.device, *, personal: bool = True) -> State:
        """The same on a device; what is personal may stay where it is."""

        def moved(state: StateDict) -> StateDict:
            return {name: value.to(device) for name, value in state.items()}

        peers = {name: moved(entries) for name, entries in self.message.peers.items()}
        message = Broadcast(self.message.round, moved(self.message.shared), peers)
        kept = {name: moved(own) for name, own in self.personal.items()} if personal else self.personal
        return replace(self, message=message, personal=kept)


def save(state: State, path: Path) -> None:
    """Write to a temporary file, wait for the disk, then rename: the checkpoint is complete or absent."""
    names = list(state.personal)
    places = {name: i for i, name in enumerate(names)}
    tensors: dict[str, Tensor] = {f"shared/{key}": value for key, value in state.message.shared.items()}
    for kind, states in (("personal", state.personal), ("peers", state.message.peers)):
        for name, entries in states.items():
            tensors |= {f"{kind}/{places[name]}/{key}": value for key, value in entries.items()}
    about = {
        "format": FORMAT,
        "round": state.message.round,
        "clients": names,
        "publishing": list(state.message.peers),
        "ledger": asdict(state.ledger),
        "seconds": state.seconds,
        "rows_end": state.rows_end,
        "skipped": [dict(one) for one in state.skipped],
    }
    tensors, text = {key: value.cpu().contiguous() for key, value in tensors.items()}, json.dumps(about)
    # numpy's writer lets one piece of memory have two names; torch's would have clients that begin alike copied apart
    arrays = {key: value.numpy() for key, value in tensors.items()}
    try:
        with replacing(path) as part:
            save_file(arrays, part, {"about": text, "sha256": _digest(tensors, text)})
    except SafetensorError as error:  # its words for a full disk and the like
        raise InputError(f"{path}: cannot be written ({error}); make room or get leave, and resume") from None


def round_of(path: Path) -> int:
    """How many rounds were made, without reading the tensors."""
    try:
        with safe_open(path, "pt") as file:
            return int(json.loads((file.metadata() or {})["about"])["round"])
    except DAMAGE as error:
        raise damaged(path, error) from None


def damaged(path: Path, error: Exception) -> InputError:
    """What to say of a file that is no checkpoint; a kept one may help, unless it is another name of the same file."""
    kept = [one for one in sorted(path.parent.glob("round-*.safetensors")) if not one.samefile(path)]
    way = f"rename {kept[-1].name} to {path.name} to go on from there" if kept else "start the run anew"
    return InputError(f"{path}: not a checkpoint of fedco2, or damaged ({brief(error)}); {way}")


def restore(path: Path) -> State:
    """Read a checkpoint."""
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            about: dict[str, Any] = json.loads(metadata["about"])
            if about["format"] != FORMAT:
                raise InputError(f"{path}: made by another version ({shown(about['format'])}); use that version")
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a mapping
        if _digest(tensors, metadata["about"]) != metadata["sha256"]:
            raise ValueError("its checksum is wrong")
        names: list[str] = about["clients"]
        places, groups = {name: i for i, name in enumerate(names)}, _grouped(tensors)
        personal = {name: groups[f"personal/{i}"] for name, i in places.items()}
        peers = {name: groups[f"peers/{places[name]}"] for name in about["publishing"]}
        ledger = Ledger(Traffic(**about["ledger"]["up"]), Traffic(**about["ledger"]["down"]))
        message = Broadcast(int(about["round"]), groups["shared"], peers)
        seconds, end, skipped = float(about["seconds"]), int(about["rows_end"]), about["skipped"]
        return State(message, personal, ledger, seconds, end, tuple(dict(one) for one in skipped))
    except InputError:
        raise
    except DAMAGE as error:
        raise damaged(path, error) from None


def _digest(tensors: Mapping[str, Tensor], about: str) -> str:
    """SHA-256 over everything that is saved."""
    digest = hashlib.sha256(about.encode())
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.contiguous().numpy().data)
    return digest.hexdigest()


def _grouped(tensors: Mapping[str, Tensor]) -> Mapping[str, StateDict]:
    """By whose they are: ``shared``, ``personal/3``, ``peers/3``."""
    groups: defaultdict[str, StateDict] = defaultdict(dict)
    for key, value in tensors.items():
        *whose, name = key.split("/", 1 if key.startswith("shared/") else 2)
        groups["/".join(whose)][name] = value
    return groups
