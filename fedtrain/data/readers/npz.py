"""NumPy archives with x_train, y_train, x_test, y_test; members may be packed by deflate, bzip2 or LZMA."""

from __future__ import annotations

import io
import sys
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from fedtrain.data.readers.array_view import view_as_array
from fedtrain.data.readers.bounded_file import BoundedFile
from fedtrain.data.readers.labelled_images import LabelledImages, Split, validate_images
from fedtrain.data.readers.safe_read import (
    MAX_BYTES,
    compute_unpack_limit,
    read_bounded,
    require_regular_file,
    wrap_read_errors,
)

MAX_MEMBERS = 1000
HEADER_READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def read_npz(path: Path, split: Split, classes: int | None = None) -> LabelledImages:
    """One part of the archive; nothing in it is unpickled."""
    with wrap_read_errors(path, "npz archive"), _open_archive(path) as (archive, allowed):
        x, y = (_read_member(archive, f"{letter}_{split}", allowed) for letter in "xy")
        return validate_images(path, x, y, classes)


def read_arrays(path: Path, names: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
    """Those of the named arrays that are there, or all, of numbers or text; nothing is unpickled."""
    with wrap_read_errors(path, "npz archive"), _open_archive(path) as (archive, allowed):
        known = [name.removesuffix(".npy") for name in archive.namelist()]
        there = known if names is None else [name for name in names if name in known]
        return {name: _read_member(archive, name, allowed, "biufU") for name in there}


@contextmanager
def _open_archive(path: Path) -> Iterator[tuple[zipfile.ZipFile, int]]:
    """The archive, and how many bytes an array may unpack to."""
    with (
        require_regular_file(path).open("rb") as file,
        zipfile.ZipFile(cast(IO[bytes], BoundedFile(file, MAX_BYTES))) as archive,
    ):
        if len(archive.filelist) > MAX_MEMBERS:
            raise ValueError(f"{len(archive.filelist)} members, more than the {MAX_MEMBERS} allowed")
        yield archive, compute_unpack_limit(path.stat().st_size, MAX_BYTES)


def _read_member(archive: zipfile.ZipFile, name: str, allowed: int, kinds: str = "biuf") -> NDArray[Any]:
    """The array of that name; its size is known from its header before anything is made of it."""
    if f"{name}.npy" not in archive.namelist():
        raise ValueError(f"it holds no array {name}")
    with archive.open(f"{name}.npy") as stream:
        data = io.BytesIO(read_bounded(stream, allowed))
    version = npy.read_magic(data)
    if version not in HEADER_READERS:
        raise ValueError(f"{name} is in npy version {version}, not 1.0 or 2.0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a header as Python 2 wrote it, or one that cannot be read anyway
        shape, fortran, dtype = HEADER_READERS[version](data)
    if dtype.kind not in kinds:
        raise ValueError(f"{name} holds {dtype}, not numbers{' or text' if 'U' in kinds else ''}")
    array = view_as_array(data.read(), dtype, shape, fortran)
    if dtype.kind == "U" and (np.frombuffer(array.tobytes(), f"{dtype.byteorder}u4") > sys.maxunicode).any():
        raise ValueError(f"{name} holds text that is broken")
    return array
