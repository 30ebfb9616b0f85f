"""Pachinko skew: a draw down a tree, first the coarse class, then the fine one."""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray

from fedtrain.data.partition.checks import (
    check_alpha,
    check_seed,
    make_legacy_rng,
    validate_label_pair,
    validate_labels,
)
from fedtrain.data.partition.dirichlet import mask_full_and_normalise
from fedtrain.data.partition.indices import Labels, TrainTestIndices
from theory.errors import InputError

Weights = NDArray[np.float64]


def partition_pachinko(
    train_fine: Labels,
    test_fine: Labels,
    coarse_of_fine: Labels,
    clients: int,
    alpha: float = 0.3,
    beta: float = 10.0,
    *,
    seed: int,
    pool_seed: int = 12345,
) -> list[TrainTestIndices]:
    """Client after client draws its equal number of samples from one pool of training and test samples.

    Its weights of the coarse classes are Dir(α), and Dir(β) of the fine classes in each. A sample is drawn down the
    tree and taken out of the pool; a class that is used up leaves the tree. All this depends on ``pool_seed`` alone:
    ``seed`` only says which client gets which list. As the pool is mixed, a client's numbers of training and test
    samples vary, and their class proportions agree in expectation only.
    """
    train, test = validate_label_pair(train_fine, test_fine, clients)
    coarse = validate_labels("coarse", coarse_of_fine)
    check_alpha("alpha", alpha)
    check_alpha("beta", beta)
    check_seed(seed)
    pool = np.concatenate([train, test])
    if len(coarse) <= pool.max():
        raise InputError(f"fine label {pool.max()} has no coarse label; coarse_of_fine ends at {len(coarse) - 1}")

    tree = PachinkoTree(pool, coarse, pool_seed)
    each = len(pool) // clients
    lists = [tree.draw_client(each, alpha, beta) for _ in range(clients)]
    random.Random(seed).shuffle(lists)
    drawn = [np.array(indices, dtype=np.int64) for indices in lists]
    return [TrainTestIndices(d[d < len(train)], d[d >= len(train)] - len(train)) for d in drawn]


class PachinkoTree:
    """What is left: of each coarse class the fine ones, of each fine class the samples."""

    def __init__(self, pool_index: NDArray[np.int64], coarse: NDArray[np.int64], seed: int) -> None:
        self.rng = make_legacy_rng(seed)
        self.picker = random.Random(seed)
        self.samples = {int(f): np.flatnonzero(pool_index == f).tolist() for f in np.unique(pool_index)}
        self.fine: dict[int, list[int]] = {c: [] for c in sorted(set(coarse[list(self.samples)].tolist()))}
        for f in self.samples:
            self.fine[int(coarse[f])].append(f)

    def draw_client(self, amount: int, alpha: float, beta: float) -> list[int]:
        """One client: its own weights, then its samples."""
        upper = self.draw_weights(alpha, len(self.fine))
        lower = {c: self.draw_weights(beta, len(fine)) for c, fine in self.fine.items()}
        coarse = list(self.fine)
        drawn = []
        for _ in range(amount):
            i = self.draw_index(upper)
            c = coarse[i]
            j = self.draw_index(lower[c])
            samples = self.samples[self.fine[c][j]]
            drawn.append(samples.pop(self.picker.randrange(len(samples))))
            if not samples:
                del self.fine[c][j]
                lower[c] = remove_weight(lower[c], j)
            if not self.fine[c]:
                del self.fine[c], coarse[i]
                upper = remove_weight(upper, i)
        return drawn

    def draw_weights(self, concentration: float, size: int) -> Weights:
        """A symmetric Dirichlet draw."""
        return normalise_weights(self.rng.dirichlet(np.full(size, concentration)))

    def draw_index(self, weights: Weights) -> int:
        """An index by its weight."""
        return int(self.rng.multinomial(1, weights).argmax())


def remove_weight(weights: Weights, index: int) -> Weights:
    """The weights of the others."""
    return normalise_weights(np.delete(weights, index))


def normalise_weights(weights: Weights) -> Weights:
    """Sum 1, equal if all weights underflow; none stay none."""
    return mask_full_and_normalise(weights, np.zeros(len(weights), dtype=np.int64), 1) if len(weights) else weights
