"""Configurations as data: the protocol of the paper for each data set, and what depends on method, skew and source.

A preset may name its ``base``. Beside the sections of a configuration it may have tables that hold only sometimes:
``[when.method.fedper.model]``, ``[when.skew.pathological.data]``, ``[when.source.standin.server]``.
Later wins: base, preset, skew, method, source, then the user's file, then the command line.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from fedtrain.config import Config, from_tables
from fedtrain.tables import NONE, Table, merge, nearest
from theory.errors import InputError

FOLDER = files("fedtrain.presets")
BASES = {"feature-skew", "label-skew"}


def names() -> list[str]:
    """All that can be chosen."""
    found = {entry.name.removesuffix(".toml") for entry in FOLDER.iterdir() if entry.name.endswith(".toml")}
    return sorted(found - BASES)


def chain(name: str) -> list[Table]:
    """The preset and what it stands on, the base first."""
    if name not in names():
        raise InputError(f"unknown preset {name!r}; {nearest(name, names())}")
    return _chain(name)


def _chain(name: str) -> list[Table]:
    table = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    base = table.pop("base", None)
    return [*(_chain(base) if base else []), table]


def title(name: str) -> str:
    """What it is, in a line."""
    return str(chain(name)[-1]["title"])


def resolve(preset: str, given: Mapping[str, Any], *, standin: bool = False) -> Config:
    """The configuration that a preset and the user's own tables make."""
    tables, given = chain(preset), instead(given)
    plain = merge(*({k: v for k, v in table.items() if k not in ("when", "title")} for table in tables))
    first = from_tables(merge(plain, given))
    conditions = [
        ("skew", first.data.skew),
        ("method", first.method_name),
        ("source", "standin" if standin else "real"),
    ]
    special = [table.get("when", {}).get(kind, {}).get(value, {}) for kind, value in conditions for table in tables]
    return from_tables(merge(plain, *special, given))


def instead(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Who says how many samples to train on does not mean the preset's share of them, and the other way round."""
    data = given.get("data")
    for asked, other in (("train_size", "percent"), ("percent", "train_size")):
        if isinstance(data, Mapping) and asked in data and other not in data and data[asked] != NONE:
            return merge(given, {"data": {other: NONE}})
    return given
