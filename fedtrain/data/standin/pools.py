"""The stand-ins as pools: labels at hand, images drawn when they are asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtrain.data.client_data import SamplePool
from fedtrain.data.datasets import get_dataset_info
from fedtrain.data.partition.indices import Indices
from fedtrain.data.readers.labelled_images import Split
from fedtrain.data.standin import cifar, digits, domainnet, office
from fedtrain.data.standin.drawing import Array, Rng

BLOCK_SIZE = 100
"""Images drawn at once. Each block has its own generator, so this is part of what the data are."""


@dataclass(frozen=True)
class StandinInfo:
    """What there is to draw: the side of an image, a style for each domain, training and test images of a domain."""

    image_size: int
    styles: Mapping[str, Callable[[Rng, Indices, int], Array]]
    train_counts: Mapping[str, int]
    test_count: int


STANDINS = {
    "digits": StandinInfo(28, digits.STYLES, dict.fromkeys(digits.STYLES, 2300), 400),
    "office": StandinInfo(96, office.STYLES, office.TRAIN_COUNTS, 100),
    "domainnet": StandinInfo(96, domainnet.STYLES, dict.fromkeys(domainnet.STYLES, 600), 100),
    "cifar10": StandinInfo(32, cifar.STYLES, {"cifar10": 20_000}, 5_000),
    "cifar100": StandinInfo(32, cifar.STYLES, {"cifar100": 20_000}, 5_000),
}


def get_standin_size(name: str) -> int:
    """Side of an image in pixels; less than that of the real ones where a round would take long."""
    return STANDINS[get_dataset_info(name).name].image_size


def build_standin_pools(name: str) -> list[SamplePool]:
    """A stand-in for each domain of a data set, in the catalogue's order."""
    return [
        SamplePool(
            domain,
            f"{title} (stand-in)",
            _draw_labels(name, domain, "train"),
            _draw_labels(name, domain, "test"),
            partial(_draw_images, name, domain),
            (3, get_standin_size(name), get_standin_size(name)),
        )
        for domain, title in get_dataset_info(name).domains.items()
    ]


def _draw_images(name: str, domain: str, split: Split, indices: Indices) -> Tensor:
    size = get_standin_size(name)
    images = np.empty((len(indices), 3, size, size), dtype=np.uint8)
    amount = len(_draw_labels(name, domain, split))
    blocks, places = np.divmod(np.arange(amount)[indices], BLOCK_SIZE)  # counts from the end and refuses as arrays do
    for block in np.unique(blocks):
        here = blocks == block
        images[here] = _draw_block(name, domain, split, int(block))[places[here]]
    return torch.from_numpy(images)


@cache
def _draw_labels(name: str, domain: str, split: Split) -> Indices:
    """Every class once in random order, then every class once again, and so on."""
    standin = STANDINS[name]
    amount = standin.train_counts[domain] if split == "train" else standin.test_count
    classes = len(get_dataset_info(name).classes)
    rounds = np.tile(np.arange(classes), (-(-amount // classes), 1))
    labels: Indices = _make_rng(name, domain, split, "labels").permuted(rounds, axis=1).reshape(-1)[:amount]
    labels.flags.writeable = False
    return labels


@cache
def _draw_block(name: str, domain: str, split: Split, number: int) -> NDArray[np.uint8]:
    labels = _draw_labels(name, domain, split)[number * BLOCK_SIZE :][:BLOCK_SIZE]
    size = get_standin_size(name)
    pictures = STANDINS[name].styles[domain](_make_rng(name, domain, split, number), labels, size)
    coloured = np.broadcast_to(pictures, (len(labels), 3, size, size))  # grey ones have one channel
    return np.rint(np.clip(coloured, 0, 1) * 255).astype(np.uint8)


def _make_rng(*purpose: object) -> Rng:
    """Chance as a function of its purpose."""
    digest = hashlib.sha256("/".join(map(str, purpose)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "little"))
