"""Tensors in a file with a note about them, and a checksum over both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from torch import Tensor

from fedtrain.files import replacing
from fedtrain.partition import StateDict

DAMAGE = (SafetensorError, KeyError, TypeError, AttributeError, ValueError, OverflowError, RecursionError)
"""What reading a damaged file may raise."""


def seal(path: Path, entries: StateDict, about: Mapping[str, Any]) -> None:
    """Write to a temporary file, wait for the disk, then rename: the file is complete or absent."""
    tensors, text = {key: value.cpu().contiguous() for key, value in entries.items()}, json.dumps(about)
    # numpy's writer lets one piece of memory have two names; torch's would have clients that begin alike copied apart
    arrays = {key: value.numpy() for key, value in tensors.items()}
    with replacing(path) as part:
        save_file(arrays, part, {"about": text, "sha256": digest(tensors, text)})


def note(path: Path) -> dict[str, Any]:
    """What is said about the tensors, without reading them; for a damaged file one of `DAMAGE`."""
    with safe_open(path, "pt") as file:
        return dict(json.loads((file.metadata() or {})["about"]))


def unseal(path: Path) -> tuple[StateDict, dict[str, Any]]:
    """The tensors and what is said about them; for a damaged file one of `DAMAGE`."""
    with safe_open(path, "pt") as file:
        metadata = file.metadata() or {}
        about = dict(json.loads(metadata["about"]))
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a mapping
    if digest(tensors, metadata["about"]) != metadata["sha256"]:
        raise ValueError("its checksum is wrong")
    return tensors, about


def digest(tensors: Mapping[str, Tensor], about: str) -> str:
    """SHA-256 over everything that is saved."""
    sum = hashlib.sha256(about.encode())
    for name, value in sorted(tensors.items()):
        sum.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        sum.update(value.contiguous().numpy().data)
    return sum.hexdigest()
