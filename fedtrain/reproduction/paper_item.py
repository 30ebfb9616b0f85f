"""Tables and figures of the paper: rows, columns and settings of each, read from ``experiments/*.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from fedtrain.config.method_tables import get_method_class
from fedtrain.config.presets import load_preset_chain
from fedtrain.config.schema import SelectionRule
from fedtrain.config.toml import TomlTable, merge_tables
from fedtrain.data.datasets import DATASETS
from fedtrain.report.records import FUSED
from theory.errors import InputError
from theory.text import suggest_name

PAPER_ITEM_NAMES = (
    *(f"T{number}" for number in (1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13)),
    *(f"F{k}" for k in range(2, 8)),
)
"""In the paper's order."""
ITEMS_WITHOUT_RUNS = {
    "T6": "the table of the data sets' sizes (fedco2 data clients)",
    "F1": "the drawing of the method",
}


@dataclass(frozen=True)
class MethodVariant:
    """A method, or a variant of one; of methods that add up several models maybe one of them."""

    method: str
    label: str = ""
    branch: str = FUSED
    set: TomlTable = field(default_factory=dict)
    """Settings."""
    per_dataset: Mapping[str, TomlTable] = field(default_factory=dict)
    """Settings on some data sets only."""
    legacy: TomlTable = field(default_factory=dict)
    """Settings that the published code's quirks want."""

    @property
    def name(self) -> str:
        """As in the paper's table."""
        return self.label or get_method_class(self.method).title


@dataclass(frozen=True)
class Block:
    """A data set and its settings: a column of the table, or a table of its own."""

    preset: str
    label: str = ""
    client: str = ""
    """The one that a figure over rounds shows."""
    set: TomlTable = field(default_factory=dict)
    legacy: TomlTable = field(default_factory=dict)

    @property
    def dataset(self) -> str:
        """Which the preset is for."""
        return get_preset_dataset(self.preset)

    @property
    def name(self) -> str:
        """Of the column or the table."""
        return self.label or DATASETS[self.dataset].title


@dataclass(frozen=True)
class Metric:
    """What a run has to say in a column: one client's accuracy, or the mean or micro over all."""

    label: str
    client: str = ""
    over: Literal["mean", "micro"] = "mean"


@dataclass(frozen=True)
class PaperItem:
    """A table or figure of the paper."""

    name: str
    title: str
    layout: Literal["clients", "blocks", "rounds"]
    """Columns are the clients and their mean, the blocks, or rounds."""
    seeds: tuple[int, ...]
    rows: tuple[MethodVariant, ...]
    blocks: tuple[Block, ...]
    values: tuple[Metric, ...] = ()
    """Layout ``blocks``: a table for each."""
    rounds: tuple[int, ...] = ()
    """Layout ``rounds``: which."""
    rule: SelectionRule | None = None
    """If not the one of the preset."""
    std_over: Literal["seeds", "rounds"] = "seeds"
    """What ± is of: runs, or (label skew) the evaluations of the window of a single run."""
    figure: Literal["", "curves", "lines", "dots", "bars"] = ""
    axis: str = ""
    notes: tuple[str, ...] = ()


@cache
def get_preset_dataset(preset: str) -> str:
    """Which data set a preset is for."""
    return str(merge_tables(*load_preset_chain(preset))["data"]["dataset"])


@cache
def load_paper_item(name: str) -> PaperItem:
    """The one of this name."""
    if name not in PAPER_ITEM_NAMES:
        if name.upper() in ITEMS_WITHOUT_RUNS:
            raise InputError(f"{name.upper()} has nothing to be run for: it is {ITEMS_WITHOUT_RUNS[name.upper()]}")
        raise InputError(f"unknown table or figure {name!r}; {suggest_name(name.upper(), PAPER_ITEM_NAMES)}")
    text = (files("fedtrain.reproduction") / "experiments" / f"{name}.toml").read_text(encoding="utf-8")
    table: dict[str, Any] = tomllib.loads(text)
    lists: dict[str, Any] = {key: tuple(table.pop(key, ())) for key in ("seeds", "rounds", "notes")}
    lists["rows"] = tuple(
        MethodVariant(row) if isinstance(row, str) else MethodVariant(**row) for row in table.pop("rows")
    )
    lists["blocks"] = tuple(Block(**block) for block in table.pop("blocks"))
    lists["values"] = tuple(Metric(**value) for value in table.pop("values", ()))
    return PaperItem(name=name, **lists, **table)
