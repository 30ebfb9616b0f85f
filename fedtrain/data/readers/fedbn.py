"""FedBN's files: the parts of its five digit sets, and the lists of images of Office-Caltech10 and DomainNet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedtrain.data.errors import DataError
from fedtrain.data.readers.labelled_images import LabelledImages, Split, concatenate_images, validate_images
from fedtrain.data.readers.safe_paths import parse_safe_path
from fedtrain.data.readers.safe_pickle import load_pickle
from fedtrain.data.readers.safe_read import RETRY_HINT, wrap_read_errors

DIGIT_FOLDERS = ("MNIST", "SVHN", "USPS", "SynthDigits", "MNIST_M")
TRAIN_PARTS = 10


@dataclass(frozen=True)
class ImageList:
    """Paths of images, relative to the root of all data, and the name of the class of each."""

    paths: tuple[str, ...]
    labels: tuple[str, ...]


def read_fedbn_digits(folder: Path, split: Split, parts: int = TRAIN_PARTS) -> LabelledImages:
    """One digit set: ``test.pkl``, or the first ``parts`` of ``partitions/train_part{0..9}.pkl``."""
    if split == "test":
        return _read_images_and_labels(folder / "test.pkl")
    if not 1 <= parts <= TRAIN_PARTS:
        raise DataError(f"{folder}: {parts} parts asked for; it has {TRAIN_PARTS}, ask for 1 to {TRAIN_PARTS}")
    return concatenate_images(
        folder, [_read_images_and_labels(folder / "partitions" / f"train_part{i}.pkl") for i in range(parts)]
    )


def read_image_list(path: Path) -> ImageList:
    """A list of images such as ``amazon_train.pkl``; its order matters, for FedBN cuts it from both ends."""
    with wrap_read_errors(path, "list of images"):
        paths, labels = (_decode_column(column) for column in _load_pair(path))
        if len(paths) != len(labels):
            raise ValueError(f"{len(paths)} paths but {len(labels)} labels")
        return ImageList(tuple(str(parse_safe_path(name)) for name in paths), labels)


def _load_pair(path: Path) -> tuple[object, object]:
    content = load_pickle(path)
    if isinstance(content, np.ndarray):
        content = list(content[:3]) if content.ndim else None
    if not isinstance(content, tuple | list) or len(content) != 2:
        raise DataError(f"{path}: holds a {type(content).__name__}, not a pair; {RETRY_HINT}")
    return content[0], content[1]


def _read_images_and_labels(path: Path) -> LabelledImages:
    with wrap_read_errors(path, "pair of images and labels"):
        return validate_images(path, *_load_pair(path), classes=10)


def _decode_column(column: object) -> tuple[str, ...]:
    if isinstance(column, np.ndarray) and column.dtype.kind in "USO":
        column = column.tolist()
    items = column if isinstance(column, list | tuple) else ()
    texts = [item.decode("utf-8") if isinstance(item, bytes) else item for item in items]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise ValueError("paths and labels must be lists of text")
    return tuple(str(text) for text in texts)
