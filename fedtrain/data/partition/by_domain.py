"""One domain a client: the whole domain or, with label skew on top, a part of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedtrain.config.data import DataSettings
from fedtrain.data.datasets import DATASETS
from fedtrain.data.partition import (
    DIGITS_POOL_SIZE,
    compute_part_sizes,
    count_train_samples,
    draw_label_and_feature_part,
    subsample_stratified,
)
from fedtrain.data.partition.checks import make_legacy_rng
from fedtrain.data.partition.client_indices import NO_INDICES, ClientIndices, LabelledPool
from theory.errors import InputError

KEPT_PARTS = {"dslr": 1, "painting": 2, "quickdraw": 1}
"""The part that a domain's client keeps under label + feature skew, where it is not part 0."""
DSLR_SECOND_PART_ALPHAS = (0.3, 1.0)
"""Those for which DSLR's client keeps part 1; else it is part 0."""
OFFICE_CUT_FACTORS = {"amazon": 6, "caltech": 7, "webcam": 2}
"""Of its part a client keeps one in so many, so that all clients of Office-Caltech10 have about 60 images."""
MIN_SAMPLES_AFTER_CUT = 100
"""A cut is made only of lists of which it leaves so many; shorter ones stay as they are."""
UNTHINNED_TEST_DOMAINS = ("dslr", "webcam")
"""Test sets that the published code does not thin."""


def assign_whole_domains(settings: DataSettings, pools: Sequence[LabelledPool]) -> list[ClientIndices]:
    """Train on the first of a domain's list, validate on the last, test on the whole test list."""
    return [_assign_whole_domain(settings, number, pool) for number, pool in enumerate(pools)]


def _assign_whole_domain(settings: DataSettings, number: int, pool: LabelledPool) -> ClientIndices:
    there, val = len(pool.train), settings.val_size
    train = there - val
    if settings.train_size is not None:
        train = settings.train_size
    elif settings.percent is not None:
        train = count_train_samples(DIGITS_POOL_SIZE if settings.dataset == "digits" else there, settings.percent)
    if train < 1 or train + val > there:
        given = {"percent": settings.percent, "train_size": settings.train_size, "val_size": val or None}
        asked = f"{max(train, 1):,} + {val:,}" if val else f"{train:,}"
        way = " or ".join(f"data.{key}" for key, value in given.items() if value is not None)
        raise InputError(f"client {pool.domain}: {asked} images asked for, its list has {there:,}; lower {way}")
    places = np.arange(there, dtype=np.int64)
    everything = np.arange(len(pool.test), dtype=np.int64)
    return ClientIndices(pool.domain, number, places[:train], everything, places[there - val :])


def assign_domain_parts(settings: DataSettings, pools: Sequence[LabelledPool]) -> list[ClientIndices]:
    """Each domain is split by label and its client keeps one part; one stream of chance, domain after domain."""
    rng = make_legacy_rng(settings.seed)
    return [_assign_domain_part(settings, number, pool, rng) for number, pool in enumerate(pools)]


def _assign_domain_part(
    settings: DataSettings, number: int, pool: LabelledPool, rng: np.random.RandomState
) -> ClientIndices:
    labels, domain = pool.train, pool.domain if settings.dataset in DATASETS else ""
    if settings.dataset == "digits":
        labels = labels[: sum(compute_part_sizes(DIGITS_POOL_SIZE)[: settings.divide])]
    try:
        share = draw_label_and_feature_part(
            labels,
            pool.test,
            settings.alpha,
            settings.divide,
            settings.least_per_class,
            get_kept_part(domain, settings.alpha, settings.divide),
            seed=rng,
            adjust_test=settings.thin_test == "all" or domain not in UNTHINNED_TEST_DOMAINS,
        )
    except InputError as error:
        raise InputError(f"client {pool.domain}: {error}") from None
    cut = OFFICE_CUT_FACTORS.get(domain, 1)
    train = (
        subsample_stratified(labels, share.train, 1 / cut, rng)
        if 1 < cut <= len(labels) / MIN_SAMPLES_AFTER_CUT
        else share.train
    )
    return ClientIndices(pool.domain, number, train, share.test, NO_INDICES)


def get_kept_part(domain: str, alpha: float, divide: int) -> int:
    """As published; the last part where there are fewer."""
    if domain == "dslr" and alpha not in DSLR_SECOND_PART_ALPHAS:
        return 0
    return min(KEPT_PARTS.get(domain, 0), divide - 1)
