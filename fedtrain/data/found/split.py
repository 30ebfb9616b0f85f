"""Which of the found samples are for testing: as their source says, or stratified, seeded and without twins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedtrain.data.errors import DataError
from fedtrain.data.importing.train_test_split import interleave_classes, split_by_size
from fedtrain.data.partition.indices import Indices


@dataclass(frozen=True, eq=False)
class ClientLabels:
    """What of a client decides its split."""

    name: str
    labels: Indices
    twins: Indices
    """A number for each sample, the same for those that are the same byte by byte, whosever they are."""
    is_test: NDArray[np.bool_] | None = None
    """Its source's own split."""


@dataclass(frozen=True, eq=False)
class ClientSplit:
    """Places of a client's samples: to train on, in an order in which any first part has all classes; to test on."""

    train: Indices
    test: Indices


def split_clients(
    source: object, clients: Sequence[ClientLabels], classes: Sequence[str], share: float, seed: int
) -> tuple[list[ClientSplit], str, list[str]]:
    """The split of every client, who made it, and what must be said of it."""
    given = clients[0].is_test is not None
    twins = np.concatenate([client.twins for client in clients])
    times = np.bincount(twins)
    splits = []
    for client in clients:
        if len(client.labels) < 2:
            raise DataError(
                f"{source}: client {client.name} has 1 sample, and one to train on and one to test on are needed; "
                "give it more, or leave it out"
            )
        if client.is_test is not None:
            test = np.flatnonzero(client.is_test)
            rest = np.flatnonzero(~client.is_test)
            train = rest[interleave_classes(client.labels[rest], seed)]
        else:
            size = max(1, round(share * len(client.labels)))
            train, test = split_by_size(client.labels, client.twins, times[client.twins] == 1, size, seed)
        for part, indices in (("training", train), ("test", test)):
            if not len(indices):
                why = "" if given else ": of each class it has one, or they have twins, which are trained on"
                raise DataError(
                    f"{source}: client {client.name} has no {part} sample{why}; give it some, or leave it out"
                )
        splits.append(ClientSplit(train, test))
    _check_trained_classes(source, clients, splits, classes)
    return splits, *_describe_split(clients, splits, times, share, seed)


def _check_trained_classes(
    source: object, clients: Sequence[ClientLabels], splits: Sequence[ClientSplit], classes: Sequence[str]
) -> None:
    trained = np.zeros(len(classes), dtype=bool)
    for client, split in zip(clients, splits, strict=True):
        trained[client.labels[split.train]] = True
    for client, split in zip(clients, splits, strict=True):
        tested = client.labels[split.test]
        if len(unseen := tested[~trained[tested]]):
            raise DataError(
                f"{source}: client {client.name} tests class {classes[unseen[0]]!r}, of which nobody has a training "
                "sample; put some into the training part, or leave the class out"
            )


def _describe_split(
    clients: Sequence[ClientLabels], splits: Sequence[ClientSplit], times: Indices, share: float, seed: int
) -> tuple[str, list[str]]:
    """Who split, and a note for readers of results."""
    if clients[0].is_test is not None:
        trained = {int(t) for c, s in zip(clients, splits, strict=True) for t in c.twins[s.train]}
        leaked = sum(int(t) in trained for c, s in zip(clients, splits, strict=True) for t in c.twins[s.test])
        said = [f"{leaked} test samples are also trained on, byte by byte the same, as their source has it"]
        return "split of its source", said[: bool(leaked)]
    split = f"split by fedco2: stratified, {share:.0%} to test, seed {seed}"
    count = int((times[np.concatenate([client.twins for client in clients])] > 1).sum())
    note = f"the split into training and test is fedco2's own ({share:.0%} to test, stratified, seed {seed})"
    return split, [note + (f"; {count} samples that are byte by byte the same are all trained on" if count else "")]
