"""SVHN's MATLAB files of version 5 (up to ``-v7``): X (H, W, C, n) and y (n, 1), where label 10 means the digit 0."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.io import loadmat, whosmat

from fedtrain.data.errors import DataError
from fedtrain.data.readers.guard import MAX_BYTES, read_bytes, reading
from fedtrain.data.readers.images import Images, checked

HEADER = 128  # bytes before the first element
MATRIX, COMPRESSED = 14, 15  # types of element
MAX_ELEMENTS = 100
AXES = {"X": 4, "y": 2}
NUMERIC = {"double", "single", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))}


def read_mat(path: Path, classes: int | None = 10) -> Images:
    """Images turned to (n, H, W, C)."""
    with reading(path, "MATLAB file of version 5"):
        flat = _unpacked(read_bytes(path), path)
        found = _variables(flat)
        labels = found["y"].reshape(-1)
        return checked(path, found["X"].transpose(3, 0, 1, 2), np.where(labels == 10, 0, labels), classes)


def _unpacked(data: bytes, path: Path) -> io.BytesIO:
    """The same file, its compressed elements unpacked within bounds: loadmat itself would unpack any bomb."""
    if b"MATLAB 7.3" in data[:HEADER]:
        raise DataError(f"{path}: MATLAB 7.3 files are not read; save it with -v7")
    order = {b"IM": "<", b"MI": ">"}[data[126:HEADER]]
    if struct.unpack(f"{order}H", data[124:126]) != (0x0100,):
        raise ValueError("its header does not say version 5")
    flat, position, count = io.BytesIO(), HEADER, 0
    flat.write(data[:HEADER])
    while position < len(data):
        kind, size = struct.unpack_from(f"{order}II", data, position)
        body = data[position + 8 : position + 8 + size]
        position, count = position + 8 + size, count + 1
        if len(body) != size or count > MAX_ELEMENTS:
            raise ValueError(f"it is cut short, or holds more than the {MAX_ELEMENTS} elements allowed")
        if kind == COMPRESSED:
            body = _inflated(body, MAX_BYTES - flat.tell())
            kind, size = struct.unpack_from(f"{order}II", body)
            if size != len(body) - 8:
                raise ValueError("a compressed element is not as long as it claims")
        else:
            flat.write(struct.pack(f"{order}II", kind, size))
        if kind != MATRIX:
            raise ValueError(f"it holds an element of type {kind}, not a matrix")
        flat.write(body)
    return flat


def _inflated(data: bytes, limit: int) -> bytes:
    engine = zlib.decompressobj()
    body = engine.decompress(data, limit + 1)
    if len(body) > limit:
        raise ValueError(f"it unpacks to more than the {MAX_BYTES} bytes allowed")
    if not engine.eof:
        raise ValueError("a compressed element is cut short")
    return body


def _variables(flat: io.BytesIO) -> dict[str, NDArray[Any]]:
    """X and y, read only once their headers are known to speak of numbers that the file can hold."""
    size, file = flat.tell(), cast(Any, flat)  # scipy's types know of paths only
    flat.seek(0)
    heads = {name: (shape, kind) for name, shape, kind in whosmat(file)}
    for name, axes in AXES.items():
        shape, kind = heads.get(name, ((), "missing"))
        if len(shape) != axes or kind not in NUMERIC:
            raise ValueError(f"variable {name} is {kind} with {len(shape)} axes, not numbers with {axes}")
        if any(n < 0 for n in shape) or np.prod(shape, dtype=object) > size:
            raise ValueError(f"variable {name} claims shape {shape}, more than the file can hold")
    flat.seek(0)
    found: dict[str, NDArray[Any]] = loadmat(file, variable_names=list(AXES))
    return {name: found[name] for name in AXES}
