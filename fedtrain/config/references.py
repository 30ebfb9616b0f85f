"""Code that the user's own settings name: loaded here, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedtrain.config.method_tables import flatten_parts
from fedtrain.config.schema import Config
from fedtrain.config.toml import TomlTable, merge_tables
from fedtrain.extensions.references import (
    BUILT_IN,
    Extension,
    ExtensionKind,
    find_by_value,
    find_extension,
    is_reference,
    list_installed,
    resolve,
)

SETTINGS: dict[ExtensionKind, tuple[str, str]] = {
    "method": ("method", "name"),
    "model": ("model", "name"),
    "aggregator": ("aggregator", "name"),
    "optimizer": ("local", "optimizer"),
    "dataset": ("data", "dataset"),
}
"""The setting that may be a reference, by kind: its section and its key."""


PARTS = ("online", "offline")
"""Options of a method that name methods."""


def load_references(tables: Mapping[str, Any]) -> TomlTable:
    """The tables of a configuration with the code that they name loaded, and called by its short name.

    Only for what the user has given, never for what was read from the folder of a run or from a message.
    """
    loaded: TomlTable = dict(tables)
    for kind, (section, key) in SETTINGS.items():
        name = get_setting(tables, kind)
        if name is not None and is_reference(name) and names_code(kind, name):
            loaded = merge_tables(loaded, {section: {key: resolve(kind, name).name}})
    method = loaded.get("method")
    for key, value in flatten_parts(method).items() if isinstance(method, Mapping) else ():
        if key.rpartition(".")[2] in PARTS and isinstance(value, str) and is_reference(value):
            loaded = {**loaded, "method": {**flatten_parts(loaded["method"]), key: resolve("method", value).name}}
    return loaded


def load_named(**names: str | None) -> None:
    """Load what is named, by kind, as far as it is code: what a run needs that is to be opened."""
    tables: TomlTable = {}
    for kind, (section, key) in SETTINGS.items():
        if names.get(kind) is not None:
            tables = merge_tables(tables, {section: {key: names[kind]}})
    load_references(tables)


def lengthen_references(tables: Mapping[str, Any]) -> TomlTable:
    """The same tables for another process: with references that it can load."""
    told: TomlTable = dict(tables)
    for kind, (section, key) in SETTINGS.items():
        name = get_setting(tables, kind)
        if name is not None and (found := find_extension(kind, name)) is not None:
            told = merge_tables(told, {section: {key: found.reference}})
    return told


def get_setting(tables: Mapping[str, Any], kind: ExtensionKind) -> str | None:
    """What a configuration says of this kind; None if it says nothing, or no name."""
    section, key = SETTINGS[kind]
    table = tables.get(section)
    name = table.get(key) if isinstance(table, Mapping) else None
    return name if isinstance(name, str) else None


def names_code(kind: ExtensionKind, name: str) -> bool:
    """Whether a setting can only mean code outside fedco2."""
    if kind == "dataset":  # all other names are of data: those of the paper, added ones, paths, the sites'
        return name in list_installed(kind) or (is_reference(name) and not Path(name).exists())
    if kind == "optimizer":  # and here of torch's
        return name in list_installed(kind) or is_reference(name)
    return name not in BUILT_IN[kind]


def find_extensions(config: Config) -> list[Extension]:
    """The code outside fedco2 that decides the numbers of a configuration."""
    found = [
        find_by_value("method", type(config.method)),
        find_by_value("aggregator", type(config.aggregator)),
        find_extension("model", config.model.name),
        find_extension("optimizer", config.local.optimizer),
        find_extension("dataset", config.data.dataset),
    ]
    return [one for one in found if one is not None]
