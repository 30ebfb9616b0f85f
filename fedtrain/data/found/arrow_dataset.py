"""Folders that Hugging Face's ``datasets`` writes, by ``save_to_disk`` or into its cache: read with pyarrow alone.

Their Arrow files are mapped, not loaded: images stay on the disk until a client is made of them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedtrain.config.data import DataSettings
from fedtrain.data.errors import DataError
from fedtrain.data.found.image_dataset import ImageShape, LabelledSamples, build_image_dataset, scan_contents
from fedtrain.data.found.pools import ONE_CLIENT, FoundDataset, parse_part
from fedtrain.data.found.table_dataset import find_table_dataset
from fedtrain.data.progress import Progress, tell_progress
from fedtrain.data.readers.image_file import MAX_FILE, decode_image_as
from fedtrain.data.readers.labelled_images import Split
from fedtrain.data.readers.parquet_table import check_size, convert_table, import_pyarrow
from fedtrain.data.readers.safe_read import hash_file, require_regular_file, wrap_read_errors
from fedtrain.data.readers.table import TextColumn, check_column_names
from theory.errors import InputError

MAX_NOTE = 2**24
"""Bytes of a JSON file, and of what an Arrow file says of its columns."""
MAX_FILES = 10_000
CACHE_FILE = re.compile(r"(?:.*-)?([A-Za-z]+)(?:-\d{5}-of-\d{5})?\.arrow")
SPLIT_COLUMN = "split of datasets"
"""What the part of a row is called beside the columns."""


def is_arrow_folder(folder: Path) -> bool:
    """Whether ``datasets`` wrote it."""
    if (folder / "dataset_dict.json").is_file():
        return True
    return (folder / "dataset_info.json").is_file() and any(folder.glob("*.arrow"))


@dataclass(frozen=True, eq=False)
class ArrowParts:
    """All rows, and of which part each is if the folder says so."""

    table: Any
    parts: tuple[tuple[Split, int], ...]
    """The parts one after the other, with their rows; none if there is but one."""
    files: tuple[Path, ...]
    notes: tuple[str, ...]


def find_arrow_dataset(
    folder: Path, settings: DataSettings, title: str, progress: Progress, shape: ImageShape | None = None
) -> FoundDataset:
    """What is in such a folder: images if a column holds them, else rows of a table."""
    pa = import_pyarrow(folder)
    read = _read_parts(pa, folder)
    with wrap_read_errors(folder, "data set"):
        check_column_names(folder, [str(name).strip() for name in read.table.column_names])
    features = _read_features(folder, read.table)
    classes = {
        name: _read_class_names(folder, name, one) for name, one in features.items() if _kind(one) == "ClassLabel"
    }
    settings = replace(settings, target=_choose_target(folder, settings, read.table, list(classes)))
    table = _name_classes(pa, folder, read.table, classes)
    images = [name for name, one in features.items() if _kind(one) == "Image" and name not in settings.ignore]
    if len(images) > 1:
        raise DataError(f"{folder}: {len(images)} columns hold images ({', '.join(images)}); ignore all but one",
                        options=("ignore",))  # fmt: skip
    if images:
        found = _find_images(pa, folder, table, images[0], settings, title, progress, read, classes, shape)
    else:
        found = _find_table(pa, folder, table, settings, title, read)
    digest = hashlib.sha256("".join(hash_file(path) for path in read.files).encode()).hexdigest()
    return replace(found, notes=(*read.notes, *found.notes), sha256=digest)


def _find_table(
    pa: Any, folder: Path, table: Any, settings: DataSettings, title: str, read: ArrowParts
) -> FoundDataset:
    if read.parts and settings.split_column is None:
        words = [part for part, rows in read.parts for _ in range(rows)]
        table = table.append_column(SPLIT_COLUMN, pa.array(words, pa.string()))
        settings = replace(settings, split_column=SPLIT_COLUMN)
    table = table.drop_columns([name for name in settings.ignore if name in table.column_names])
    settings = replace(settings, ignore=())
    check_size(folder, len(table), table.num_columns)
    named = [settings.target, settings.client_column, settings.split_column, *settings.categories]
    raw = convert_table(folder, pa, table, {one for one in named if one is not None})
    return find_table_dataset(raw, settings, title)


def _find_images(
    pa: Any,
    folder: Path,
    table: Any,
    column: str,
    settings: DataSettings,
    title: str,
    progress: Progress,
    read: ArrowParts,
    classes: dict[str, list[str]],
    shape: ImageShape | None,
) -> FoundDataset:
    cells = table.column(column)

    def fetch(row: int) -> bytes:
        with wrap_read_errors(f"{folder}, row {row + 1}", "image"):
            value = cells[row].as_py()
        content = value.get("bytes") if isinstance(value, dict) else None
        if not isinstance(content, bytes) or len(content) > MAX_FILE:
            raise DataError(
                f"{folder}, row {row + 1}: {column} holds no bytes of an image; save the data set with its images"
            )
        return content

    def contents() -> Iterator[tuple[object, str, bytes]]:
        for row in range(len(table)):
            yield f"{folder}, row {row + 1}", str(row), fetch(row)

    def decode(places: Sequence[int], size: ImageShape) -> Tensor:
        found = torch.empty(len(places), *size, dtype=torch.uint8)
        for i, row in enumerate(places):
            found[i] = torch.from_numpy(decode_image_as(f"{folder}, row {row + 1}", fetch(row), size[1:], size[0]))
            tell_progress("reading images", i + 1, len(places))
        return found

    assert settings.target is not None
    labels = _read_words(pa, folder, table, settings.target)
    owners = [ONE_CLIENT] * len(table)
    if settings.client_column is not None:
        owners = _read_words(pa, folder, table, settings.client_column)
    if settings.split_column is not None:
        raise InputError(
            f"{folder}: images have the splits of the data set; leave split_column out", options=("split_column",)
        )
    is_test = np.array([part == "test" for part, rows in read.parts for _ in range(rows)]) if read.parts else None
    scanned = scan_contents(contents(), len(table), settings.image_size, progress)
    scanned = scanned if shape is None else replace(scanned, shape=shape, notes=())
    order = classes.get(settings.target)
    return build_image_dataset(
        folder, title, scanned, LabelledSamples(owners, labels, is_test), settings, decode, order
    )


def _read_words(pa: Any, folder: Path, table: Any, column: str) -> list[str]:
    """A column as texts, without a hole."""
    if column not in table.column_names:
        raise InputError(f"{folder}: no column {column!r}; its columns are {', '.join(table.column_names[:20])}")
    values = convert_table(folder, pa, table.select([column]), {column}).columns[column]
    assert isinstance(values, TextColumn)
    found = values.to_list()
    words = [word for word in found if word is not None]
    if len(words) < len(found):
        raise DataError(f"{folder}, row {found.index(None) + 1}: {column} is missing; remove this row")
    return words


def _choose_target(folder: Path, settings: DataSettings, table: Any, labelled: Sequence[str]) -> str:
    """The column that is asked for, or the only one of class labels."""
    if settings.target is not None:
        if settings.target not in table.column_names:
            raise InputError(
                f"{folder}: no column {settings.target!r}; its columns are {', '.join(table.column_names[:20])}",
                options=("target",),
            )
        return settings.target
    if len(labelled) != 1:
        raise InputError(
            f"{folder}: which column is to be predicted? its columns are {', '.join(table.column_names[:20])}",
            options=("target",),
        )
    return labelled[0]


def _read_parts(pa: Any, folder: Path) -> ArrowParts:
    """Every file, mapped, one part after the other."""
    named = _list_files(folder)
    known = [(part, files) for word, files in named if (part := parse_part(word)) is not None]
    if len(named) == 1:
        known = [("train", files) for _, files in named]
    left_out = [word for word, _ in named if parse_part(word) is None] if len(named) > 1 else []
    if not known:
        raise DataError(f"{folder}: its splits are {', '.join(left_out)}; name one of them train")
    tables, parts, paths = [], [], []
    for part, files in known:
        mine = [_map_file(pa, file) for file in files]
        parts.append((part, sum(map(len, mine))))
        tables += mine
        paths += files
    if any(table.schema != tables[0].schema for table in tables):
        raise DataError(f"{folder}: its splits have different columns; give all of them the same")
    notes = [f"split {word} is left out: only train and test are read" for word in left_out]
    whole = pa.concat_tables(tables)
    if not len(whole):
        raise DataError(f"{folder}: it has no rows")
    return ArrowParts(whole, tuple(parts) if len(parts) > 1 else (), tuple(paths), tuple(notes))


def _list_files(folder: Path) -> list[tuple[str, list[Path]]]:
    """The name of each split, and its files in their order."""
    if (folder / "dataset_dict.json").is_file():
        words = _read_json(folder / "dataset_dict.json").get("splits")
        if not isinstance(words, list) or not words or not all(_is_plain(word) for word in words):
            raise DataError(f"{folder / 'dataset_dict.json'}: it names no splits; save the data set again")
        return [(word, _list_saved_files(folder / word)) for word in words]
    if (folder / "state.json").is_file():
        return [("train", _list_saved_files(folder))]
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("*.arrow"))[:MAX_FILES]:
        if (match := CACHE_FILE.fullmatch(path.name)) is not None:
            found.setdefault(match[1], []).append(path)
    if not found:
        raise DataError(f"{folder}: no file of it is called as datasets calls them; save it with save_to_disk")
    return list(found.items())


def _list_saved_files(folder: Path) -> list[Path]:
    listed = _read_json(folder / "state.json").get("_data_files")
    named = [one.get("filename") for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    names = [str(name) for name in named if _is_plain(name)]
    if not names or len(names) > MAX_FILES or len(names) < len(named):
        raise DataError(f"{folder / 'state.json'}: it names no files; save the data set again")
    return [folder / name for name in names]


def _is_plain(name: object) -> bool:
    """Whether it can be the name of something in a folder, and of nothing outside of it."""
    return isinstance(name, str) and name.isprintable() and name not in ("", ".", "..") and not set(name) & set("/\\")


def _read_json(path: Path) -> dict[str, Any]:
    with wrap_read_errors(path, "JSON file"), require_regular_file(path).open("rb") as file:
        content = file.read(MAX_NOTE + 1)
        if len(content) > MAX_NOTE:
            raise ValueError("it is too large")
        return dict(json.loads(content))


def _map_file(pa: Any, path: Path) -> Any:
    """The table in an Arrow file, of which every byte is checked and none copied."""
    from pyarrow import ipc

    with wrap_read_errors(path, "Arrow file"):
        source = pa.memory_map(str(require_regular_file(path)), "r")
        table = ipc.open_stream(source).read_all()
        table.validate(full=True)
        return table


def _read_features(folder: Path, table: Any) -> dict[str, Any]:
    """What ``datasets`` says of each column."""
    about = (table.schema.metadata or {}).get(b"huggingface", b"{}")
    with wrap_read_errors(folder, "data set"):
        if len(about) > MAX_NOTE:
            raise ValueError("it says too much of its columns")
        said = json.loads(about)
        features = said.get("info", {}).get("features", {}) if isinstance(said, dict) else {}
        if not isinstance(features, dict):
            raise ValueError("it does not say what its columns are")
        return {name: one for name, one in features.items() if name in table.column_names}


def _kind(feature: Any) -> str:
    return str(feature.get("_type", "")) if isinstance(feature, dict) else ""


def _read_class_names(folder: Path, column: str, feature: dict[str, Any]) -> list[str]:
    names = feature.get("names")
    if not isinstance(names, list) or not names or len(set(map(str, names))) < len(names):
        raise DataError(f"{folder}: the classes of {column} are not named, each in its own way; save it again")
    return [str(name) for name in names]


def _name_classes(pa: Any, folder: Path, table: Any, classes: dict[str, list[str]]) -> Any:
    """The table with names in place of the numbers of classes; -1 is a missing one."""
    for column, names in classes.items():
        place = table.column_names.index(column)
        codes = table.column(column)
        if not pa.types.is_integer(codes.type):
            raise DataError(f"{folder}: {column} is of type {str(codes.type)[:60]}, and classes are whole numbers")
        numbers = [-1 if code is None else code for code in codes.to_pylist()]
        odd = next((row for row, code in enumerate(numbers) if not -1 <= code < len(names)), None)
        if odd is not None:
            raise DataError(f"{folder}, row {odd + 1}: {column} is {numbers[odd]}, and there are {len(names)} classes")
        words = [None if code < 0 else names[code] for code in numbers]
        table = table.set_column(place, column, pa.array(words, pa.string()))
    return table
