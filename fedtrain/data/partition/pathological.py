"""Pathological skew: each client holds a few classes and nothing of the others."""

from __future__ import annotations

import random
from math import gcd

import numpy as np

from fedtrain.data.partition.checks import (
    find_class_positions,
    find_trained_classes,
    make_legacy_rng,
    validate_label_pair,
)
from fedtrain.data.partition.indices import Indices, Labels, TrainTestIndices
from theory.errors import InputError

MIN_RAW_SHARE, MAX_RAW_SHARE = 0.4, 0.6
"""Before they are made to sum to 1, the shares of a class are uniform between these."""


def partition_pathological(
    train_labels: Labels, test_labels: Labels, clients: int, classes_per_client: int, seed: int
) -> list[TrainTestIndices]:
    """Give each client ``classes_per_client`` classes, and each class to equally many clients.

    Drawn in this order: for each class the sizes of its shares; client by client its classes, each one evenly among
    those with most shares left; from Python's generator the order of each class's training samples, then of its test
    samples. A client takes the last share left of its class, ⌊n_c · share⌋ samples of both pools; what truncation
    leaves goes to nobody.
    """
    train, test = validate_label_pair(train_labels, test_labels, clients)
    classes = find_trained_classes(train, test)
    copies = count_clients_per_class(clients, classes_per_client, len(classes))
    rng, shuffler = make_legacy_rng(seed), random.Random(seed)

    sizes = [rng.uniform(MIN_RAW_SHARE, MAX_RAW_SHARE, size=copies) for _ in classes]
    shares = [(drawn / drawn.sum()).tolist() for drawn in sizes]
    owned = [(k, shares[k].pop()) for k in assign_classes(rng, clients, classes_per_client, copies, len(classes))]

    halves = []
    for name, labels in (("training", train), ("test", test)):
        pools = [where.tolist() for where in find_class_positions(labels, classes)]
        for pool in pools:
            shuffler.shuffle(pool)
        takes = [int(len(pools[k]) * share) for k, share in owned]
        if 0 in takes:
            k, _ = owned[takes.index(0)]
            raise InputError(
                f"class {classes[k]}: {len(pools[k])} {name} samples are too few for its {copies} clients; "
                "take fewer clients or fewer classes_per_client"
            )
        pieces = [pop_first(pools[k], take) for (k, _), take in zip(owned, takes, strict=True)]
        m = classes_per_client
        halves.append([np.concatenate(pieces[i * m : (i + 1) * m]) for i in range(clients)])
    return [TrainTestIndices(*parts) for parts in zip(*halves, strict=True)]


def count_clients_per_class(clients: int, classes_per_client: int, classes: int) -> int:
    """How many clients hold a class; the numbers must come out even."""
    if not 1 <= classes_per_client <= classes:
        raise InputError(
            f"classes_per_client is {classes_per_client}; there are {classes} classes: choose 1..{classes}"
        )
    wanted = classes_per_client * clients
    if wanted % classes:
        step = classes // gcd(classes, classes_per_client)
        below = clients - clients % step
        nearest = f"{below} or {below + step}" if below else f"{step}"
        raise InputError(
            f"{clients} clients of {classes_per_client} classes hold {wanted} shares, which the {classes} classes "
            f"cannot split evenly; the nearest number of clients that works is {nearest}"
        )
    return wanted // classes


def assign_classes(rng: np.random.RandomState, clients: int, each: int, copies: int, classes: int) -> list[int]:
    """The classes (by rank) of client 0, of client 1, ...: always one with most shares left, never one twice."""
    left = np.full(classes, copies)
    chosen: list[int] = []
    for _ in range(clients):
        free = np.ones(classes, dtype=bool)
        for _ in range(each):
            k = int(rng.choice(np.flatnonzero(free & (left == left[free].max()))))
            left[k] -= 1
            free[k] = False
            chosen.append(k)
    return chosen


def pop_first(pool: list[int], amount: int) -> Indices:
    """Remove the first ``amount`` of the pool and return them."""
    taken = np.array(pool[:amount], dtype=np.int64)
    del pool[:amount]
    return taken
