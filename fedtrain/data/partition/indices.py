"""Index arrays: one client's samples in a pool, and how many there are of each class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from theory.errors import InputError

Labels = NDArray[np.integer[Any]]
Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TrainTestIndices:
    """One client's part, as indices into the pool of training samples and into the pool of test samples."""

    train: Indices
    test: Indices


def count_classes(labels: Labels, indices: Indices, classes: int) -> Indices:
    """How many of the samples at ``indices`` are of class 0, 1, ..., classes - 1."""
    counts = np.bincount(labels[indices].astype(np.int64), minlength=classes)
    if len(counts) > classes:
        raise InputError(f"label {len(counts) - 1} is outside the {classes} classes 0..{classes - 1}; raise classes")
    return counts.astype(np.int64)
