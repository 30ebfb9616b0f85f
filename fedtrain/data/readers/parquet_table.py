"""Read Parquet files, and tables of Arrow, with pyarrow: columns become numbers or texts, and nothing else."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtrain.data.errors import DataError
from fedtrain.data.readers.safe_read import MAX_BYTES, require_regular_file, wrap_read_errors
from fedtrain.data.readers.table import (
    LARGEST_NUMBER,
    MAX_COLUMNS,
    MAX_ROWS,
    MISSING_WORDS,
    RawTable,
    TextColumn,
    check_column_names,
    encode_texts,
)

PARQUET_SUFFIX = ".parquet"
MAX_CELLS = 2**28
"""Of a table: equal values take no room in such files, and eight bytes each once they are read."""


def import_pyarrow(path: Path) -> Any:
    """The library, which is an extra."""
    try:
        import pyarrow
    except ImportError:
        raise DataError(
            f"{path}: Parquet and Arrow files need pyarrow: pip install 'fedco2[arrow]'; or save it as CSV"
        ) from None
    return pyarrow


def read_parquet(
    path: Path, text_columns: Collection[str] = (), number_columns: Collection[str] | None = None
) -> RawTable:
    """The table in the file; which columns are numbers is said in the file, except for ``text_columns``.

    With ``number_columns``, exactly these are numbers.
    """
    pa = import_pyarrow(path)
    import pyarrow.parquet as parquet

    with wrap_read_errors(path, "Parquet file"), require_regular_file(path).open("rb") as stream:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"it has more than the {MAX_BYTES} bytes allowed")
        file = parquet.ParquetFile(stream, page_checksum_verification=True)
        check_size(path, file.metadata.num_rows, file.metadata.num_columns)
        table = file.read(use_threads=False)
        table.validate(full=True)
        return convert_table(path, pa, table, text_columns, number_columns)


def check_size(path: Path, rows: int, columns: int) -> None:
    """Refuse what would not fit before it is read."""
    if columns > MAX_COLUMNS:
        raise DataError(
            f"{path}: it has {columns} columns, more than {MAX_COLUMNS}; choose among them, or give the numbers as an "
            "npz with arrays X, y and owner"
        )
    if rows > MAX_ROWS or rows * columns > MAX_CELLS:
        raise DataError(f"{path}: {rows} rows of {columns} columns are more than can be read; split the file")


def convert_table(
    path: Path,
    pa: Any,
    table: Any,
    text_columns: Collection[str] = (),
    number_columns: Collection[str] | None = None,
) -> RawTable:
    """A table of Arrow as ours."""
    names = [str(name).strip() for name in table.column_names]
    check_column_names(path, names)
    if not len(table):
        raise DataError(f"{path}: it has no rows")
    columns: dict[str, NDArray[np.float64] | TextColumn] = {}
    for name, cells in zip(names, table.columns, strict=True):
        as_text = name in text_columns if number_columns is None else name not in number_columns
        columns[name] = _convert_column(path, pa, name, cells, as_text, number_columns is not None)
    return RawTable(path, columns, np.arange(1, len(table) + 1), "row")


def _convert_column(
    path: Path, pa: Any, name: str, cells: Any, as_text: bool, is_decided: bool
) -> NDArray[np.float64] | TextColumn:
    kind = cells.type
    if pa.types.is_dictionary(kind):
        cells = cells.cast(kind.value_type)
        kind = cells.type
    if pa.types.is_null(kind):
        return encode_texts([None] * len(cells)) if as_text else np.full(len(cells), np.nan)
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    if pa.types.is_decimal(kind):
        cells, is_number = cells.cast(pa.float64()), True
    if not (is_text or is_number):
        raise DataError(
            f"{path}: {name} is of type {str(kind)[:60]}, neither number nor text; ignore the column, or convert it",
            options=("ignore",),
        )
    if is_text:
        if is_decided and not as_text:
            raise DataError(f"{path}: {name} is text, and numbers were trained on; give numbers")
        return encode_texts([_read_text(value) for value in cells.to_pylist()])
    if as_text:
        return encode_texts([_write_number(value) for value in cells.to_pylist()])
    numbers = _read_numbers(pa, cells)
    if (bad := np.flatnonzero(np.abs(numbers) > LARGEST_NUMBER)).size:
        row = int(bad[0])
        raise DataError(
            f"{path}, row {row + 1}: {name} is {numbers[row]}, no finite number of single precision; mend it"
        )
    return numbers


def _read_numbers(pa: Any, cells: Any) -> NDArray[np.float64]:
    """As doubles, nan where one is missing."""
    if pa.types.is_boolean(cells.type):
        cells = cells.cast(pa.uint8())
    doubles = cells.cast(pa.float64(), safe=False)
    return np.array(doubles.to_numpy(zero_copy_only=False) if not hasattr(doubles, "chunks") else doubles.to_numpy())


def _read_text(value: str | None) -> str | None:
    text = None if value is None else value.strip()
    return None if text is None or text.lower() in MISSING_WORDS else text


def _write_number(value: Any) -> str | None:
    """As a CSV file would have it: 1, 1.0, True."""
    return None if value is None or value != value else str(value)
