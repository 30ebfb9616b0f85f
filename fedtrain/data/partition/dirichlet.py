"""Dirichlet skew: each class is spread over the clients in proportions of its own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedtrain.data.partition.checks import (
    check_alpha,
    check_tries,
    find_class_positions,
    find_trained_classes,
    make_legacy_rng,
    validate_label_pair,
)
from fedtrain.data.partition.indices import Indices, Labels, TrainTestIndices
from theory.errors import InputError


def partition_dirichlet(
    train_labels: Labels,
    test_labels: Labels,
    clients: int,
    alpha: float,
    seed: int,
    least: int = 10,
    tries: int = 1000,
) -> list[TrainTestIndices]:
    """Spread each class by p ~ Dir(α·1_N), training and test samples alike; small α is strong skew.

    Two things tame the draw. A client that holds n/N training samples gets none of the classes that follow. And the
    whole draw is repeated until every client has ``least`` samples of both kinds, ``tries`` times at most.

    Drawn in this order: class by class the order of its training samples, the order of its test samples, p; after an
    accepted draw the order of each client's training samples and of its test samples.
    """
    train, test = validate_label_pair(train_labels, test_labels, clients)
    classes = find_trained_classes(train, test)
    check_alpha("alpha", alpha)
    check_tries(tries)
    if least < 1:
        raise InputError(f"least is {least}; a client needs at least one sample of each kind")
    if (fewest := min(len(train), len(test))) < least * clients:
        raise InputError(
            f"{clients} clients with at least {least} samples need {least * clients} training and test samples, and "
            f"there are {fewest}; lower least or take fewer clients"
        )
    rng = make_legacy_rng(seed)
    pools = list(zip(find_class_positions(train, classes), find_class_positions(test, classes), strict=True))
    best = 0
    for _ in range(tries):
        piles, ends = draw_class_cuts(rng, pools, clients, alpha)
        smallest = int(np.diff(ends, prepend=0).sum(axis=0).min())  # of either kind
        if smallest >= least:
            return [
                TrainTestIndices(*(copy_shuffled(rng, pile) for pile in pair))
                for pair in collect_client_samples(piles, ends)
            ]
        best = max(best, smallest)
    raise InputError(
        f"none of {tries} draws (alpha {alpha}, seed {seed}) gave each of {clients} clients at least {least} training "
        f"and test samples; the best gave {best}: lower least, raise alpha or take fewer clients"
    )


def mask_full_and_normalise(weights: NDArray[np.float64], held: Indices, cap: float) -> NDArray[np.float64]:
    """Weights along the last axis, 0 for who holds ``cap`` or more, summing to 1; equal if all of them underflow."""
    is_open = held < cap
    kept = np.where(is_open & np.isfinite(weights), weights, 0.0)
    total = kept.sum(axis=-1, keepdims=True)
    fallback = is_open / np.maximum(is_open.sum(axis=-1, keepdims=True), 1)
    return np.where(total > 0, kept / np.where(total > 0, total, 1.0), fallback)


def compute_cut_points(weights: NDArray[np.float64], amount: int) -> Indices:
    """Where to cut ``amount`` samples so that the pieces have these weights: truncated cumulative sums, and the end."""
    ends = (np.cumsum(weights, axis=-1) * amount).astype(np.int64)
    ends[..., -1] = amount
    return ends


def draw_class_cuts(
    rng: np.random.RandomState, pools: list[tuple[Indices, Indices]], clients: int, alpha: float
) -> tuple[list[list[Indices]], Indices]:
    """One draw: of each class the shuffled samples of both kinds, and (class, kind, client) where a client's end."""
    cap = sum(len(train) for train, _ in pools) / clients
    held = np.zeros(clients, dtype=np.int64)
    ends = np.empty((len(pools), 2, clients), dtype=np.int64)
    piles = []
    for k, pool in enumerate(pools):
        piles.append([copy_shuffled(rng, pile) for pile in pool])
        p = mask_full_and_normalise(rng.dirichlet(np.full(clients, alpha)), held, cap)
        ends[k] = [compute_cut_points(p, len(pile)) for pile in pool]
        held += np.diff(ends[k, 0], prepend=0)
    return piles, ends


def collect_client_samples(piles: list[list[Indices]], ends: Indices) -> list[tuple[Indices, Indices]]:
    """Cut the piles at their ends: each client's training and test samples, class after class."""
    starts = ends - np.diff(ends, prepend=0)

    def of(client: int, kind: int) -> Indices:
        pieces = [
            pile[kind][a:b] for pile, a, b in zip(piles, starts[:, kind, client], ends[:, kind, client], strict=True)
        ]
        return np.concatenate(pieces)

    return [(of(client, 0), of(client, 1)) for client in range(ends.shape[-1])]


def copy_shuffled(rng: np.random.RandomState, indices: Indices) -> Indices:
    """A shuffled copy."""
    copy = indices.copy()
    rng.shuffle(copy)
    return copy
