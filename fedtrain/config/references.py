"""Code that the user's own settings name: loaded here, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedtrain.config.toml import TomlTable, merge_tables
from fedtrain.extensions.references import ExtensionKind, is_reference, resolve

SETTINGS: dict[ExtensionKind, str] = {"method": "method", "model": "model", "aggregator": "aggregator"}
"""The section whose ``name`` may be a reference, by kind."""


def load_references(tables: Mapping[str, Any]) -> TomlTable:
    """The tables of a configuration with the code that they name loaded, and called by its short name.

    Only for what the user has given, never for what was read from the folder of a run or from a message.
    """
    loaded: TomlTable = dict(tables)
    for kind, section in SETTINGS.items():
        table = tables.get(section)
        name = table.get("name") if isinstance(table, Mapping) else None
        if isinstance(name, str) and is_reference(name):
            loaded = merge_tables(loaded, {section: {"name": resolve(kind, name).name}})
    return loaded
