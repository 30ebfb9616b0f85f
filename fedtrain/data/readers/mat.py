"""SVHN's MATLAB files of version 5 (up to ``-v7``): X (H, W, C, n) and y (n, 1), where label 10 means the digit 0.

Read here and not by scipy.io.loadmat, which crashes the interpreter when a damaged file names an unknown type of data
(seen with scipy 1.17), and unpacks any bomb. The format, for arrays of numbers: a header of 128 bytes, then elements
of type, size and body. A matrix is an element made of elements: flags, shape, name, values in Fortran order.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtrain.data.errors import DataError
from fedtrain.data.readers.array_view import view_as_array
from fedtrain.data.readers.labelled_images import LabelledImages, validate_images
from fedtrain.data.readers.safe_read import MAX_BYTES, compute_unpack_limit, read_bytes, wrap_read_errors

HEADER_BYTES = 128
MAX_ELEMENTS = 100
MATRIX, COMPRESSED = 14, 15
VALUE_DTYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
NUMERIC_CLASSES = range(6, 16)  # classes of matrices: double to uint64
COMPLEX_FLAG = 0x0800


def read_mat(path: Path, classes: int | None = 10) -> LabelledImages:
    """Images turned to (n, H, W, C)."""
    with wrap_read_errors(path, "MATLAB file of version 5"):
        found = _read_variables(read_bytes(path), path)
        labels = found["y"].reshape(-1)
        return validate_images(path, found["X"].transpose(3, 0, 1, 2), np.where(labels == 10, 0, labels), classes)


def _read_variables(data: bytes, path: Path) -> dict[str, NDArray[Any]]:
    if b"MATLAB 7.3" in data[:HEADER_BYTES]:
        raise DataError(f"{path}: MATLAB 7.3 files are not read; save it with -v7")
    order = {b"IM": "<", b"MI": ">"}.get(data[126:HEADER_BYTES])
    if order is None or struct.unpack(f"{order}H", data[124:126]) != (0x0100,):
        raise ValueError("its header does not say version 5")
    found: dict[str, NDArray[Any]] = {}
    left = compute_unpack_limit(len(data), MAX_BYTES)
    for kind, body in _iterate_elements(memoryview(data)[HEADER_BYTES:], order, pad=1):
        if kind == COMPRESSED:
            whole = _inflate(body, left)
            left -= len(whole)
            ((kind, body),) = _iterate_elements(memoryview(whole), order)
        if kind != MATRIX:
            raise ValueError(f"it holds an element of type {kind}, not a matrix")
        found.update(_parse_matrix(body, order))
    for name, axes in {"X": 4, "y": 2}.items():
        if name not in found or found[name].ndim != axes:
            raise ValueError(f"it holds no array {name} of real numbers with {axes} axes")
    return found


def _iterate_elements(data: memoryview, order: str, pad: int = 8) -> Iterator[tuple[int, memoryview]]:
    """Type and body of each; inside a matrix bodies are padded to 8 bytes, and short ones share their tag's."""
    position = 0
    for _ in range(MAX_ELEMENTS):
        if position >= len(data):
            return
        (kind,) = struct.unpack_from(f"{order}I", data, position)
        short = kind >> 16
        kind, size = (kind & 0xFFFF, short) if short else struct.unpack_from(f"{order}II", data, position)
        start = position + (4 if short else 8)
        body = data[start : start + size]
        if len(body) != size or short > 4:
            raise ValueError("it is cut short")
        yield kind, body
        position = position + 8 if short else start + -(-size // pad) * pad
    raise ValueError(f"more than the {MAX_ELEMENTS} elements allowed")


def _inflate(data: memoryview, limit: int) -> bytes:
    engine = zlib.decompressobj()
    body = engine.decompress(data, limit + 1)
    if len(body) > limit:
        raise ValueError(f"it unpacks to more than the {limit} bytes allowed")
    if not engine.eof:
        raise ValueError("it is cut short")
    return body


def _parse_matrix(body: memoryview, order: str) -> dict[str, NDArray[Any]]:
    """Name and values of a matrix of real numbers; of any other nothing."""
    parts = _iterate_elements(body, order)
    flags = struct.unpack(f"{order}II", next(parts)[1])[0]
    if flags & 0xFF not in NUMERIC_CLASSES or flags & COMPLEX_FLAG:
        return {}
    sizes, name = next(parts)[1], bytes(next(parts)[1]).decode("latin-1")
    shape = struct.unpack(f"{order}{len(sizes) // 4}i", sizes)
    kind, values = next(parts)
    if kind not in VALUE_DTYPES:
        raise ValueError(f"{name[:80]} holds values of an unknown type {kind}")
    return {name: view_as_array(values, np.dtype(order + VALUE_DTYPES[kind]), shape, fortran=True)}
