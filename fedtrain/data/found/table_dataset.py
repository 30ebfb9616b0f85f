"""Tables as data sets: clients, classes, split and schema are found in the columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedtrain.config.data import DataSettings
from fedtrain.data.client_data import SamplePool
from fedtrain.data.datasets import DatasetInfo
from fedtrain.data.errors import DataError
from fedtrain.data.found.names import check_client_names, check_name, sort_names
from fedtrain.data.found.pools import ONE_CLIENT, FoundDataset, build_array_pools, parse_part
from fedtrain.data.found.split import ClientLabels, split_clients
from fedtrain.data.partition.indices import Indices
from fedtrain.data.readers.table import RawTable, TextColumn, encode_texts
from fedtrain.data.scaling import measure_scaling
from fedtrain.data.table_schema import Column, TableSchema
from theory.errors import InputError
from theory.text import suggest_name

MAX_CLASSES = 1000
MAX_CATEGORIES = 200
"""More different texts are names or dates rather than categories."""


def find_table_dataset(table: RawTable, settings: DataSettings, title: str) -> FoundDataset:
    """What is in a table; the schema is learned from the training rows alone."""
    columns, source = table.columns, table.source
    if settings.target is None:
        raise InputError(
            f"{source}: which column is to be predicted? its columns are {_list_names(columns)}; "
            "where no column can be named, keep the table first: fedco2 data add NAME PATH --target COLUMN",
            options=("target",),
        )
    named = {"target": settings.target, "client_column": settings.client_column, "split_column": settings.split_column}
    for option, name in named.items():
        if name is not None and name not in columns:
            raise InputError(f"{source}: no column {name!r}; {suggest_name(name, columns)}", options=(option,))
    for option in ("categories", "ignore"):
        if missing := next((name for name in getattr(settings, option) if name not in columns), None):
            raise InputError(f"{source}: no column {missing!r}; {suggest_name(missing, columns)}", options=(option,))
    outside = {*filter(None, named.values()), *settings.ignore}
    inputs = [name for name in columns if name not in outside]
    if not inputs:
        raise InputError(f"{source}: no column is left to predict {settings.target!r} from; ignore fewer")
    table, notes = _treat_missing(table, settings.target, inputs, settings.missing)
    labels, classes = _read_classes(table, settings.target)
    clients, owner = _read_clients(table, settings.client_column)
    is_test = None if settings.split_column is None else _read_split(table, settings.split_column)
    twins = _group_rows(table, inputs, labels)
    rows = [np.flatnonzero(owner == i) for i in range(len(clients))]
    found = [
        ClientLabels(name, labels[at], twins[at], None if is_test is None else is_test[at])
        for name, at in zip(clients, rows, strict=True)
    ]
    splits, split, said = split_clients(source, found, classes, settings.test_share, settings.split_seed)
    train = np.concatenate([at[one.train] for at, one in zip(rows, splits, strict=True)])
    schema = TableSchema(
        tuple(_learn_column(table, name, train) for name in inputs),
        settings.target,
        settings.client_column,
        settings.split_column,
    )
    _check_categories(table, schema, settings.categories)
    x = encode_table(table, schema)
    _check_sites_have_columns(
        source, x, schema, clients, rows, [at[one.train] for at, one in zip(rows, splits, strict=True)]
    )
    info = DatasetInfo(
        title, title, {name: name for name in clients}, tuple(classes), (schema.width,), input_type="float32",
        scaling=measure_scaling(x[train], schema.is_number), table=schema,
    )  # fmt: skip
    pools: list[SamplePool] = build_array_pools(info, x, labels, rows, splits)
    return FoundDataset(info, pools, split, (*notes, *said))


def find_newcomers(
    table: RawTable, settings: DataSettings, title: str, schema: TableSchema, classes: Sequence[str]
) -> FoundDataset:
    """Clients that come later: their rows as a schema that was learned from others has them, and its classes."""
    columns, source = table.columns, table.source
    inputs = [column.name for column in schema.columns]
    for name in (schema.target, *inputs):
        if name not in columns:
            raise DataError(f"{source}: it lacks the column {name!r}; {suggest_name(name, columns)}")
    table, notes = _treat_missing(table, schema.target, inputs, settings.missing)
    own, names = _read_texts(table, schema.target)
    if unknown := next((name for name in names if name not in classes), None):
        raise DataError(
            f"{source}: {schema.target} is {unknown!r}, and the trained classes are {', '.join(classes[:20])}; mend "
            "these rows, or leave them out"
        )
    labels = np.array([classes.index(name) for name in names], dtype=np.int64)[own]
    clients, owner = _read_clients(table, schema.client_column if schema.client_column in columns else None)
    split_column = schema.split_column if schema.split_column in columns else None
    is_test = None if split_column is None else _read_split(table, split_column)
    x, twins = encode_table(table, schema), _group_rows(table, inputs, labels)
    rows = [np.flatnonzero(owner == i) for i in range(len(clients))]
    found = [
        ClientLabels(name, labels[at], twins[at], None if is_test is None else is_test[at])
        for name, at in zip(clients, rows, strict=True)
    ]
    splits, split, said = split_clients(source, found, classes, settings.test_share, settings.split_seed)
    info = DatasetInfo(
        title, title, {name: name for name in clients}, tuple(classes), (schema.width,), input_type="float32",
        table=schema,
    )  # fmt: skip
    return FoundDataset(info, build_array_pools(info, x, labels, rows, splits), split, (*notes, *said))


def _read_texts(table: RawTable, column: str) -> tuple[Indices, list[str]]:
    """The texts of a column without a hole, and which of them each row has."""
    cells = _as_text(table.columns[column])
    used, own = np.unique(cells.codes, return_inverse=True)
    return own.reshape(-1), [cells.texts[code] for code in used.tolist()]


def encode_table(table: RawTable, schema: TableSchema) -> NDArray[np.float32]:
    """The inputs of every row; columns that the schema does not know are passed over."""
    values: dict[str, NDArray[np.float64] | Sequence[str | None]] = {}
    for column in schema.columns:
        if column.name not in table.columns:
            raise DataError(
                f"{table.source}: it lacks the column {column.name!r}; {suggest_name(column.name, table.columns)}"
            )
        cells = table.columns[column.name]
        if column.categories is None and isinstance(cells, TextColumn):
            raise DataError(f"{table.source}: {column.name} is text, and numbers were trained on; give numbers")
        values[column.name] = cells.to_list() if isinstance(cells, TextColumn) else cells
    return schema.encode(values)


def _list_names(columns: Iterable[str]) -> str:
    names = list(columns)
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def _missing(cells: NDArray[np.float64] | TextColumn) -> NDArray[np.bool_]:
    return cells.codes < 0 if isinstance(cells, TextColumn) else np.isnan(cells)


def _treat_missing(table: RawTable, target: str, inputs: Sequence[str], policy: str) -> tuple[RawTable, list[str]]:
    """The table after the policy, and what was done in words."""
    if (unlabelled := np.flatnonzero(_missing(table.columns[target]))).size:
        where = table.locate(int(unlabelled[0]))
        raise DataError(
            f"{table.source}, {where}: {target} is missing, and {len(unlabelled)} rows lack it; remove these rows"
        )
    holes = {name: int(_missing(table.columns[name]).sum()) for name in inputs}
    holes = {name: count for name, count in holes.items() if count}
    if not holes:
        return table, []
    counts = ", ".join(f"{name} {count}" for name, count in list(holes.items())[:8]) + ", ..." * (len(holes) > 8)
    words = f"{sum(holes.values())} values are missing ({counts})"
    if policy == "refuse":
        raise DataError(
            f"{table.source}: {words}; fill them in, or choose what is done with them", options=("missing",)
        )
    if policy == "mean":
        return table, [f"{words}: numbers count as the mean of the training part, categories as unknown"]
    keep = ~np.any([_missing(table.columns[name]) for name in holes], axis=0)
    if not keep.any():
        raise DataError(f"{table.source}: {words}, some in every row; drop columns instead", options=("ignore",))
    kept = {
        name: TextColumn(cells.codes[keep], cells.texts) if isinstance(cells, TextColumn) else cells[keep]
        for name, cells in table.columns.items()
    }
    return replace(table, columns=kept, lines=table.lines[keep]), [f"{words}: {int((~keep).sum())} rows are left out"]


def _as_text(cells: NDArray[np.float64] | TextColumn) -> TextColumn:
    """Numbers as people write them: 1, not 1.0."""
    if isinstance(cells, TextColumn):
        return cells
    return encode_texts([None if x != x else str(int(x)) if x == int(x) else repr(x) for x in cells.tolist()])


def _read_classes(table: RawTable, target: str) -> tuple[Indices, list[str]]:
    cells = _as_text(table.columns[target])
    used = sorted(set(cells.codes.tolist()))
    names = [cells.texts[code] for code in used]
    if len(names) > min(MAX_CLASSES, max(2, len(table) // 2)):
        raise DataError(
            f"{table.source}: {target} has {len(names)} different values in {len(table)} rows; classes are needed, "
            "each with several rows: choose another column, or group its values",
            options=("target",),
        )
    for name in names:
        check_name(table.source, "class", name)
    order = sort_names(names)
    number = {cells.texts.index(name): i for i, name in enumerate(order)}
    if len(order) < 2:
        raise DataError(f"{table.source}: all rows are of class {order[0]!r}; at least two classes are needed")
    return np.array([number[code] for code in cells.codes.tolist()], dtype=np.int64), order


def _read_clients(table: RawTable, column: str | None) -> tuple[list[str], Indices]:
    """Names, and whose each row is."""
    if column is None:
        return [ONE_CLIENT], np.zeros(len(table), dtype=np.int64)
    cells = _as_text(table.columns[column])
    if (nobody := np.flatnonzero(cells.codes < 0)).size:
        raise DataError(f"{table.source}, {table.locate(int(nobody[0]))}: {column} is missing; say whose row it is")
    names = list(dict.fromkeys(cells.texts[code] for code in cells.codes.tolist()))
    check_client_names(table.source, names)
    number = {name: i for i, name in enumerate(names)}
    return names, np.array([number[cells.texts[code]] for code in cells.codes.tolist()], dtype=np.int64)


def _read_split(table: RawTable, column: str) -> NDArray[np.bool_]:
    cells = _as_text(table.columns[column])
    parts = {-1: None, **{code: parse_part(text) for code, text in enumerate(cells.texts)}}
    for row, code in enumerate(cells.codes.tolist()):
        if parts[code] is None:
            said = "missing" if code < 0 else repr(cells.texts[code])
            raise DataError(f"{table.source}, {table.locate(row)}: {column} is {said}; write train or test")
    return np.array([parts[code] == "test" for code in cells.codes.tolist()])


def _group_rows(table: RawTable, inputs: Sequence[str], labels: Indices) -> Indices:
    """A number for each row, the same for equal ones."""
    raw = [c.codes.astype(np.float64) if isinstance(c := table.columns[n], TextColumn) else c for n in inputs]
    rows = np.ascontiguousarray(np.stack([*raw, labels.astype(np.float64)], axis=1))
    rows[np.isnan(rows)] = np.nan  # one pattern of bits
    return np.unique(rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))), return_inverse=True)[
        1
    ].reshape(-1)


def _learn_column(table: RawTable, name: str, train: Indices) -> Column:
    cells = table.columns[name]
    if not isinstance(cells, TextColumn):
        return Column(name)
    return Column(name, tuple(sort_names(cells.texts[code] for code in set(cells.codes[train].tolist()) - {-1})))


def _check_categories(table: RawTable, schema: TableSchema, named: Sequence[str]) -> None:
    for column in schema.columns:
        if column.categories is not None and len(column.categories) > MAX_CATEGORIES and column.name not in named:
            raise DataError(
                f"{table.source}: {column.name} has {len(column.categories)} different texts; is it a name or a date? "
                "ignore the column, or name it among the categories",
                options=("ignore", "categories"),
            )


def _check_sites_have_columns(
    source: Path,
    x: NDArray[np.float32],
    schema: TableSchema,
    clients: Sequence[str],
    rows: Sequence[Indices],
    train: Sequence[Indices],
) -> None:
    """A number that a client never measured cannot be standardised for it, and a mean of others' says nothing."""
    for name, mine, trained in zip(clients, rows, train, strict=True):
        for at, part in ((mine, "no value"), (trained, "no training value")):
            if (empty := np.flatnonzero(np.isnan(x[at]).all(axis=0))).size:
                column = schema.input_names[int(empty[0])]
                raise DataError(
                    f"{source}: client {name} has {part} of {column}; ignore the column, or leave the client out",
                    options=("ignore",),
                )
