"""From settings to clients: find the data, share them out, fetch each client's images."""

from __future__ import annotations

from pathlib import Path

import torch

from fedtrain.data.catalogue import dataset
from fedtrain.data.client_share import ClientShare
from fedtrain.data.clients import ClientData, Federation, Pool, Preparation, Samples
from fedtrain.data.readers.images import Part
from fedtrain.data.settings import DataSettings
from fedtrain.data.shares import check, shares
from fedtrain.data.skews import misaligned, noise_levels
from fedtrain.data.skews.share import Indices
from fedtrain.data.source import Found, find
from theory.errors import InputError


def federation(settings: DataSettings, root: Path | None = None) -> Federation:
    """The clients that the settings describe; ``root`` is the folder of the data if not the usual one."""
    check(settings)
    return assemble(settings, find(settings, root))


def assemble(settings: DataSettings, found: Found, only: int | None = None) -> Federation:
    """The clients that the settings make of these pools, or the one at this place; images of others are not read."""
    parts = shares(settings, found.pools)
    levels = noise_levels(len(parts), settings.noise).tolist()
    if only is not None and not 0 <= only < len(parts):
        raise InputError(f"there is no client {only}: these settings make {len(parts)}, counted from 0")
    chosen = slice(None) if only is None else slice(only, only + 1)
    pairs = list(zip(parts, levels, strict=True))[chosen]
    clients = (client(settings, found.pools[part.pool], part, noise) for part, noise in pairs)
    data = dataset(settings.dataset)
    wrong = "labels do not belong to their images (misaligned, as in published results)"
    return Federation(
        tuple(clients),
        data.classes,
        found.title,
        found.standin,
        Preparation(data.mean, data.std, settings.augment, settings.augment_val, settings.noise_unit),
        (*found.notes, *[wrong] * (settings.labels == "misaligned")),
    )


def client(settings: DataSettings, pool: Pool, share: ClientShare, noise: float) -> ClientData:
    """One client with its images."""

    def samples(part: Part, chosen: Indices) -> Samples:
        of_image, of_label = misaligned(chosen) if settings.labels == "misaligned" else (chosen, chosen)
        labels = pool.train if part == "train" else pool.test
        return Samples(pool.take(part, of_image), torch.from_numpy(labels[of_label]))

    val = samples("train", share.val) if len(share.val) else None
    return ClientData(share.name, samples("train", share.train), samples("test", share.test), val, noise)
