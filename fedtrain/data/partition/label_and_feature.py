"""Label skew on top of feature skew: a domain's client keeps one Dirichlet part of that domain."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from fedtrain.data.partition.checks import (
    check_alpha,
    check_tries,
    find_class_positions,
    make_legacy_rng,
    validate_labels,
)
from fedtrain.data.partition.dirichlet import compute_cut_points, copy_shuffled, mask_full_and_normalise
from fedtrain.data.partition.indices import Indices, Labels, TrainTestIndices
from theory.errors import InputError

DRAWS_PER_BATCH = 1000
"""Draws made at once; whole batches are drawn, so it is part of what a seed means."""


def draw_label_and_feature_part(
    train_labels: Labels,
    test_labels: Labels,
    alpha: float,
    divide: int,
    least_per_class: int = 2,
    keep: int = 0,
    *,
    seed: int | np.random.RandomState,
    tries: int = 200_000,
    adjust_test: bool = True,
) -> TrainTestIndices:
    """Split one domain's training samples into ``divide`` parts, class by class as `dirichlet` does, and keep one.

    A part that holds n/divide samples gets none of the classes that follow; the draw is repeated until every part
    has ``least_per_class`` of every class. That is rare (Digits, α 0.3: one draw in 5,000 to 20,000), so sizes are
    drawn in batches, and samples are shuffled only once the sizes are accepted.
    With ``adjust_test`` the test samples are thinned to the class proportions of the part; else all are kept.
    A generator as ``seed`` is drawn on: domains one after the other from one stream.
    """
    train, test = validate_labels("training", train_labels), validate_labels("test", test_labels)
    check_alpha("alpha", alpha)
    check_tries(tries)
    if divide < 1:
        raise InputError(f"divide is {divide}; at least one part is needed")
    if least_per_class < 0:
        raise InputError(f"least_per_class is {least_per_class}; choose 0 or more")
    if not 0 <= keep < divide:
        raise InputError(f"keep is {keep}; the parts are numbered 0..{divide - 1}")
    classes, counts = np.unique(train, return_counts=True)
    rarest = int(counts.argmin())
    if len(train) < divide:
        raise InputError(f"{len(train)} training samples are too few for {divide} parts; lower divide")
    if counts[rarest] < divide * least_per_class:
        raise InputError(
            f"class {classes[rarest]}: {counts[rarest]} training samples cannot give each of {divide} parts "
            f"{least_per_class}; lower least_per_class or divide"
        )
    rng = seed if isinstance(seed, np.random.RandomState) else make_legacy_rng(seed)
    sizes = draw_part_sizes(rng, counts, divide, alpha, least_per_class, tries)
    ends = sizes.cumsum(axis=1)[:, keep]
    starts = ends - sizes[:, keep]
    piles = zip(find_class_positions(train, classes), starts, ends, strict=True)
    part = copy_shuffled(rng, np.concatenate([copy_shuffled(rng, pile)[a:b] for pile, a, b in piles]))
    if not adjust_test:
        return TrainTestIndices(part, np.arange(len(test), dtype=np.int64))
    return TrainTestIndices(part, thin_test_samples(rng, test, classes, sizes[:, keep]))


def draw_part_sizes(
    rng: np.random.RandomState, counts: Indices, divide: int, alpha: float, least: int, tries: int
) -> Indices:
    """(class, part) sizes: the first draw that gives every part ``least`` of every class."""
    cap = counts.sum() / divide
    for start in range(0, tries, DRAWS_PER_BATCH):
        p = rng.dirichlet(np.full(divide, alpha), size=(DRAWS_PER_BATCH, len(counts)))
        held = np.zeros((DRAWS_PER_BATCH, divide), dtype=np.int64)
        sizes = np.empty((DRAWS_PER_BATCH, len(counts), divide), dtype=np.int64)
        for k, count in enumerate(counts):
            sizes[:, k] = np.diff(
                compute_cut_points(mask_full_and_normalise(p[:, k], held, cap), int(count)), prepend=0
            )
            held += sizes[:, k]
        good = np.flatnonzero((sizes >= least).all(axis=(1, 2)) & (held > 0).all(axis=1))
        if len(good) and start + good[0] < tries:
            return np.array(sizes[good[0]])
    raise InputError(
        f"none of {tries} draws (alpha {alpha}) gave each of {divide} parts at least {least} samples of all "
        f"{len(counts)} classes; raise data.alpha, or lower data.least_per_class or data.divide"
    )


def thin_test_samples(rng: np.random.RandomState, test: Indices, classes: Indices, wanted: Indices) -> Indices:
    """Random test samples in the proportions ``wanted`` of the classes, as many as there can be.

    With r = min_k (test count_k / wanted_k), ⌊r · wanted_k⌋ of class k; in whole numbers, so that the scarcest class
    is kept whole.
    """
    held = wanted > 0
    pools = find_class_positions(test, classes[held])
    pairs = [(len(pool), int(want)) for pool, want in zip(pools, wanted[held], strict=True)]
    scarcest = min(range(len(pairs)), key=lambda k: Fraction(*pairs[k]))
    top, bottom = pairs[scarcest]
    if top == 0:
        raise InputError(f"class {classes[held][scarcest]} has no test sample here; add some, or choose another skew")
    keeps = [top * want // bottom for _, want in pairs]
    return np.sort(np.concatenate([copy_shuffled(rng, pool)[:n] for pool, n in zip(pools, keeps, strict=True)]))
