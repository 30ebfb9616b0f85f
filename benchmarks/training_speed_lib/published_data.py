"""Data as the published code reads them: one image at a time through Pillow, photographs from their files each time."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from fedtrain.data.client_data import ClientData, Samples
from training_speed_lib.workloads import resize_images

FILE_SIDE = 300
"""Pixels a side of a photograph in its file, as Office's Amazon images have."""


@dataclass(frozen=True, eq=False)
class ImageFiles(Samples):
    """Samples that are files; ``inputs`` has their shape and holds no data."""

    paths: tuple[Path, ...]


def write_client_images(client: ClientData, folder: Path) -> ClientData:
    """The client with its images in files instead of in memory."""

    def written(split: str, samples: Samples) -> ImageFiles:
        paths = []
        for i, image in enumerate(samples.inputs):
            paths.append(folder / f"{client.name}-{split}-{i}.jpg")
            pixels = resize_images(image[None], FILE_SIDE)[0].permute(1, 2, 0).contiguous()
            Image.fromarray(pixels.numpy()).save(paths[-1], quality=90)
        return ImageFiles(samples.inputs[:0].clone(), samples.labels, tuple(paths))

    val = written("val", client.val) if client.val else None
    return replace(client, train=written("train", client.train), test=written("test", client.test), val=val)


def load_through_pillow(samples: Samples, index: int, training: bool) -> Tensor:
    """Digits: from the array by way of an image, then (x - 1/2) / (1/2)."""
    pixels = samples.inputs[index].permute(1, 2, 0).numpy()
    return (convert_to_tensor(Image.fromarray(np.ascontiguousarray(pixels))) - 0.5) / 0.5


def load_from_file(samples: Samples, index: int, training: bool) -> Tensor:
    """Office: opened and resized at each access, while training also flipped and turned."""
    assert isinstance(samples, ImageFiles)
    height, width = samples.inputs.shape[-2:]
    with Image.open(samples.paths[index]) as file:
        image = file.convert("RGB").resize((width, height), Image.Resampling.BILINEAR)
    if training:
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        image = image.rotate(random.uniform(-30, 30))
    return convert_to_tensor(image)


def convert_to_tensor(image: Image.Image) -> Tensor:
    """Of shape (3, H, W), from 0 to 1."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().float().div(255)


SAMPLE_LOADERS = {"digits": load_through_pillow, "office": load_from_file}
"""By preset; data of others are in memory in the published code too, or might have been."""
