"""Client state offloaded to disk: mapped into memory, where it stays only while there is room."""

from __future__ import annotations

from pathlib import Path
from tempfile import NamedTemporaryFile

import torch

from fedtrain.config.toml import format_error
from fedtrain.parameters import StateDict
from theory.errors import InputError

ALIGNMENT = 64
"""Bytes: a tensor begins where torch would have it begin."""


def offload(entries: StateDict, folder: Path | None = None) -> StateDict:
    """The same entries, read from a file of their own as they are needed; they stay on the CPU.

    The file loses its name at once and is gone when the last of its tensors is, however the process ends: nothing
    is ever written twice, so who holds older entries still has them. It is no checkpoint: the disk is not waited for.
    """
    places: dict[str, int] = {}
    try:
        with NamedTemporaryFile(dir=folder, prefix=".", suffix=".part") as file:  # a name that Folder tidies up
            for name, value in entries.items():
                places[name] = file.seek(-file.tell() % ALIGNMENT, 1)
                file.write(value.cpu().reshape(-1).view(torch.uint8).numpy().data)
            size = file.truncate()  # also when the last of them are empty; torch would write a byte of its own
            file.flush()
            held = torch.from_file(file.name, shared=True, size=size, dtype=torch.uint8) if size else torch.empty(0)
    except (OSError, RuntimeError) as error:  # torch says the latter of memory that cannot be mapped
        raise InputError(
            f"{folder or 'the temporary folder'}: what clients keep cannot be written there ({format_error(error)}); "
            "make room, or set machine.client_state = memory"
        ) from None
    return {
        name: held[places[name] :][: value.nbytes].view(value.dtype).view(value.shape)
        for name, value in entries.items()
    }
