"""What is timed: three settings of the paper as their presets have them, on synthetic images of the right shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fedtrain.config.presets import resolve_preset
from fedtrain.data.client_data import ClientData, Federation, Preprocessing, Samples
from fedtrain.data.datasets import get_dataset_info
from fedtrain.federated.messages import Split
from fedtrain.rng import make_generator
from fedtrain.runs.experiment import Experiment

PIXELS_AT_ONCE = 2**20
"""Pixels that are drawn at once: the process's peak memory must be that of the rounds."""


@dataclass(frozen=True)
class Workload:
    """Sizes of the clients' data; all else is in the preset."""

    title: str
    preset: str
    side: int
    """Images are side x side x 3."""
    train: tuple[int, ...]
    """Samples of each client, as in the two that follow."""
    test: tuple[int, ...]
    val: int = 0
    evaluate_train: bool = True
    """Score the training data after each round too, as published."""

    @property
    def splits(self) -> list[Split]:
        """What is evaluated after each round."""
        return [*(["train"] if self.evaluate_train else []), *(["val"] if self.val else []), "test"]  # type: ignore[list-item]

    def build_experiment(self, method: str, given: Mapping[str, Any] | None = None, seed: int = 0) -> Experiment:
        """The preset with a method, on these clients."""
        config = resolve_preset(self.preset, {**(given or {}), "method": {"name": method}})
        kind = get_dataset_info(config.data.dataset)
        clients = []
        for i, (train, test) in enumerate(zip(self.train, self.test, strict=True)):
            rng = make_generator(seed, "images", i)
            trained, tested = (draw_samples(n, self.side, len(kind.classes), rng) for n in (train, test))
            val = draw_samples(self.val, self.side, len(kind.classes), rng) if self.val else None
            clients.append(ClientData(f"client{i:03}", trained, tested, val))
        look = Preprocessing(kind.mean, kind.std, config.data.augment, config.data.augment_val)
        return Experiment(config, Federation(tuple(clients), kind.classes, self.title, True, look))


def draw_samples(count: int, side: int, classes: int, rng: torch.Generator) -> Samples:
    """Images as smooth as photographs, so that their files are no larger than such files are; labels by chance."""
    images = torch.empty(count, 3, side, side, dtype=torch.uint8)
    for part in images.split(max(1, PIXELS_AT_ONCE // side**2)):
        coarse = torch.randint(256, (len(part), 3, side // 6, side // 6), generator=rng, dtype=torch.uint8)
        part.copy_(resize_images(coarse, side))
    return Samples(images, torch.randint(classes, (count,), generator=rng))


def resize_images(images: Tensor, side: int) -> Tensor:
    """The same at another size."""
    return F.interpolate(images, (side, side), mode="bilinear", antialias=True)


size_rng = Random(0)
WORKLOADS = {
    "w1": Workload(
        "W1 Digits: 5 clients x 743 images of 28 x 28, 400 test images each (the real sets are larger)",
        "digits", 28, (743,) * 5, (400,) * 5,
    ),
    "w2": Workload(
        "W2 Office: 4 clients x 62 images of 256 x 256, AlexNet, 50 for validation, 192, 225, 32 and 59 for testing",
        "office", 256, (62,) * 4, (192, 225, 32, 59), val=50,
    ),
    "w3": Workload(
        "W3 CIFAR: 100 clients, 5 a round, 300 to 700 images each, 5 epochs, 100 test images each",
        "cifar10", 32, tuple(size_rng.randint(300, 700) for _ in range(100)), (100,) * 100, evaluate_train=False,
    ),
}  # fmt: skip
TOY_WORKLOADS = {
    "w1": replace(WORKLOADS["w1"], title="W1, toy size", train=(40, 30), test=(20, 10)),
    "w2": replace(WORKLOADS["w2"], title="W2, toy size", train=(4, 3), test=(2, 1), val=2),
    "w3": replace(WORKLOADS["w3"], title="W3, toy size", train=(20, 30) * 20, test=(5,) * 40),
}
