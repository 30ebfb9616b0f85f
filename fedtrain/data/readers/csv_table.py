"""Read a CSV file in two passes: which columns are numbers, then the columns; a cell takes eight bytes."""

from __future__ import annotations

import csv
import math
from array import array
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedtrain.data.errors import DataError
from fedtrain.data.readers.safe_read import MAX_BYTES, require_regular_file, wrap_read_errors
from fedtrain.data.readers.table import (
    LARGEST_NUMBER,
    MAX_COLUMNS,
    MISSING_WORDS,
    RawTable,
    TextColumn,
    check_column_names,
)

DELIMITERS = ",;\t|"
MAX_CELL = 10_000
"""Characters in a cell."""


@dataclass
class ColumnScan:
    """What the first pass sees of a column."""

    numbers: int = 0
    texts: int = 0
    first_text: tuple[int, str] = (0, "")


def read_csv(path: Path, text_columns: Collection[str] = (), number_columns: Collection[str] | None = None) -> RawTable:
    """The table in the file. ``text_columns`` are read as text whatever they hold; others are numbers or text.

    With ``number_columns``, exactly these are numbers.

    A column in which most are numbers and some are not is an error: it is a typo more often than a category.
    """
    with wrap_read_errors(path, "CSV file"):
        if require_regular_file(path).stat().st_size > MAX_BYTES:
            raise ValueError(f"it has more than the {MAX_BYTES} bytes allowed")
        with _open_rows(path) as (names, rows):
            scans = _scan(names, rows)
        if number_columns is None:
            texts = {name for name in names if name in text_columns or scans[name].numbers == 0 < scans[name].texts}
        else:
            texts = {name for name in names if name not in number_columns}
        for name, seen in scans.items():
            if name not in texts and seen.texts:
                if seen.texts > seen.numbers and number_columns is None:
                    texts.add(name)
                    continue
                line, cell = seen.first_text
                raise DataError(
                    f"{path}, line {line}: {name} is {cell[:40]!r}, and it is a number in {seen.numbers} other rows; "
                    "mend it, leave the cell empty, or name the column among the categories",
                    options=("categories",),
                )
        with _open_rows(path) as (names, rows):
            return _collect(path, names, rows, texts)


@contextmanager
def _open_rows(path: Path) -> Iterator[tuple[list[str], Iterator[tuple[int, list[str]]]]]:
    """The names of the columns, and rows with their line numbers."""
    csv.field_size_limit(MAX_CELL)
    with path.open(encoding="utf-8-sig", newline="") as file:
        head = file.readline(2**20)
        if not head.strip():
            raise ValueError("its first line is empty; it should name the columns")
        file.seek(0)
        delimiter = max(DELIMITERS, key=head.count)
        reader = csv.reader(file, delimiter=delimiter, strict=True)
        names = [name.strip() for name in next(reader)]
        if len(names) > MAX_COLUMNS:
            raise DataError(
                f"{path}: it has {len(names)} columns, more than {MAX_COLUMNS}; choose among them, or give the numbers "
                "as an npz with arrays X, y and owner"
            )
        check_column_names(path, names)

        def rows() -> Iterator[tuple[int, list[str]]]:
            for row in reader:
                if not row:
                    continue
                if len(row) != len(names):
                    raise DataError(
                        f"{path}, line {reader.line_num}: {len(row)} cells, and there are {len(names)} columns; mend it"
                    )
                yield reader.line_num, row

        yield names, rows()


def parse_number(cell: str) -> float | None:
    """The number, nan for a missing one, None for text."""
    try:
        number = float(cell)
    except ValueError:
        return math.nan if cell.strip().lower() in MISSING_WORDS else None
    return None if "_" in cell else number


def _scan(names: list[str], rows: Iterator[tuple[int, list[str]]]) -> dict[str, ColumnScan]:
    scans = [ColumnScan() for _ in names]
    for line, row in rows:
        for seen, cell in zip(scans, row, strict=True):
            number = parse_number(cell)
            if number is None:
                seen.first_text = seen.first_text if seen.texts else (line, cell)
                seen.texts += 1
            elif not math.isnan(number):
                seen.numbers += 1
    return dict(zip(names, scans, strict=True))


@dataclass
class _TextCollector:
    codes: array[int] = field(default_factory=lambda: array("q"))
    known: dict[str, int] = field(default_factory=dict)

    def add(self, cell: str) -> None:
        text = cell.strip()
        self.codes.append(-1 if text.lower() in MISSING_WORDS else self.known.setdefault(text, len(self.known)))


def _collect(path: Path, names: list[str], rows: Iterator[tuple[int, list[str]]], texts: set[str]) -> RawTable:
    numbers = {name: array("d") for name in names if name not in texts}
    words = {name: _TextCollector() for name in names if name in texts}
    lines = array("q")
    for line, row in rows:
        lines.append(line)
        for name, cell in zip(names, row, strict=True):
            if name in words:
                words[name].add(cell)
                continue
            number = parse_number(cell)
            if number is None or abs(number) > LARGEST_NUMBER:
                raise DataError(
                    f"{path}, line {line}: {name} is {cell[:40]!r}, no finite number of single precision; mend it"
                )
            numbers[name].append(number)
    if not lines:
        raise DataError(f"{path}: it has no rows below its first line; give it some")
    columns = {
        name: TextColumn(np.array(words[name].codes, dtype=np.int64), tuple(words[name].known))
        if name in words
        else np.array(numbers[name], dtype=np.float64)
        for name in names
    }
    return RawTable(path, columns, np.array(lines, dtype=np.int64))
