"""What a client's codec left out of its last update waits among the client's own entries for the next one."""

from __future__ import annotations

from fedtrain.parameters import StateDict

PREFIX = "residual/"
"""No module can have an entry of such a name."""


def join_residual(personal: StateDict, residual: StateDict) -> StateDict:
    """All that a client keeps."""
    return personal | {PREFIX + name: value for name, value in residual.items()}


def drop_residual(kept: StateDict) -> StateDict:
    """The entries of the client's module."""
    return {name: value for name, value in kept.items() if not name.startswith(PREFIX)}


def extract_residual(kept: StateDict) -> StateDict:
    """What was left out, by the names of the shared entries; nothing before the first round."""
    return {name.removeprefix(PREFIX): value for name, value in kept.items() if name.startswith(PREFIX)}
