"""Configurations as data: the protocol of the paper for each data set, and what depends on method, skew and source.

A preset may name its ``base``. Beside the sections of a configuration it may have tables that hold only sometimes:
``[when.method.fedper.model]``, ``[when.skew.pathological.data]``, ``[when.source.standin.server]``.
Later wins: base, preset, skew, method, source, then the user's file, then the command line.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from importlib.resources import files
from typing import Any

from fedtrain.config.method_tables import get_method_name, list_parts
from fedtrain.config.schema import Config, parse_config
from fedtrain.config.toml import NONE_TEXT, TomlTable, merge_tables
from fedtrain.registry import DATASET_NAMES
from theory.errors import InputError
from theory.text import suggest_name

PRESET_FOLDER = files("fedtrain.config.presets")
BASE_PRESETS = {"feature-skew", "label-skew"}
OWN_PRESET = "own"
"""For clients that are given in Python; it means nothing on the command line."""
FOUND_PRESET = "found"
"""For data that are found at a path, or were added under a name."""


def list_presets() -> list[str]:
    """All that can be chosen."""
    found = {entry.name.removesuffix(".toml") for entry in PRESET_FOLDER.iterdir() if entry.name.endswith(".toml")}
    return sorted(found - BASE_PRESETS - {OWN_PRESET, FOUND_PRESET})


def load_preset_chain(name: str) -> list[TomlTable]:
    """The preset and what it stands on, the base first."""
    if name not in (*list_presets(), OWN_PRESET, FOUND_PRESET):
        raise InputError(f"unknown preset {name!r}; {suggest_name(name, list_presets())}")
    return _load_chain(name)


@cache
def _load_chain(name: str) -> list[TomlTable]:
    table = tomllib.loads((PRESET_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    base = table.pop("base", None)
    return [*(_load_chain(base) if base else []), table]


def get_dataset_preset(dataset: str) -> str:
    """The preset of a data set; one of the user's own has that of all that are found."""
    return dataset if dataset in DATASET_NAMES else FOUND_PRESET


def get_preset_title(name: str) -> str:
    """What it is, in a line."""
    return str(load_preset_chain(name)[-1]["title"])


def resolve_preset(preset: str, given: Mapping[str, Any], *, standin: bool = False) -> Config:
    """The configuration that a preset and the user's own tables make."""
    tables, given = load_preset_chain(preset), drop_other_sample_size(given)
    plain = merge_tables(*({k: v for k, v in table.items() if k not in ("when", "title")} for table in tables))
    first = parse_config(merge_tables(plain, given))

    def when(kind: str, value: str) -> TomlTable:
        return merge_tables(*(table.get("when", {}).get(kind, {}).get(value, {}) for table in tables))

    source = "standin" if standin else "real"
    usual = merge_tables(
        plain, when("skew", first.data.skew), _adapt_to_method(first, partial(when, "method")), when("source", source)
    )
    return scale_window(parse_config(merge_tables(usual, given)), usual["server"]["rounds"], given)


def _adapt_to_method(config: Config, when: Callable[[str], TomlTable]) -> TomlTable:
    """What holds for the method; a part has the options that it has alone, and the online one decides the rest."""
    parts = list_parts(config.method)
    options = {
        f"{path}.{key}": value
        for path, part in parts.items()
        for key, value in when(get_method_name(part)).get("method", {}).items()
    }
    own = when(config.method_name)
    if "online" in parts:
        own = {**when(get_method_name(parts["online"])), "method": own.get("method", {})}
    return merge_tables(own, {"method": options} if options else {})


def scale_window(config: Config, usual_rounds: int, given: Mapping[str, Any]) -> Config:
    """With fewer rounds than usual, let the window at the end be the same share of them, unless it is given."""
    window, rounds = config.evaluation.window, config.server.rounds
    if not window or rounds >= usual_rounds or "window" in given.get("evaluation", {}):
        return config
    scaled = max(config.evaluation.window_every, window * rounds // usual_rounds)
    return replace(config, evaluation=replace(config.evaluation, window=scaled))


def drop_other_sample_size(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Who says how many samples to train on does not mean the preset's share of them, and the other way round."""
    data = given.get("data")
    for asked, other in (("train_size", "percent"), ("percent", "train_size")):
        if isinstance(data, Mapping) and asked in data and other not in data and data[asked] != NONE_TEXT:
            return merge_tables(given, {"data": {other: NONE_TEXT}})
    return given
