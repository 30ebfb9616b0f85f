"""Input and output of a partition: pools of labels, and the indices of each client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedtrain.data.partition.indices import Indices

NO_INDICES: Indices = np.empty(0, dtype=np.int64)


class LabelledPool(Protocol):
    """A domain by its labels: a `SamplePool`, or class counts written out as labels."""

    @property
    def domain(self) -> str:
        """Its name in the catalogue."""

    @property
    def train(self) -> Indices:
        """Labels of the samples that may be trained on."""

    @property
    def test(self) -> Indices:
        """Labels of the test samples."""


@dataclass(frozen=True, eq=False)
class ClientIndices:
    """A client's samples as indices into the lists of one pool; ``val`` is of the training list and may be empty."""

    name: str
    pool_index: int
    train: Indices
    test: Indices
    val: Indices
