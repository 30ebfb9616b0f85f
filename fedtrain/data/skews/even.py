"""No skew: everyone draws from the same urn."""

from __future__ import annotations

import numpy as np

from fedtrain.data.skews.checks import checked_pair, generator
from fedtrain.data.skews.share import Labels, Share


def iid(train_labels: Labels, test_labels: Labels, clients: int, seed: int) -> list[Share]:
    """Permute the training samples, then the test samples, and cut each into runs whose sizes differ by one at most."""
    pair = checked_pair(train_labels, test_labels, clients)
    rng = generator(seed)
    train, test = (np.array_split(rng.permutation(len(labels)).astype(np.int64), clients) for labels in pair)
    return [Share(*parts) for parts in zip(train, test, strict=True)]
