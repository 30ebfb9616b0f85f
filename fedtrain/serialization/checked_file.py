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

from fedtrain.parameters import StateDict
from fedtrain.utils.atomic_files import replace_atomically

CORRUPT_FILE_ERRORS = (SafetensorError, KeyError, TypeError, AttributeError, ValueError, OverflowError, RecursionError)
"""What reading a damaged file may raise."""


def save_checked(path: Path, entries: StateDict, about: Mapping[str, Any]) -> None:
    """Write to a temporary file, wait for the disk, then rename: the file is complete or absent."""
    tensors, text = {key: value.cpu().contiguous() for key, value in entries.items()}, json.dumps(about)
    # numpy's writer lets one piece of memory have two names; torch's would have clients that begin alike copied apart
    arrays = {key: value.numpy() for key, value in tensors.items()}
    with replace_atomically(path) as part:
        save_file(arrays, part, {"about": text, "sha256": compute_checksum(tensors, text)})


def read_header(path: Path) -> dict[str, Any]:
    """What is said about the tensors, without reading them; for a damaged file one of `CORRUPT_FILE_ERRORS`."""
    with safe_open(path, "pt") as file:
        return dict(json.loads((file.metadata() or {})["about"]))


def load_checked(path: Path) -> tuple[StateDict, dict[str, Any]]:
    """The tensors and what is said about them; for a damaged file one of `CORRUPT_FILE_ERRORS`."""
    with safe_open(path, "pt") as file:
        metadata = file.metadata() or {}
        about = dict(json.loads(metadata["about"]))
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a mapping
    if compute_checksum(tensors, metadata["about"]) != metadata["sha256"]:
        raise ValueError("its checksum is wrong")
    return tensors, about


def compute_checksum(tensors: Mapping[str, Tensor], about: str) -> str:
    """SHA-256 over everything that is saved."""
    sum = hashlib.sha256(about.encode())
    for name, value in sorted(tensors.items()):
        sum.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        sum.update(value.contiguous().numpy().data)
    return sum.hexdigest()
