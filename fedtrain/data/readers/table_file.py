"""A table in a file of any known format."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from fedtrain.data.readers.csv_table import read_csv
from fedtrain.data.readers.parquet_table import PARQUET_SUFFIX, read_parquet
from fedtrain.data.readers.table import RawTable

TABLE_SUFFIXES = (".csv", ".tsv", ".txt", PARQUET_SUFFIX)


def read_table(
    path: Path, text_columns: Collection[str] = (), number_columns: Collection[str] | None = None
) -> RawTable:
    """The table in the file. ``text_columns`` are texts whatever they hold; others are numbers or texts.

    With ``number_columns``, exactly these are numbers.
    """
    read = read_parquet if path.name.lower().endswith(PARQUET_SUFFIX) else read_csv
    return read(path, text_columns, number_columns)
