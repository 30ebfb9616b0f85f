"""A run of a table or figure: its row, block and seed, its configuration, its name, its command."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fedtrain.aggregators import AGGREGATORS
from fedtrain.config.method_tables import get_method_class, serialize_method
from fedtrain.config.old_names import OLD_NAMES
from fedtrain.config.references import lengthen_references
from fedtrain.config.schema import SECTIONS, Config, serialize_config
from fedtrain.config.toml import TomlTable, flatten_tables, serialize_section
from fedtrain.extensions.references import WATCHING_KINDS
from fedtrain.report.records import DEFAULT_AGGREGATOR
from fedtrain.runs.json_types import ExtensionDescription
from fedtrain.runs.manifest import describe_extensions
from fedtrain.utils.new_folder import make_folder_name

OPTION_FOR_SETTING = {
    "method.name": "--method",
    "data.source": "--data",
    "server.rounds": "--rounds",
    "evaluation.every": "--eval-every",
    "seed": "--seed",
}
"""Settings that have an option of their own; the others go by --set."""
FIRST_SECTIONS = ("data", "local", "server", "model", "evaluation", "method")
"""Sections that are hashed although nothing in them differs from the defaults, as in the first version."""
PRECISION_SETTINGS = ("dtype", "amp")
"""All of the machine that a result depends on."""


@dataclass(frozen=True, eq=False)
class RunSpec:
    """What is to be run."""

    preset: str
    overrides: TomlTable
    """All that is said beside the preset."""
    config: Config
    standin: bool
    needs_curve: bool = False
    """Whether the rounds on the way are wanted too, and not only the result."""

    @property
    def eval_every(self) -> int:
        """Evaluated every so many rounds."""
        return self.config.evaluation.every

    @cached_property
    def identity(self) -> str:
        """The same for cells whose results are the same."""
        sources = get_sources(describe_extensions(self.config))
        return hash_settings(serialize_config(self.config), standin=self.standin, sources=sources)

    @property
    def name(self) -> str:
        """Of its folder, if it gets a new one."""
        config = self.config
        how = "e" if config.evaluation.test == "always" else "v"  # evaluated, or validated
        parts = (config.data.dataset, config.method_name, f"r{config.server.rounds}", f"{how}{self.eval_every}")
        return make_folder_name("-".join((*parts, f"s{config.seed}", self.identity)))

    def with_seed(self, seed: int) -> RunSpec:
        """The same with another seed, on which no other setting depends."""
        return replace(self, overrides=self.overrides | {"seed": seed}, config=replace(self.config, seed=seed))

    def build_arguments(self) -> list[str]:
        """Of ``fedco2 train``, for a run by hand too."""
        words = ["--preset", self.preset]
        for path, value in flatten_tables(lengthen_references(self.overrides)).items():
            text = value if isinstance(value, str) else json.dumps(value)
            words += [OPTION_FOR_SETTING[path], text] if path in OPTION_FOR_SETTING else ["--set", f"{path}={text}"]
        return words


def affects_result(key: str) -> bool:
    """Whether results depend on this setting.

    The rule of reporting does not count, as every rule is evaluated; nor do rounds that are tested and not reported.
    """
    section, _, name = key.partition(".")
    if section == "machine":
        return name in PRECISION_SETTINGS
    return section != "checkpoints" and key not in ("evaluation.report", "evaluation.test")


def _default_aggregator(tables: Mapping[str, Any]) -> TomlTable:
    """The mean, which runs of earlier versions do not mention; of another aggregator its name counts too."""
    kind = AGGREGATORS.get(tables.get("aggregator", {}).get("name", DEFAULT_AGGREGATOR))
    return {"name": DEFAULT_AGGREGATOR, **(serialize_section(kind()) if kind else {})}


def get_sources(extensions: Sequence[ExtensionDescription]) -> dict[str, str]:
    """Checksums of the code outside fedco2 that decides a result, by kind."""
    return {one["kind"]: one.get("sha256", "") for one in extensions if one["kind"] not in WATCHING_KINDS}


def hash_settings(tables: Mapping[str, Any], *, standin: bool, sources: Mapping[str, str] | None = None) -> str:
    """Of all settings that decide a result. Defaults do not count, so that one that is new tomorrow changes nothing.
    Settings count by the names that they had first, so that runs of earlier versions are still recognised.

    How often a run is evaluated does not count, unless there are validation data by which one of those rounds is
    chosen. Other ``sources`` of code outside fedco2 are another run.
    """
    kind = get_method_class(tables["method"]["name"])
    defaults = {name: serialize_section(section()) for name, section in SECTIONS.items()} | {
        "method": serialize_method(kind()),
        "aggregator": _default_aggregator(tables),
    }
    settings = {**tables, "data": {**tables["data"], "source": "standin" if standin else "real"}}
    aside = () if settings["data"]["val_size"] else ("evaluation.every",)
    kept = {
        name: {
            OLD_NAMES.get(path, path).removeprefix(f"{name}."): value
            for key, value in table.items()
            if affects_result(path := f"{name}.{key}") and path not in aside
            if key not in defaults[name] or value != defaults[name][key]
        }
        for name, table in settings.items()
        if isinstance(table, Mapping)
    }
    said = {name: table for name, table in kept.items() if table or name in FIRST_SECTIONS}
    text = json.dumps([settings["seed"], said, *([sources] if sources else [])], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]
