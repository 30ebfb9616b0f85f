"""Images as they come to the bytes that a cache holds: three channels, squares of the data set's size."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedtrain.data.errors import DataError
from fedtrain.data.partition.indices import Indices
from fedtrain.data.progress import Progress
from fedtrain.data.readers.image_file import read_image
from fedtrain.data.readers.labelled_images import LabelledImages, validate_images
from fedtrain.data.storage.domain_file import StoredImages

MAX_TOTAL_BYTES = 2**34
"""Bytes of the images of a folder or list together."""
PROGRESS_STEP = 256
"""Images between two signs of life."""


def resize_to_stored(found: LabelledImages, size: int, what: str, progress: Progress) -> StoredImages:
    """Resized (bilinear, as the reference does) where they have another size; grey in three equal channels."""
    count, height, width, channels = found.images.shape
    if (height, width) == (size, size):
        squares = found.images
    else:
        squares = np.empty((count, size, size, channels), np.uint8)
        for i, image in enumerate(found.images):
            small = Image.fromarray(image.squeeze(2) if channels == 1 else image)
            squares[i] = np.asarray(small.resize((size, size), Image.Resampling.BILINEAR)).reshape(size, size, channels)
            if i % PROGRESS_STEP == 0:
                progress(f"resizing {what}", i, count)
    planes = squares.transpose(0, 3, 1, 2)
    return StoredImages(np.ascontiguousarray(np.broadcast_to(planes, (count, 3, size, size))), found.labels)


def decode_images(
    paths: Sequence[Path], labels: Sequence[int], size: int, what: str, progress: Progress
) -> LabelledImages:
    """Image files, decoded and resized one after another."""
    if len(paths) * size * size * 3 > MAX_TOTAL_BYTES:
        raise DataError(
            f"{what}: {len(paths)} images of {size} x {size} are more than {MAX_TOTAL_BYTES} bytes; import fewer"
        )
    images = np.empty((len(paths), size, size, 3), np.uint8)
    for i, path in enumerate(paths):
        images[i] = read_image(path, (size, size))
        progress(f"decoding {what}", i + 1, len(paths))
    return validate_images(what, images, list(labels))


def group_duplicates(images: NDArray[np.uint8]) -> Indices:
    """A number for each image, the same for those with the same pixels."""
    numbers: dict[bytes, int] = {}
    sums = (hashlib.sha256(np.ascontiguousarray(image).data).digest() for image in images)
    return np.array([numbers.setdefault(key, len(numbers)) for key in sums], dtype=np.int64)
