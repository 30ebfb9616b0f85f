"""From settings to clients: find the data, share them out, fetch each client's images."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from fedtrain.config.data import DataSettings
from fedtrain.data.client_data import ClientData, Federation, Preprocessing, SamplePool, Samples
from fedtrain.data.datasets import DATASETS, DatasetInfo, get_dataset_info
from fedtrain.data.partition import compute_noise_levels, misalign_labels, subsample_stratified
from fedtrain.data.partition.assign import assign_samples, validate_data_settings
from fedtrain.data.partition.by_domain import assign_whole_domains
from fedtrain.data.partition.checks import make_legacy_rng
from fedtrain.data.partition.client_indices import ClientIndices
from fedtrain.data.partition.indices import Indices
from fedtrain.data.readers.labelled_images import Split
from fedtrain.data.scaling import measure_scaling
from fedtrain.data.source import LoadedDataset, load_dataset
from fedtrain.data.standardise import standardise_client
from fedtrain.rng import derive_seed
from theory.errors import InputError
from theory.text import suggest_name


def build_federation(settings: DataSettings, root: Path | None = None) -> Federation:
    """The clients that the settings describe; ``root`` is the folder of the data if not the usual one."""
    if settings.dataset in DATASETS:
        validate_data_settings(settings)
    return assemble_federation(settings, load_dataset(settings, root))


def assemble_federation(settings: DataSettings, found: LoadedDataset) -> Federation:
    """The clients that the settings make of these pools."""
    found = found.merge_for(settings.skew)
    parts = assign_samples(settings, found.pools, found.info)
    pairs = list(zip(parts, compute_noise_levels(len(parts), settings.noise).tolist(), strict=True))
    if settings.hold_out is None:
        return _build_clients(settings, found, pairs)
    return _build_without(settings.hold_out, settings, found, pairs)


def _build_without(
    name: str, settings: DataSettings, found: LoadedDataset, pairs: Sequence[tuple[ClientIndices, float]]
) -> Federation:
    """The clients but one. Not even the mean over everybody's samples knows that one."""
    names = [part.name for part, _ in pairs]
    if name not in names:
        raise InputError(f"data.hold_out is {name!r}, and no client is called so; {suggest_name(name, names)}")
    kept = [pair for pair in pairs if pair[0].name != name]
    if not kept:
        raise InputError(f"data.hold_out is {name!r}, the only client; at least one must be left to train")
    found = replace(found, info=_measure_without(found, [part for part, _ in kept]))
    [other] = _build_clients(settings, found, [pair for pair in pairs if pair[0].name == name]).clients
    trained = _build_clients(settings, found, kept)
    return replace(
        trained, notes=(*trained.notes, f"client {name} is held out: it took no part in training"), held_out=other
    )


def _measure_without(found: LoadedDataset, parts: Sequence[ClientIndices]) -> DatasetInfo:
    """The description with the mean and deviation of these clients' training parts alone."""
    info = found.info
    if info.scaling is None:
        return info
    inputs = torch.cat([found.pools[part.pool_index].load_inputs("train", part.train) for part in parts])
    if inputs.is_meta:  # a look ahead, without inputs
        return info
    is_number = np.ones(inputs.shape[1], dtype=bool) if info.table is None else info.table.is_number
    return replace(info, scaling=measure_scaling(inputs.numpy(), is_number))


def build_single_client(settings: DataSettings, index: int, root: Path | None = None) -> Federation:
    """The client at this place alone; images of others are not read.

    With a domain for each client, its own domain is all that has to be here. Under other skews what is whose depends
    on the labels of all.
    """
    if settings.hold_out is not None:
        raise InputError(
            f"data.hold_out is {settings.hold_out!r}, and here a client stands for itself; leave it out, and do not "
            "start that client"
        )
    is_catalogued = settings.dataset in DATASETS
    found = None if is_catalogued else load_dataset(settings, root)
    info = get_dataset_info(settings.dataset) if found is None else found.info
    validate_data_settings(settings, info)
    count = settings.clients or len(info.domains)
    if not 0 <= index < count:
        raise InputError(f"there is no client {index}: these settings make {count}, counted from 0")
    independent = settings.skew == "domain"
    if found is None:
        found = load_dataset(settings, root, only=list(info.domains)[index] if independent else None)
    elif independent:
        found = replace(found, pools=[found.pools[index]])
    found = found.merge_for(settings.skew)
    part = assign_samples(settings, found.pools, info)[0 if independent else index]
    return _build_clients(settings, found, [(part, float(compute_noise_levels(count, settings.noise)[index]))])


def build_natural_clients(settings: DataSettings) -> Federation:
    """The clients that are in data of the user's own, even if there is but one."""
    found = load_dataset(settings)
    return _build_clients(settings, found, [(part, 0.0) for part in assign_whole_domains(settings, found.pools)])


def count_clients(settings: DataSettings, root: Path | None = None) -> int:
    """How many clients the settings make, if they fit the data; of the paper's data none are looked at."""
    info = DATASETS.get(settings.dataset) or load_dataset(settings, root).info
    validate_data_settings(settings, info)
    return settings.clients or len(info.domains)


def _build_clients(
    settings: DataSettings, found: LoadedDataset, pairs: Iterable[tuple[ClientIndices, float]]
) -> Federation:
    """Clients with their images, each with its share and its noise."""
    data = found.info
    clients = (
        standardise_client(
            build_client(settings, found.pools[part.pool_index], part, noise), data, settings.standardise
        )
        for part, noise in pairs
    )
    wrong = "labels do not belong to their images (misaligned, as in published results)"
    return Federation(
        tuple(clients),
        data.classes,
        found.title,
        found.standin,
        Preprocessing(data.mean, data.std, settings.augment, settings.augment_val, settings.noise_unit),
        (*found.notes, *[wrong] * (settings.labels == "misaligned")),
        is_own=not data.is_from_paper,
        table=data.table,
        scaling=data.scaling,
    )


def hold_out_validation(share: ClientIndices, pool: SamplePool, settings: DataSettings) -> ClientIndices:
    """Take ``data.validation_share`` of a client's training samples out, whoever else there is."""
    if not settings.validation_share:
        return share
    rng = make_legacy_rng(derive_seed(settings.seed, "validation", share.name) % 2**32)
    try:
        kept = subsample_stratified(pool.train, share.train, 1 - settings.validation_share, rng)
    except InputError as error:
        raise InputError(f"client {share.name}: {error}; lower data.validation_share") from None
    return replace(share, train=kept, val=np.setdiff1d(share.train, kept))


def build_client(settings: DataSettings, pool: SamplePool, share: ClientIndices, noise: float) -> ClientData:
    """One client with its images."""
    share = hold_out_validation(share, pool, settings)

    def samples(part: Split, chosen: Indices) -> Samples:
        of_image, of_label = misalign_labels(chosen) if settings.labels == "misaligned" else (chosen, chosen)
        labels = pool.train if part == "train" else pool.test
        return Samples(pool.load_inputs(part, of_image), torch.from_numpy(labels[of_label]))

    val = samples("train", share.val) if len(share.val) else None
    return ClientData(share.name, samples("train", share.train), samples("test", share.test), val, noise)
