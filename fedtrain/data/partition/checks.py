"""Checks of what partitions are given, and the random generator that they draw from."""

from __future__ import annotations

import numpy as np

from fedtrain.data.partition.indices import Indices, Labels
from theory.errors import InputError

SMALLEST_ALPHA, LARGEST_ALPHA = 0.01, 1e6
"""Outside, a Dirichlet draw underflows, or is equal shares to all printed digits."""


def validate_labels(name: str, labels: Labels) -> Indices:
    """The labels as int64, if they are class numbers."""
    array = np.asarray(labels)
    if array.ndim != 1 or array.size == 0:
        raise InputError(f"{name} labels have shape {array.shape}; give one class number a sample, at least one")
    if array.dtype.kind not in "iu":
        raise InputError(f"{name} labels are {array.dtype}; they must be whole numbers")
    if array.min() < 0:
        raise InputError(f"{name} label {array.min()} is negative; number the classes 0, 1, ...")
    return array.astype(np.int64)


def validate_label_pair(train: Labels, test: Labels, clients: int) -> tuple[Indices, Indices]:
    """Both lists of labels, if there is a sample of each for every client."""
    if clients < 1:
        raise InputError(f"clients is {clients}; at least one client is needed")
    pair = validate_labels("training", train), validate_labels("test", test)
    for name, labels in zip(("training", "test"), pair, strict=True):
        if len(labels) < clients:
            raise InputError(f"{len(labels)} {name} samples are too few for {clients} clients; take fewer clients")
    return pair


def find_trained_classes(train: Indices, test: Indices) -> Indices:
    """The classes of the training samples, sorted; a test sample of another class would be lost, so it is refused."""
    classes = np.unique(train)
    if len(unseen := np.setdiff1d(test, classes)):
        raise InputError(f"test label {unseen[0]} is the label of no training sample; drop its test samples")
    return classes


def find_class_positions(labels: Indices, classes: Indices) -> list[Indices]:
    """Class by class, where its samples are."""
    return [np.flatnonzero(labels == c) for c in classes]


def check_alpha(name: str, alpha: float) -> None:
    """Refuse a concentration from which no shares can be drawn."""
    if not SMALLEST_ALPHA <= alpha <= LARGEST_ALPHA:
        raise InputError(f"{name} is {alpha}; choose it from {SMALLEST_ALPHA} (skewed) to {LARGEST_ALPHA:.0e} (even)")


def check_tries(tries: int) -> None:
    """A limit that allows no draw at all is a mistake."""
    if tries < 1:
        raise InputError(f"tries is {tries}; allow at least one draw")


def check_seed(seed: int) -> int:
    """The seed, if NumPy's legacy generator takes it."""
    if not 0 <= seed < 2**32:
        raise InputError(f"seed is {seed}; choose it from 0 to {2**32 - 1}")
    return seed


def make_legacy_rng(seed: int) -> np.random.RandomState:
    """What ``np.random.seed(seed)`` makes of the global generator, private."""
    return np.random.RandomState(check_seed(seed))
