"""Subsets of a list of samples: stratified, or with labels misaligned as in published code."""

from __future__ import annotations

import numpy as np

from fedtrain.data.partition.checks import validate_labels
from fedtrain.data.partition.indices import Indices, Labels
from theory.errors import InputError


def subsample_stratified(labels: Labels, indices: Indices, fraction: float, rng: np.random.RandomState) -> Indices:
    """Keep this fraction of ``indices``, of every class alike, in the order they have.

    round(fraction · n) samples in all; classes are rounded down, and the largest remainders get one more.
    Label and feature skew keeps 1/6 of Amazon's part, 1/7 of Caltech's and 1/2 of WebCam's.
    """
    if not 0 < fraction <= 1:
        raise InputError(f"fraction is {fraction}; choose it in (0, 1]")
    indices = np.asarray(indices, dtype=np.int64)
    own = validate_labels("chosen", labels[indices])
    total = round(fraction * len(own))
    if total == 0:
        raise InputError(f"fraction {fraction} of {len(own)} samples leaves none; raise fraction")
    classes, counts = np.unique(own, return_counts=True)
    exact = counts * (total / len(own))
    keeps = np.floor(np.round(exact, 9)).astype(np.int64)
    keeps[np.argsort(keeps - exact, kind="stable")[: total - keeps.sum()]] += 1
    places = [rng.permutation(np.flatnonzero(own == c))[:n] for c, n in zip(classes, keeps, strict=True)]
    kept: Indices = indices[np.sort(np.concatenate(places))]
    return kept


def misalign_labels(chosen: Indices) -> tuple[Indices, Indices]:
    """(images, labels): item k pairs the k-th image of the full list with the label of sample ``chosen[k]``.

    Only to repeat published numbers of Office-Caltech10 and DomainNet under label and feature skew: the data sets of
    that code select the labels and forget to select the images, so labels say nothing about images.
    """
    return np.arange(len(chosen), dtype=np.int64), np.asarray(chosen, dtype=np.int64)
