"""How the columns of a table become the numbers that a network reads, learned once and written down."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray


class ColumnDescription(TypedDict):
    """A column of a table."""

    name: str
    categories: NotRequired[list[str]]
    """Of a column that holds words."""


class TableDescription(TypedDict):
    """The columns that a client's numbers come from."""

    columns: list[ColumnDescription]
    target: str
    client_column: NotRequired[str]
    split_column: NotRequired[str]


@dataclass(frozen=True)
class Column:
    """A number, or one of several categories."""

    name: str
    categories: tuple[str, ...] | None = None
    """In the training part, in order; None if the column is a number."""

    @property
    def width(self) -> int:
        """Inputs that it takes: of a category one each, and one more for all that training never saw."""
        return 1 if self.categories is None else len(self.categories) + 1


@dataclass(frozen=True)
class TableSchema:
    """The columns in their order, and what is no input."""

    columns: tuple[Column, ...]
    target: str
    client_column: str | None = None
    split_column: str | None = None

    @property
    def width(self) -> int:
        """Inputs of a row."""
        return sum(column.width for column in self.columns)

    @property
    def is_number(self) -> NDArray[np.bool_]:
        """Of each input, whether it is a number; others say which category it is."""
        return np.concatenate([np.full(c.width, c.categories is None) for c in self.columns])

    @property
    def input_names(self) -> tuple[str, ...]:
        """Of each input: ``age``, ``chest_pain=4``, ``chest_pain=?`` (unknown)."""
        return tuple(
            name
            for column in self.columns
            for name in (
                [column.name]
                if column.categories is None
                else [f"{column.name}={c}" for c in (*column.categories, "?")]
            )
        )

    @property
    def fingerprint(self) -> str:
        """SHA-256 of columns and categories: two tables of the same schema mean the same by each input."""
        columns = [[column.name, column.categories] for column in self.columns]
        return hashlib.sha256(json.dumps(columns).encode()).hexdigest()

    def encode(self, values: Mapping[str, NDArray[Any] | Sequence[str | None]]) -> NDArray[np.float32]:
        """Rows of numbers: those of a column as they are (missing: nan), categories one-hot.

        ``values`` has floats of each number and texts of each category, None where one is missing.
        """
        blocks = []
        for column in self.columns:
            if column.categories is None:
                blocks.append(np.asarray(values[column.name], dtype=np.float32)[:, None])
                continue
            place = {name: i for i, name in enumerate(column.categories)}
            unknown = len(place)
            at = np.array(
                [unknown if one is None else place.get(one, unknown) for one in values[column.name]], np.int64
            )
            blocks.append(np.eye(unknown + 1, dtype=np.float32)[at])
        return np.concatenate(blocks, axis=1)

    def to_table(self) -> TableDescription:
        """As JSON and TOML hold it."""
        columns: list[ColumnDescription] = [
            {"name": c.name} if c.categories is None else {"name": c.name, "categories": list(c.categories)}
            for c in self.columns
        ]
        table: TableDescription = {"target": self.target, "columns": columns}
        if self.client_column is not None:
            table["client_column"] = self.client_column
        if self.split_column is not None:
            table["split_column"] = self.split_column
        return table

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> TableSchema:
        """Back again; TypeError, KeyError or ValueError if it is not what `to_table` gives."""
        columns = tuple(
            Column(_text(one["name"]), tuple(map(_text, one["categories"])) if "categories" in one else None)
            for one in table["columns"]
        )
        if not columns:
            raise ValueError("it has no columns")
        client, split = (
            None if table.get(key) is None else _text(table[key]) for key in ("client_column", "split_column")
        )
        return cls(columns, _text(table["target"]), client, split)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value
