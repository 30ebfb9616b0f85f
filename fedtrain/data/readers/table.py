"""What every reader of tables returns: columns of numbers and of texts, nothing guessed that was not asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedtrain.data.errors import DataError

MISSING_WORDS = frozenset({"", "na", "n/a", "nan", "null", "?"})
"""What stands for a missing value, upper and lower case alike."""
MAX_COLUMNS = 4096
MAX_ROWS = 50_000_000
LARGEST_NUMBER = float(np.finfo(np.float32).max)
"""Networks compute in single precision."""
MAX_COLUMN_NAME = 200
"""Characters."""


def check_column_names(path: Path, names: Sequence[str]) -> None:
    """Refuse names that are empty, too long or not all to be seen, and two that are the same."""
    for name in names:
        if not name or not name.isprintable():
            raise DataError(f"{path}: a column is called {name[:40]!r}; give every column a name that can be printed")
        if len(name) > MAX_COLUMN_NAME:
            raise DataError(
                f"{path}: column {name[:40]!r}... has a name of over {MAX_COLUMN_NAME} characters; shorten it"
            )
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DataError(f"{path}: two columns are called {name!r}; rename one")
        seen.add(name)


@dataclass(frozen=True, eq=False)
class TextColumn:
    """Texts by number: ``texts[codes[i]]`` is that of row i, and a code of -1 is a missing one."""

    codes: NDArray[np.int64]
    texts: tuple[str, ...]

    def to_list(self) -> list[str | None]:
        """The texts, row by row."""
        return [None if code < 0 else self.texts[code] for code in self.codes.tolist()]


@dataclass(frozen=True, eq=False)
class RawTable:
    """Columns by name: floats, nan where one is missing, or texts."""

    source: Path
    columns: Mapping[str, NDArray[np.float64] | TextColumn]
    lines: NDArray[np.int64]
    """Where each row is in its file."""
    row_word: str = "line"

    def __len__(self) -> int:
        return len(self.lines)

    def locate(self, row: int) -> str:
        """Where a row is, in words."""
        return f"{self.row_word} {self.lines[row]}"


def encode_texts(values: list[str | None]) -> TextColumn:
    """Texts by number, in the order of their first appearance."""
    known: dict[str, int] = {}
    codes = np.array([-1 if value is None else known.setdefault(value, len(known)) for value in values], dtype=np.int64)
    return TextColumn(codes, tuple(known))
