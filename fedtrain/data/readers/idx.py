"""MNIST's idx files: big-endian ``00 00 08 d``, then d lengths of 4 bytes, then the bytes; plain or gzip."""

from __future__ import annotations

import gzip
import io
import struct
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedtrain.data.errors import DataError
from fedtrain.data.readers.array_view import view_as_array
from fedtrain.data.readers.labelled_images import LabelledImages, Split, validate_images
from fedtrain.data.readers.safe_read import MAX_BYTES, compute_unpack_limit, read_bounded, read_bytes, wrap_read_errors

FILE_STEMS = {"train": "train", "test": "t10k"}


def read_idx(images: Path, labels: Path, classes: int | None = 10) -> LabelledImages:
    """An idx file of images and the one of their labels."""
    return validate_images(images, _read_array(images, 3), _read_array(labels, 1), classes)


def read_mnist(folder: Path, split: Split, classes: int | None = 10) -> LabelledImages:
    """One part of MNIST (or a set in its clothes) under the published names, packed or not."""
    return read_idx(
        _find_file(folder, f"{FILE_STEMS[split]}-images", "idx3"),
        _find_file(folder, f"{FILE_STEMS[split]}-labels", "idx1"),
        classes,
    )


def _find_file(folder: Path, stem: str, kind: str) -> Path:
    names = [f"{stem}{dot}{kind}-ubyte{gz}" for gz in ("", ".gz") for dot in "-."]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise DataError(f"{folder}: holds no {names[0]} or {names[0]}.gz; fetch the data set or mend the path")


def _read_array(path: Path, axes: int) -> NDArray[np.uint8]:
    with wrap_read_errors(path, "idx file"):
        data = read_bytes(path)
        if data[:2] == b"\x1f\x8b":
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
                head = _parse_header(stream.read(4 + 4 * axes), axes)
                limit = min(prod(head), compute_unpack_limit(len(data), MAX_BYTES))
                data = read_bounded(stream, limit)  # to the end, where gzip checks its sum
        else:
            head = _parse_header(data[: 4 + 4 * axes], axes)
            data = data[4 + 4 * axes :]
        return view_as_array(data, np.dtype(np.uint8), head)


def _parse_header(data: bytes, axes: int) -> tuple[int, ...]:
    if data[:4] != bytes([0, 0, 8, axes]):
        raise ValueError(
            f"it starts with {data[:4].hex(' ')}, not 00 00 08 {axes:02}, the mark of bytes with {axes} axes"
        )
    return struct.unpack(f">{axes}I", data[4:])
