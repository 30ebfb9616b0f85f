"""What every reader returns, and the one place where it is checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedtrain.data.errors import DataError
from fedtrain.data.readers.safe_read import RETRY_HINT

Split = Literal["train", "test"]
MAX_CLASSES = 2**31


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Images (n, H, W, C) of bytes, grey ones with C = 1, and a label of each."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)


def validate_images(source: object, images: object, labels: object, classes: int | None = None) -> LabelledImages:
    """`LabelledImages` of what ``source`` held, in memory of their own; ``classes`` bounds the labels."""
    pixels = _validate_pixels(source, images)
    known = _parse_labels(source, labels)
    if len(pixels) != len(known):
        raise DataError(f"{source}: {len(pixels)} images but {len(known)} labels; {RETRY_HINT}")
    if not len(known):
        raise DataError(f"{source}: holds no images; {RETRY_HINT}")
    bad = (known < 0) | (known >= (classes or MAX_CLASSES))
    if bad.any():
        first = int(bad.argmax())
        wanted = f"within 0..{classes - 1}" if classes else "a small whole number"
        raise DataError(f"{source}: label {known[first]} of image {first} is not {wanted}; {RETRY_HINT}")
    return LabelledImages(pixels, known.astype(np.int64))


def concatenate_images(source: object, parts: Sequence[LabelledImages]) -> LabelledImages:
    """Several parts as one, in their order; ``source`` is named if their images differ in shape."""
    shapes = {part.images.shape[1:] for part in parts}
    if len(shapes) != 1:
        raise DataError(f"{source}: parts with images of different shapes {sorted(shapes)}; {RETRY_HINT}")
    return LabelledImages(np.concatenate([p.images for p in parts]), np.concatenate([p.labels for p in parts]))


def _validate_pixels(source: object, images: object) -> NDArray[np.uint8]:
    if not isinstance(images, np.ndarray):
        raise DataError(f"{source}: images must be an array, not {type(images).__name__}; {RETRY_HINT}")
    if images.dtype != np.uint8:
        raise DataError(f"{source}: images must be uint8, not {images.dtype}; {_suggest_conversion(images)}")
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim != 4 or images.shape[3] not in (1, 3) or 0 in images.shape[1:]:
        first = images.ndim == 4 and images.shape[1] in (1, 3)
        way = "move the channels to the last axis" if first else RETRY_HINT
        raise DataError(f"{source}: images must be (n, H, W) or (n, H, W, 1 or 3), not {images.shape}; {way}")
    return np.require(images, np.uint8, ["C", "W"])  # a view of read-only bytes becomes a copy


def _suggest_conversion(images: NDArray[Any]) -> str:
    if images.dtype.kind == "f" and images.size:
        low, high = float(images.min()), float(images.max())
        if low >= 0 and high <= 1:
            return "its values lie in [0, 1]: multiply by 255, round and store as uint8"
        if low >= 0 and high <= 255:
            return "its values lie in [0, 255]: round and store as uint8"
    return "store whole numbers 0..255 as uint8"


def _parse_labels(source: object, labels: object) -> NDArray[Any]:
    """Whole numbers (n,), not yet within bounds; MATLAB keeps them as doubles in a column."""
    if isinstance(labels, list | tuple):
        if not all(isinstance(label, int | np.integer) and abs(int(label)) < 2**62 for label in labels):
            raise DataError(f"{source}: labels must be whole numbers; {RETRY_HINT}")
        labels = np.array(labels, dtype=np.int64)
    if not isinstance(labels, np.ndarray) or labels.dtype.kind not in "iuf":
        what = labels.dtype if isinstance(labels, np.ndarray) else type(labels).__name__
        raise DataError(f"{source}: labels must be an array of whole numbers, not {what}; {RETRY_HINT}")
    if labels.ndim == 2 and 1 in labels.shape:
        labels = labels.reshape(-1)
    if labels.ndim != 1:
        raise DataError(f"{source}: labels must be (n,), not {labels.shape}; {RETRY_HINT}")
    if labels.dtype.kind == "f" and not (np.isfinite(labels) & (np.floor(labels) == labels)).all():
        raise DataError(f"{source}: labels must be whole numbers; {RETRY_HINT}")
    return labels
