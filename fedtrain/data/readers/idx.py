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
from fedtrain.data.readers.buffers import view
from fedtrain.data.readers.guard import MAX_BYTES, bounded, read_bytes, reading, room
from fedtrain.data.readers.images import Images, Part, checked

STEM = {"train": "train", "test": "t10k"}


def read_idx(images: Path, labels: Path, classes: int | None = 10) -> Images:
    """An idx file of images and the one of their labels."""
    return checked(images, _array(images, 3), _array(labels, 1), classes)


def read_mnist(folder: Path, part: Part, classes: int | None = 10) -> Images:
    """One part of MNIST (or a set in its clothes) under the published names, packed or not."""
    return read_idx(
        _find(folder, f"{STEM[part]}-images", "idx3"), _find(folder, f"{STEM[part]}-labels", "idx1"), classes
    )


def _find(folder: Path, stem: str, kind: str) -> Path:
    names = [f"{stem}{dot}{kind}-ubyte{gz}" for gz in ("", ".gz") for dot in "-."]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise DataError(f"{folder}: holds no {names[0]} or {names[0]}.gz; fetch the data set or mend the path")


def _array(path: Path, axes: int) -> NDArray[np.uint8]:
    with reading(path, "idx file"):
        data = read_bytes(path)
        if data[:2] == b"\x1f\x8b":
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
                head = _head(stream.read(4 + 4 * axes), axes)
                limit = min(prod(head), room(len(data), MAX_BYTES))
                data = bounded(stream, limit)  # to the end, where gzip checks its sum
        else:
            head = _head(data[: 4 + 4 * axes], axes)
            data = data[4 + 4 * axes :]
        return view(data, np.dtype(np.uint8), head)


def _head(data: bytes, axes: int) -> tuple[int, ...]:
    if data[:4] != bytes([0, 0, 8, axes]):
        raise ValueError(
            f"it starts with {data[:4].hex(' ')}, not 00 00 08 {axes:02}, the mark of bytes with {axes} axes"
        )
    return struct.unpack(f">{axes}I", data[4:])
