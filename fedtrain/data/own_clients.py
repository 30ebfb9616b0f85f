"""Clients whose data you bring as arrays: checked, and made a federation like any other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import torch

from fedtrain.data.client_data import ClientData, Federation, Preprocessing, Samples
from fedtrain.data.found.names import check_client_names, check_name
from theory.errors import InputError

OWN_DATASET = "own"
"""What a configuration calls data that were given in Python."""
INPUT_TYPES = {str(kind): kind for kind in (torch.uint8, torch.float32, torch.float64)}
"""Inputs may be bytes, which are divided by 255, or numbers, which are taken as they are."""

WHOLE_TYPES = (torch.int8, torch.int16, torch.int32, torch.uint8)


def build_own_federation(clients: Sequence[ClientData], classes: Sequence[str] | None = None) -> Federation:
    """The federation of these clients; classes are named by their numbers unless ``classes`` names them."""
    if not clients:
        raise InputError("clients is empty; give at least one ClientData")
    for client in clients:
        _check_kind(client)
    names = [client.name for client in clients]
    if twice := next((name for name, count in Counter(names).items() if count > 1), None):
        raise InputError(f"two clients are called {twice!r}; give each a name of its own")
    check_client_names("clients", names)
    clients = [_convert_labels(client) for client in clients]
    like = clients[0].train.inputs
    for client in clients:
        for split, samples in _list_samples(client):
            _check_samples(f"client {client.name}, {split}", samples, like)
    known = _name_classes(clients, classes)
    return Federation(tuple(clients), known, "your data", False, Preprocessing(), is_own=True)


def _check_kind(client: ClientData) -> None:
    """Refuse arrays where samples belong, which a type checker would have told."""
    if not isinstance(client, ClientData):
        raise InputError(f"clients holds a {type(client).__name__}; make each with ClientData.from_arrays")
    for split, samples in _list_samples(client):
        if not isinstance(samples, Samples):
            raise InputError(
                f"client {client.name}, {split}: a {type(samples).__name__} where Samples belong; for arrays: "
                "ClientData.from_arrays(name, train=(inputs, labels), test=(inputs, labels))"
            )


def _list_samples(client: ClientData) -> list[tuple[str, Samples]]:
    parts = (("train", client.train), ("val", client.val), ("test", client.test))
    return [(split, samples) for split, samples in parts if samples is not None]


def _convert_labels(client: ClientData) -> ClientData:
    """Whole numbers of any width will do."""
    return replace(client, **{split: _widen(samples) for split, samples in _list_samples(client)})  # type: ignore[arg-type]


def _widen(samples: Samples) -> Samples:
    labels = samples.labels
    return Samples(samples.inputs, labels.long()) if labels.dtype in WHOLE_TYPES else samples


def _name_classes(clients: Sequence[ClientData], classes: Sequence[str] | None) -> tuple[str, ...]:
    """The names given, or numbers; labels must count from 0, and one that only test data have cannot be learned."""
    seen = {
        split: {
            label for client in clients for at, s in _list_samples(client) if at == split for label in s.labels.tolist()
        }
        for split in ("train", "val", "test")
    }
    everything = set().union(*seen.values())
    if classes is not None and (twice := next((name for name in classes if list(classes).count(name) > 1), None)):
        raise InputError(f"two classes are called {twice!r}; give each a name of its own")
    for name in classes or ():
        check_name("classes", "class", name)
    top, least = max(everything, default=-1), min(everything, default=0)
    count = len(classes) if classes is not None else top + 1
    if least == 1 and (classes is None or top == count):
        raise InputError(
            f"labels go from 1 to {top}, and classes are counted from 0; subtract 1 from all labels"
            + (f", or name {top + 1} classes if class 0 exists and has no sample" if classes is None else "")
        )
    if top >= count:
        raise InputError(f"a label is {top}, and {count} classes are named, counted from 0; name all of them")
    if count < 2:
        raise InputError("all labels are 0; at least two classes are needed: name them if more exist")
    if unseen := (seen["test"] | seen["val"]) - seen["train"]:
        raise InputError(
            f"class {min(unseen)} is tested, and no client has a training sample of it; give one, or leave it out"
        )
    return tuple(classes) if classes is not None else tuple(str(number) for number in range(count))


def _check_samples(where: str, samples: Samples, like: torch.Tensor) -> None:
    inputs, labels = samples.inputs, samples.labels
    if not len(labels):
        raise InputError(f"{where}: there is no sample; give it some, or leave the client out")
    if inputs.ndim < 2:
        raise InputError(
            f"{where}: inputs have shape {tuple(inputs.shape)}; give a row for each sample, (n, d) or more"
        )
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
        place = (~inputs.isfinite()).nonzero()[0].tolist()
        value = inputs[tuple(place)].item()
        raise InputError(
            f"{where}: X[{', '.join(map(str, place))}] is {value}; replace or drop values that are not finite"
        )
