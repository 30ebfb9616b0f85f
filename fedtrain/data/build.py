"""From settings to clients: find the data, share them out, fetch each client's images."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch

from fedtrain.config.data import DataSettings
from fedtrain.data.client_data import ClientData, Federation, Preprocessing, SamplePool, Samples
from fedtrain.data.datasets import get_dataset_info
from fedtrain.data.partition import compute_noise_levels, misalign_labels
from fedtrain.data.partition.assign import assign_samples, validate_data_settings
from fedtrain.data.partition.client_indices import ClientIndices
from fedtrain.data.partition.indices import Indices
from fedtrain.data.readers.labelled_images import Split
from fedtrain.data.source import LoadedDataset, load_dataset
from theory.errors import InputError


def build_federation(settings: DataSettings, root: Path | None = None) -> Federation:
    """The clients that the settings describe; ``root`` is the folder of the data if not the usual one."""
    validate_data_settings(settings)
    return assemble_federation(settings, load_dataset(settings, root))


def assemble_federation(settings: DataSettings, found: LoadedDataset) -> Federation:
    """The clients that the settings make of these pools."""
    parts = assign_samples(settings, found.pools)
    return _build_clients(
        settings, found, zip(parts, compute_noise_levels(len(parts), settings.noise).tolist(), strict=True)
    )


def build_single_client(settings: DataSettings, index: int, root: Path | None = None) -> Federation:
    """The client at this place alone; images of others are not read.

    With a domain for each client, its own domain is all that has to be here. Under other skews what is whose depends
    on the labels of all.
    """
    validate_data_settings(settings)
    count = count_clients(settings)
    if not 0 <= index < count:
        raise InputError(f"there is no client {index}: these settings make {count}, counted from 0")
    independent = settings.skew == "domain"
    found = load_dataset(
        settings, root, only=list(get_dataset_info(settings.dataset).domains)[index] if independent else None
    )
    part = assign_samples(settings, found.pools)[0 if independent else index]
    return _build_clients(settings, found, [(part, float(compute_noise_levels(count, settings.noise)[index]))])


def count_clients(settings: DataSettings) -> int:
    """How many clients the settings make; no data are looked at."""
    return settings.clients or len(get_dataset_info(settings.dataset).domains)


def _build_clients(
    settings: DataSettings, found: LoadedDataset, pairs: Iterable[tuple[ClientIndices, float]]
) -> Federation:
    """Clients with their images, each with its share and its noise."""
    clients = (build_client(settings, found.pools[part.pool_index], part, noise) for part, noise in pairs)
    data = get_dataset_info(settings.dataset)
    wrong = "labels do not belong to their images (misaligned, as in published results)"
    return Federation(
        tuple(clients),
        data.classes,
        found.title,
        found.standin,
        Preprocessing(data.mean, data.std, settings.augment, settings.augment_val, settings.noise_unit),
        (*found.notes, *[wrong] * (settings.labels == "misaligned")),
    )


def build_client(settings: DataSettings, pool: SamplePool, share: ClientIndices, noise: float) -> ClientData:
    """One client with its images."""

    def samples(part: Split, chosen: Indices) -> Samples:
        of_image, of_label = misalign_labels(chosen) if settings.labels == "misaligned" else (chosen, chosen)
        labels = pool.train if part == "train" else pool.test
        return Samples(pool.load_images(part, of_image), torch.from_numpy(labels[of_label]))

    val = samples("train", share.val) if len(share.val) else None
    return ClientData(share.name, samples("train", share.train), samples("test", share.test), val, noise)
