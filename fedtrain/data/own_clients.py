"""Clients whose data you bring as arrays: checked, and made a federation like any other."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fedtrain.data.client_data import ClientData, Federation, Preprocessing, Samples
from theory.errors import InputError

OWN_DATASET = "own"
"""What a configuration calls data that were given in Python."""
INPUT_TYPES = {str(kind): kind for kind in (torch.uint8, torch.float32, torch.float64)}
"""Inputs may be bytes, which are divided by 255, or numbers, which are taken as they are."""


def build_own_federation(clients: Sequence[ClientData], classes: Sequence[str] | None = None) -> Federation:
    """The federation of these clients; classes are named by their numbers unless ``classes`` names them."""
    if not clients:
        raise InputError("clients is empty; give at least one ClientData")
    names = [client.name for client in clients]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"two clients are called {twice!r}; give each a name of its own")
    like = clients[0].train.inputs
    top = -1
    for client in clients:
        for split, samples in (("train", client.train), ("val", client.val), ("test", client.test)):
            if samples is not None:
                _check_samples(f"client {client.name}, {split}", samples, like)
                top = max(top, int(samples.labels.max()) if len(samples) else -1)
    if classes is None:
        classes = [str(number) for number in range(top + 1)]
    if top >= len(classes):
        raise InputError(f"a label is {top}, and there are {len(classes)} classes, counted from 0; name all of them")
    return Federation(tuple(clients), tuple(classes), "your data", False, Preprocessing(), is_own=True)


def _check_samples(where: str, samples: Samples, like: torch.Tensor) -> None:
    inputs, labels = samples.inputs, samples.labels
    if labels.dtype != torch.int64 or labels.ndim != 1 or (len(labels) and int(labels.min()) < 0):
        raise InputError(f"{where}: labels must be class numbers, int64, one for each sample, counted from 0")
    if len(inputs) != len(labels):
        raise InputError(f"{where}: {len(inputs)} inputs and {len(labels)} labels; give one label for each input")
    if str(inputs.dtype) not in INPUT_TYPES:
        raise InputError(f"{where}: inputs are {inputs.dtype}; give {', '.join(INPUT_TYPES)}")
    if inputs.shape[1:] != like.shape[1:] or inputs.dtype != like.dtype:
        raise InputError(
            f"{where}: inputs are {inputs.dtype} of shape {tuple(inputs.shape[1:])}, those of the first client "
            f"{like.dtype} of shape {tuple(like.shape[1:])}; give all clients inputs of one kind"
        )
    if inputs.is_floating_point() and not bool(inputs.isfinite().all()):
        raise InputError(f"{where}: an input is not finite; clean the data first")
