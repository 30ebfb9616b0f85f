"""CIFAR-10 and CIFAR-100, python or binary version, from the archive (tar.gz) or the folder that it unpacks to."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedtrain.data.errors import DataError
from fedtrain.data.readers.archive_members import DEFAULT_LIMITS, iterate_members
from fedtrain.data.readers.labelled_images import LabelledImages, Split, concatenate_images, validate_images
from fedtrain.data.readers.safe_paths import parse_safe_path
from fedtrain.data.readers.safe_pickle import parse_pickle
from fedtrain.data.readers.safe_read import (
    MAX_BYTES,
    compute_unpack_limit,
    read_bounded,
    read_bytes,
    require_regular_file,
    wrap_read_errors,
)

VALUES_PER_IMAGE = 3 * 32 * 32
CIFAR10_BATCHES = {"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)}
CIFAR100_BATCHES = {"train": ("train",), "test": ("test",)}
USUAL_FOLDERS = ("cifar-10-batches-py", "cifar-10-batches-bin", "cifar-100-python", "cifar-100-binary")


def read_cifar10(path: Path, split: Split) -> LabelledImages:
    """CIFAR-10: pickled dicts with "data" and "labels", or records of a label and the pixels."""
    return _read_batches(path, CIFAR10_BATCHES[split], "labels", 10, (0, 1))


def read_cifar100(path: Path, split: Split, labels: Literal["fine", "coarse"] = "fine") -> LabelledImages:
    """CIFAR-100: pickled dicts with both kinds of labels, or records of the coarse one, the fine one, the pixels."""
    if labels == "fine":
        return _read_batches(path, CIFAR100_BATCHES[split], "fine_labels", 100, (1, 2))
    return _read_batches(path, CIFAR100_BATCHES[split], "coarse_labels", 20, (0, 2))


def _read_batches(
    path: Path, names: tuple[str, ...], key: str, classes: int, record: tuple[int, int]
) -> LabelledImages:
    """``record``: which of how many leading bytes of a binary record is the label."""
    found = _read_files(path, {name + suffix for name in names for suffix in ("", ".bin")})
    binary = not found.keys() >= set(names) and any(name.endswith(".bin") for name in found)
    batches: list[LabelledImages] = []
    for name in (f"{name}.bin" if binary else name for name in names):
        if name not in found:
            raise DataError(f"{path}: holds no {name}; fetch the data set or mend the path")
        source, data = f"{path} ({name})", found[name]
        with wrap_read_errors(source, "CIFAR batch"):
            pixels, labels = _parse_records(source, data, *record) if binary else _parse_pickle(source, data, key)
            batches.append(
                validate_images(source, pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), labels, classes)
            )
    return concatenate_images(path, batches)


def _read_files(path: Path, wanted: set[str]) -> dict[str, bytes]:
    """The wanted files by name, wherever in the archive they lie; of a folder also those in the usual one below."""
    with wrap_read_errors(path, "CIFAR archive or folder"):
        if path.is_dir():
            places = [place / name for place in (path, *(path / folder for folder in USUAL_FOLDERS)) for name in wanted]
            return {place.name: read_bytes(place) for place in reversed(places) if place.is_file()}
        found: dict[str, bytes] = {}
        left = compute_unpack_limit(require_regular_file(path).stat().st_size)
        with closing(iterate_members(path, replace(DEFAULT_LIMITS, total=MAX_BYTES))) as each:
            for name, stream in each:
                if stream is not None and (base := parse_safe_path(name).name) in wanted:
                    if base in found:
                        raise ValueError(f"it holds {base} twice")
                    found[base] = read_bounded(stream, left)
                    left -= len(found[base])
        return found


def _parse_records(source: str, data: bytes, label: int, lead: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    if not data or len(data) % (lead + VALUES_PER_IMAGE):
        raise DataError(f"{source}: {len(data)} bytes are no whole number of records; fetch it again")
    table = np.frombuffer(data, np.uint8).reshape(-1, lead + VALUES_PER_IMAGE)
    return table[:, lead:], table[:, label]


def _parse_pickle(source: str, data: bytes, key: str) -> tuple[NDArray[np.uint8], object]:
    batch = parse_pickle(data, source)
    if not isinstance(batch, dict):
        raise DataError(f"{source}: holds a {type(batch).__name__}, not a dict; fetch it again")
    pixels, labels = (batch.get(name.encode(), batch.get(name)) for name in ("data", key))
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (VALUES_PER_IMAGE,):
        raise DataError(f'{source}: "data" is not an array (n, {VALUES_PER_IMAGE}) of uint8; fetch it again')
    if labels is None:
        raise DataError(f'{source}: holds no "{key}"; is this the other CIFAR?')
    return pixels, labels
