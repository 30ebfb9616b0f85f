"""FedBN's files: the parts of its five digit sets, and the lists of images of Office-Caltech10 and DomainNet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedtrain.data.errors import DataError
from fedtrain.data.readers.guard import AGAIN, reading
from fedtrain.data.readers.images import Images, Part, checked, joined
from fedtrain.data.readers.names import inside
from fedtrain.data.readers.safe_pickle import load

DIGITS = ("MNIST", "SVHN", "USPS", "SynthDigits", "MNIST_M")
PARTS = 10


@dataclass(frozen=True)
class Index:
    """Paths of images, relative to the root of all data, and the name of the class of each."""

    paths: tuple[str, ...]
    labels: tuple[str, ...]


def read_digits(folder: Path, part: Part, parts: int = PARTS) -> Images:
    """One digit set: ``test.pkl``, or the first ``parts`` of ``partitions/train_part{0..9}.pkl``."""
    if part == "test":
        return _pair(folder / "test.pkl")
    if not 1 <= parts <= PARTS:
        raise DataError(f"{folder}: {parts} parts asked for; it has {PARTS}, ask for 1 to {PARTS}")
    return joined(folder, [_pair(folder / "partitions" / f"train_part{i}.pkl") for i in range(parts)])


def read_index(path: Path) -> Index:
    """A list of images such as ``amazon_train.pkl``; its order matters, for FedBN cuts it from both ends."""
    with reading(path, "list of images"):
        paths, labels = (_text(column) for column in _two(path))
        if len(paths) != len(labels):
            raise ValueError(f"{len(paths)} paths but {len(labels)} labels")
        return Index(tuple(str(inside(name)) for name in paths), labels)


def _two(path: Path) -> tuple[object, object]:
    content = load(path)
    if isinstance(content, np.ndarray):
        content = list(content[:3]) if content.ndim else None
    if not isinstance(content, tuple | list) or len(content) != 2:
        raise DataError(f"{path}: holds a {type(content).__name__}, not a pair; {AGAIN}")
    return content[0], content[1]


def _pair(path: Path) -> Images:
    with reading(path, "pair of images and labels"):
        return checked(path, *_two(path), classes=10)


def _text(column: object) -> tuple[str, ...]:
    if isinstance(column, np.ndarray) and column.dtype.kind in "USO":
        column = column.tolist()
    items = column if isinstance(column, list | tuple) else ()
    texts = [item.decode("utf-8") if isinstance(item, bytes) else item for item in items]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise ValueError("paths and labels must be lists of text")
    return tuple(str(text) for text in texts)
