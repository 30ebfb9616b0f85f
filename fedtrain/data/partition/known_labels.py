"""Labels of data sets whose class sizes are known, so that a skew can be shown before anything is downloaded."""

from __future__ import annotations

import numpy as np

from fedtrain.data.partition.indices import Indices

# fmt: off
CIFAR100_COARSE: Indices = np.array([
     4,  1, 14,  8,  0,  6,  7,  7, 18,  3,  3, 14,  9, 18,  7, 11,  3,  9,  7, 11,
     6, 11,  5, 10,  7,  6, 13, 15,  3, 15,  0, 11,  1, 10, 12, 14, 16,  9, 11,  5,
     5, 19,  8,  8, 15, 13, 14, 17, 18, 10, 16,  4, 17,  4,  2,  0, 17,  4, 18, 17,
    10,  3,  2, 12, 12, 16, 12,  1,  9, 19,  2, 10,  0,  1, 16, 12,  9, 13, 15, 13,
    16, 19,  2,  4,  6, 19,  5,  5,  8, 19, 18,  1,  2, 15,  6,  0, 17,  8, 14, 13,
])
# fmt: on
"""The superclass (of 20) of each of CIFAR-100's 100 classes."""
CIFAR100_COARSE.flags.writeable = False

CLASS_SIZES = {"cifar10": (10, 5000, 1000), "cifar100": (100, 500, 100)}
"""Classes, and training and test samples of each."""


def build_known_labels(dataset: str) -> tuple[Indices, Indices] | None:
    """Sorted training and test labels; None if the class sizes of this data set are not known here.

    How many samples of a class a client gets depends on class sizes alone, so it is right for the real data too;
    which samples depends on their order there (and so does the training/test mix of `pachinko`).
    """
    sizes = CLASS_SIZES.get(dataset.lower().replace("-", ""))
    if sizes is None:
        return None
    classes, train, test = sizes
    return np.repeat(np.arange(classes), train), np.repeat(np.arange(classes), test)
