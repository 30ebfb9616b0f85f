"""Data as the published code reads them: one image at a time through Pillow, photographs from their files each time."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from fedtrain.data.clients import ClientData, Samples
from racing.workloads import enlarged

FILED = 300
"""Pixels a side of a photograph in its file, as Office's Amazon images have."""


@dataclass(frozen=True, eq=False)
class Photographs(Samples):
    """Samples that are files; ``inputs`` tells their shape and holds none."""

    paths: tuple[Path, ...]


def filed(client: ClientData, folder: Path) -> ClientData:
    """The client with its images in files instead of in memory."""

    def written(split: str, samples: Samples) -> Photographs:
        paths = []
        for i, image in enumerate(samples.inputs):
            paths.append(folder / f"{client.name}-{split}-{i}.jpg")
            pixels = enlarged(image[None], FILED)[0].permute(1, 2, 0).contiguous()
            Image.fromarray(pixels.numpy()).save(paths[-1], quality=90)
        return Photographs(samples.inputs[:0].clone(), samples.labels, tuple(paths))

    val = written("val", client.val) if client.val else None
    return replace(client, train=written("train", client.train), test=written("test", client.test), val=val)


def through_pillow(samples: Samples, index: int, training: bool) -> Tensor:
    """Digits: from the array by way of an image, then (x - 1/2) / (1/2)."""
    pixels = samples.inputs[index].permute(1, 2, 0).numpy()
    return (as_tensor(Image.fromarray(np.ascontiguousarray(pixels))) - 0.5) / 0.5


def from_file(samples: Samples, index: int, training: bool) -> Tensor:
    """Office: opened and resized at each access, while training also flipped and turned."""
    assert isinstance(samples, Photographs)
    height, width = samples.inputs.shape[-2:]
    with Image.open(samples.paths[index]) as file:
        image = file.convert("RGB").resize((width, height), Image.Resampling.BILINEAR)
    if training:
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        image = image.rotate(random.uniform(-30, 30))
    return as_tensor(image)


def as_tensor(image: Image.Image) -> Tensor:
    """Of shape (3, H, W), from 0 to 1."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().float().div(255)


READERS = {"digits": through_pillow, "office": from_file}
"""By preset; data of others are in memory in the published code too, or might have been."""
