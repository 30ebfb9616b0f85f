"""USPS as LIBSVM text, plain or bz2: ``label 1:x 2:x ... 256:x`` a line, labels 1..10, x in [-1, 1].

The HDF5 form of USPS (``usps.h5``) is not read: it would need a library of its own for one small set.
"""

from __future__ import annotations

import bz2
import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedtrain.data.readers.labelled_images import LabelledImages, validate_images
from fedtrain.data.readers.safe_read import compute_unpack_limit, read_bounded, read_bytes, wrap_read_errors

MAX_TEXT = 2**28  # bytes; USPS has 19 million
MAX_LINES = 2**18
MAX_LINE = 2**14  # bytes; a row of 256 pixels takes some 3000
SIDE = 16
PIXEL_INDICES = [str(i + 1).encode() for i in range(SIDE * SIDE)]


def read_libsvm(path: Path, classes: int | None = 10) -> LabelledImages:
    """Labels less one; pixels (x + 1) / 2 * 255 in single precision, cut off to bytes, 16 x 16."""
    with wrap_read_errors(path, "LIBSVM text file"):
        data = read_bytes(path, MAX_TEXT)
        if data[:3] == b"BZh":
            with bz2.BZ2File(io.BytesIO(data)) as stream:
                data = read_bounded(stream, compute_unpack_limit(len(data), MAX_TEXT))
        labels, rows = [], []
        for number, line in enumerate(io.BytesIO(data), 1):
            if number > MAX_LINES or len(line) > MAX_LINE:
                raise ValueError(f"line {number}: more than {MAX_LINES} lines, or than {MAX_LINE} bytes in one")
            if line.strip():
                label, row = _parse_row(line, number)
                labels.append(label)
                rows.append(row)
        images = np.array(rows, dtype=np.uint8).reshape(-1, SIDE, SIDE)
        return validate_images(path, images, labels, classes)


def _parse_row(line: bytes, number: int) -> tuple[int, NDArray[np.uint8]]:
    head, *entries = line.split()
    pairs = [entry.partition(b":") for entry in entries]
    if [index for index, _, _ in pairs] != PIXEL_INDICES:
        raise ValueError(f"line {number} does not give the pixels 1..{SIDE * SIDE} in order")
    x = np.array([float(value) for _, _, value in pairs], dtype=np.float32)
    if not (np.abs(x) <= 1).all():
        raise ValueError(f"line {number} holds a pixel outside [-1, 1]")
    return int(head) - 1, ((x + 1) / 2 * 255).astype(np.uint8)
