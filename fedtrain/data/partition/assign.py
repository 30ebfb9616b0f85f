"""Assign samples to clients: settings and labels in, indices out, without an image."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedtrain.config.data import DataSettings
from fedtrain.data.datasets import DatasetInfo, get_dataset_info
from fedtrain.data.partition import (
    TrainTestIndices,
    partition_dirichlet,
    partition_iid,
    partition_pachinko,
    partition_pathological,
)
from fedtrain.data.partition.by_domain import assign_domain_parts, assign_whole_domains
from fedtrain.data.partition.client_indices import NO_INDICES, ClientIndices, LabelledPool
from theory.errors import InputError


def assign_samples(
    settings: DataSettings, pools: Sequence[LabelledPool], data: DatasetInfo | None = None
) -> list[ClientIndices]:
    """One share a client; ``pools`` are the domains of the data set in order, or one pool for a label skew.

    ``data`` describes the data set if it is not one of the paper's.
    """
    validate_data_settings(settings, data)
    if settings.skew == "domain":
        return assign_whole_domains(settings, pools)
    if settings.skew == "label+feature":
        return assign_domain_parts(settings, pools)
    (pool,) = pools
    drawn = partition_by_label(settings, pool, data or get_dataset_info(settings.dataset))
    digits = max(2, len(str(len(drawn) - 1)))
    return [
        ClientIndices(f"client{i:0{digits}}", 0, share.train, share.test, NO_INDICES) for i, share in enumerate(drawn)
    ]


def partition_by_label(settings: DataSettings, pool: LabelledPool, data: DatasetInfo) -> list[TrainTestIndices]:
    """One pool spread over clients by label."""
    lists, clients, seed = (pool.train, pool.test), settings.clients or 0, settings.seed
    if settings.skew == "iid":
        return partition_iid(*lists, clients, seed)
    if settings.skew == "pathological":
        return partition_pathological(*lists, clients, settings.classes_per_client, seed)
    if settings.skew == "dirichlet":
        return partition_dirichlet(*lists, clients, settings.alpha, seed, settings.least)
    coarse = np.array(data.superclasses, dtype=np.int64)
    return partition_pachinko(*lists, coarse, clients, settings.alpha, settings.beta, seed=seed)


def list_valid_skews(data: DatasetInfo) -> list[str]:
    """The skews that make sense for a data set."""
    by_label = ["iid", "pathological", "dirichlet", *["pachinko"] * bool(data.superclasses)]
    if len(data.domains) > 1:
        return ["domain", "label+feature", *([] if data.is_from_paper else by_label)]
    return by_label


def validate_data_settings(settings: DataSettings, data: DatasetInfo | None = None) -> None:
    """Refuse settings that contradict the data set or each other."""
    data = data or get_dataset_info(settings.dataset)
    by_label = settings.skew not in ("domain", "label+feature")
    domains = len(data.domains)
    if settings.skew not in list_valid_skews(data):
        what = f"has {domains} domains" if domains > 1 else "is one pool of samples"
        what += " without coarse classes" if settings.skew == "pachinko" and not data.superclasses else ""
        raise InputError(
            f"skew {settings.skew!r} does not fit {data.title}, which {what}; choose {_format_valid_skews(data)}"
        )
    if not by_label and settings.clients not in (None, domains):
        raise InputError(
            f"clients is {settings.clients}; {data.title} has {domains} domains, a client each: leave data.clients out"
        )
    if by_label and settings.clients is None:
        raise InputError(f"skew {settings.skew!r} needs a number of clients; set data.clients")
    if settings.percent is not None and settings.train_size is not None:
        raise InputError("percent and train_size both say how much to train on; leave data.percent or data.train_size")
    if settings.train_size is not None and settings.train_size < 1:
        raise InputError(f"train_size is {settings.train_size}; train on at least one image")
    if settings.val_size < 0:
        raise InputError(f"val_size is {settings.val_size}; choose 0 or more")
    sized = {"percent": settings.percent, "train_size": settings.train_size, "val_size": settings.val_size}
    if settings.skew != "domain" and (given := [name for name, value in sized.items() if value]):
        raise InputError(f"{given[0]} is for skew 'domain', and skew is {settings.skew!r}; leave data.{given[0]} out")
    published = settings.skew == "label+feature" and settings.dataset in ("office", "domainnet")
    if settings.labels == "misaligned" and not published:
        raise InputError(
            "labels are misaligned in published results of skew 'label+feature' on office and domainnet only; "
            "set data.labels to 'aligned'"
        )


def _format_valid_skews(data: DatasetInfo) -> str:
    *most, last = list_valid_skews(data)
    return f"{', '.join(most)} or {last}"
