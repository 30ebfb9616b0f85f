"""The paper's numbers: those that fedco2 holds, each with its source, and those that a user adds."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from math import isfinite
from pathlib import Path
from typing import Any

from fedtrain.config.schema import load_toml
from fedtrain.config.toml import format_value
from theory.errors import InputError
from theory.text import suggest_name

NumberKey = tuple[str, str, str]
"""Panel, row and column; a panel of no name is the only one."""
ENTRY_KEYS = ("panel", "row", "source", "values", "std")


@dataclass(frozen=True)
class PaperNumber:
    """In %."""

    value: float
    std: float | None
    source: str


PaperNumbers = dict[NumberKey, PaperNumber]


def load_paper_numbers(name: str) -> PaperNumbers:
    """What fedco2 holds of a table or figure: all that tables print, and of figures what is known."""
    path = files("fedtrain.reproduction") / "paper" / f"{name}.toml"
    return (
        parse_paper_numbers(tomllib.loads(path.read_text(encoding="utf-8")), name, str(path)) if path.is_file() else {}
    )


def load_user_numbers(
    path: Path, known: Mapping[str, Mapping[str, tuple[set[str], set[str]]]]
) -> dict[str, PaperNumbers]:
    """A user's numbers by table or figure; ``known`` has all of them with panels, and the rows and columns of each."""
    tables = load_toml(path)
    for name in tables:
        if name not in known:
            raise InputError(f"{path}: [[{name}]] is no table or figure of the paper; {suggest_name(name, known)}")
    found = {name: parse_paper_numbers(tables, name, str(path)) for name in tables}
    for name, places in found.items():
        for panel, row, column in places:
            _check_key(path, name, panel or next(iter(known[name])), row, column, known[name])
    return found


def _check_key(
    path: Path, name: str, panel: str, row: str, column: str, known: Mapping[str, tuple[set[str], set[str]]]
) -> None:
    if panel not in known:
        raise InputError(f"{path}: {name} has no panel {panel!r}; {suggest_name(panel, known)}")
    rows, columns = known[panel]
    for word, names, what in ((row, rows, "row"), (column, columns, "column")):
        if word not in names:
            raise InputError(f"{path}: {name} has no {what} {word!r}; {suggest_name(word, sorted(names))}")


def parse_paper_numbers(tables: Mapping[str, Any], name: str, path: str) -> PaperNumbers:
    """``[[T1]]`` with ``row``, ``source``, ``values`` and maybe ``std`` and ``panel``, again and again."""
    entries = tables.get(name, [])
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise InputError(f"{path}: {name} is no list of tables; write [[{name}]]")
    found: PaperNumbers = {}
    for entry in entries:
        for key in entry:
            if key not in ENTRY_KEYS:
                raise InputError(
                    f"{path}: unknown key {format_value(key)} in [[{name}]]; {suggest_name(str(key), ENTRY_KEYS)}"
                )
        row, source, panel = (entry.get(key, "") for key in ("row", "source", "panel"))
        values, std = entry.get("values"), entry.get("std", {})
        if not (isinstance(row, str) and row and isinstance(source, str) and source and isinstance(panel, str)):
            raise InputError(f"{path}: every [[{name}]] needs the words row and source")
        if not isinstance(values, Mapping) or not isinstance(std, Mapping):
            raise InputError(f"{path}: [[{name}]] of {row!r}: values and std are tables: values = {{ mnist = 97.1 }}")
        if not all(_is_percent(value) for value in (*values.values(), *std.values())):
            raise InputError(f"{path}: [[{name}]] of {row!r}: values are numbers from 0 to 100, in %")
        for column, value in values.items():
            spread = std.get(column)
            found[panel, row, column] = PaperNumber(float(value), None if spread is None else float(spread), source)
    return found


def _is_percent(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and 0 <= value <= 100
