"""Settings whose names have changed, so that runs of earlier versions can still be read and go on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedtrain.config.toml import TomlTable

NEW_NAMES = {
    "server.sample": "server.participation",
    "model.cut": "model.split_at",
    "machine.fleet": "machine.backend",
    "machine.personal": "machine.client_state",
    "machine.engine": "machine.fast_path",
}
NEW_VALUES: dict[str, dict[Any, Any]] = {
    "machine.backend": {"in-turn": "serial", "stacked": "vmap", "torchrun": "distributed"},
    "machine.fast_path": {"fast": True, "plain": False},
}
OLD_NAMES = {new: old for old, new in NEW_NAMES.items()}


def upgrade_tables(tables: Mapping[str, Any]) -> TomlTable:
    """The tables of a configuration, with the names and values of today."""
    return {
        section: _upgrade_section(section, table) if isinstance(table, Mapping) else table
        for section, table in tables.items()
    }


def _upgrade_section(section: str, table: Mapping[str, Any]) -> TomlTable:
    upgraded: TomlTable = {}
    for key, value in table.items():
        path = NEW_NAMES.get(f"{section}.{key}", f"{section}.{key}")
        known = NEW_VALUES.get(path, {})
        upgraded[path.removeprefix(f"{section}.")] = known.get(value, value) if isinstance(value, str) else value
    return upgraded
