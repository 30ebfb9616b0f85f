"""What every finder gives: a description, pools of samples, and what must be said of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtrain.data.client_data import LoadInputs, SamplePool
from fedtrain.data.datasets import DatasetInfo
from fedtrain.data.found.split import ClientSplit
from fedtrain.data.partition.indices import Indices
from fedtrain.data.readers.labelled_images import Split

ONE_CLIENT = "all"
"""The only pool of data in which nobody is told apart."""
LoadPlaces = Callable[[Indices], Tensor]
"""Inputs of one client's samples at these places."""
PARTS: dict[str, Split] = {"train": "train", "training": "train", "test": "test", "testing": "test"}


@dataclass(frozen=True, eq=False)
class FoundDataset:
    """A data set of the user's own."""

    info: DatasetInfo
    pools: list[SamplePool]
    split: str
    """Who made the split into training and test."""
    notes: tuple[str, ...] = ()
    sha256: str = ""
    """Of all that was read."""


def parse_part(word: str) -> Split | None:
    """The part that a word of a split column or a folder means."""
    return PARTS.get(word.strip().lower())


def build_array_pools(
    info: DatasetInfo, x: NDArray[np.generic], labels: Indices, rows: Sequence[Indices], splits: Sequence[ClientSplit]
) -> list[SamplePool]:
    """Pools of inputs that are in memory; ``rows`` are those of each client, in the order of ``info.domains``."""
    return [
        build_pool(info, name, labels[at], split, _take(x, at))
        for name, at, split in zip(info.domains, rows, splits, strict=True)
    ]


def _take(x: NDArray[np.generic], rows: Indices) -> LoadPlaces:
    return lambda places: torch.from_numpy(x[rows[places]])


def build_pool(info: DatasetInfo, name: str, labels: Indices, split: ClientSplit, load: LoadPlaces) -> SamplePool:
    """One client's pool; ``load`` fetches its samples by their places."""

    def take(part: Split, indices: Indices) -> Tensor:
        return load((split.train if part == "train" else split.test)[indices])

    loader: LoadInputs = take
    dtype = torch.uint8 if info.input_type == "uint8" else torch.float32
    return SamplePool(
        name, info.domains[name], labels[split.train], labels[split.test], loader, info.input_shape, dtype
    )
