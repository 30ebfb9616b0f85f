"""Split a domain into training and test where its source does not, and put a training list in order.

NumPy's legacy generator is used on purpose: its streams never change, so the split is the same everywhere and always.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedtrain.data.partition.indices import Indices

SPLIT_SEED = 0
DEFAULT_TEST_SHARE = 0.2
"""The share of test images where the number is not known."""


def interleave_classes(labels: Indices, seed: int = SPLIT_SEED) -> Indices:
    """A random order in which the first k have the classes in nearly the proportions of all, for every k.

    The j-th of a class's n shuffled images stands at (j + u) / n of the way, with u uniform in [0, 1).
    """
    rng = np.random.RandomState(seed)
    at = np.empty(len(labels))
    for label in np.unique(labels):
        own = rng.permutation(np.flatnonzero(labels == label))
        at[own] = (np.arange(len(own)) + rng.random_sample(len(own))) / len(own)
    return np.argsort(at, kind="stable")


def split_train_test(
    labels: Indices, duplicate_groups: Indices, wanted: int | None, seed: int = SPLIT_SEED
) -> tuple[Indices, Indices]:
    """(training list, test list) of the images: ``wanted`` to test if four times as many are there, else a fifth.

    ``twins`` gives equal numbers to images with the same pixels. Classes are tested in proportion to their size. Twins
    stay together: on the training side, and there in the middle, so that neither what is trained on (the first of the
    list) nor what validates (the last) holds one that the other holds too.
    """
    count = len(labels)
    size = wanted if wanted is not None and count >= 4 * wanted else max(1, round(DEFAULT_TEST_SHARE * count))
    alone = np.bincount(duplicate_groups)[duplicate_groups] == 1
    return split_by_size(labels, duplicate_groups, alone, size, seed)


def split_by_size(
    labels: Indices, duplicate_groups: Indices, alone: NDArray[np.bool_], size: int, seed: int
) -> tuple[Indices, Indices]:
    """The same for a size; only samples that are ``alone``, without a twin here or elsewhere, are tested on."""
    count = len(labels)
    rng = np.random.RandomState(seed)
    chosen = [
        rng.permutation(np.flatnonzero(alone & (labels == label)))[:quota]
        for label, quota in _compute_test_quotas(labels, alone, size)
    ]
    test = np.sort(np.concatenate(chosen))
    rest = np.setdiff1d(np.arange(count), test)
    single, multiple = rest[alone[rest]], rest[~alone[rest]]
    single = single[interleave_classes(labels[single], seed)]
    middle = len(single) // 2
    together = multiple[np.argsort(duplicate_groups[multiple], kind="stable")]
    return np.concatenate([single[:middle], together, single[middle:]]), test


def _compute_test_quotas(labels: Indices, is_unique: NDArray[np.bool_], size: int) -> list[tuple[int, int]]:
    """Test images of each class: its share rounded down, and one more for the largest remainders.

    At least one image of a class is left to train on, and only images without twins are there to choose from.
    """
    classes, counts = np.unique(labels, return_counts=True)
    most = np.array([min((is_unique & (labels == c)).sum(), n - 1) for c, n in zip(classes, counts, strict=True)])
    exact = counts * (size / len(labels))
    quotas = np.minimum(np.floor(exact).astype(np.int64), most)
    while quotas.sum() < size and (quotas < most).any():
        quotas[np.where(quotas < most, exact - quotas, -np.inf).argmax()] += 1
    return list(zip(classes.tolist(), quotas.tolist(), strict=True))
