"""IID: no skew, every client draws from the same distribution."""

from __future__ import annotations

import numpy as np

from fedtrain.data.partition.checks import make_legacy_rng, validate_label_pair
from fedtrain.data.partition.indices import Labels, TrainTestIndices


def partition_iid(train_labels: Labels, test_labels: Labels, clients: int, seed: int) -> list[TrainTestIndices]:
    """Permute the training samples, then the test samples, and cut each into runs whose sizes differ by one at most."""
    pair = validate_label_pair(train_labels, test_labels, clients)
    rng = make_legacy_rng(seed)
    train, test = (np.array_split(rng.permutation(len(labels)).astype(np.int64), clients) for labels in pair)
    return [TrainTestIndices(*parts) for parts in zip(train, test, strict=True)]
