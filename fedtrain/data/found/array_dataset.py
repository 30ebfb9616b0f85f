"""Arrays as a data set: X, y, owner of an npz file, and names, coarse classes and a split if they are there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtrain.config.data import DataSettings
from fedtrain.data.datasets import DatasetInfo
from fedtrain.data.errors import DataError
from fedtrain.data.found.names import check_client_names, check_name, sort_names
from fedtrain.data.found.pools import ONE_CLIENT, FoundDataset, build_array_pools, parse_part
from fedtrain.data.found.split import ClientLabels, split_clients
from fedtrain.data.partition.indices import Indices
from fedtrain.data.readers.npz import read_arrays
from fedtrain.data.scaling import measure_scaling

ARRAYS = ("X", "y", "owner", "split", "clients", "classes", "superclasses")
PARTED = (("x_train", "y_train", "x_test", "y_test"), ("train_images", "train_labels", "test_images", "test_labels"))
"""What others call X and y of the two parts: Keras and MedMNIST."""
MAX_CLASSES = 10_000
PIXEL_MEAN, PIXEL_STD = (0.5,), (0.5,)
"""Pixels between 0 and 1 become numbers between -1 and 1."""


def find_array_dataset(path: Path, settings: DataSettings) -> FoundDataset:
    """What is in an npz: X (n, ...), y (n), and as far as they are there owner (n), split (n), clients, classes."""
    arrays = _join_parts(path, read_arrays(path, (*ARRAYS, *PARTED[0], *PARTED[1])))
    for name in ("X", "y"):
        if name not in arrays:
            raise DataError(f"{path}: it has no array {name}; it needs X (n, ...) and y (n), and owner (n) for clients")
    X = arrays["X"]
    n = len(X) if X.ndim else 0
    if X.ndim < 2 or not n or not X[0].size:
        raise DataError(
            f"{path}: X has shape {X.shape}; give it a row for each sample, (n, d), (n, H, W) or (n, H, W, 3)"
        )
    for name in ("y", "owner", "split"):
        if name in arrays and arrays[name].shape != (n,):
            raise DataError(f"{path}: {name} has shape {arrays[name].shape}, and X has {n} rows; give one for each")
    labels, classes = _read_labels(path, arrays["y"], arrays.get("classes"))
    clients, owner = _read_owners(path, arrays.get("owner", np.zeros(n, np.int64)), arrays)
    x = _shape_inputs(path, X, [clients[i] for i in owner.tolist()])
    is_test = None if "split" not in arrays else _read_split(path, arrays["split"])
    twins = _group_rows(x, labels)
    rows = [np.flatnonzero(owner == i) for i in range(len(clients))]
    found = [
        ClientLabels(name, labels[at], twins[at], None if is_test is None else is_test[at])
        for name, at in zip(clients, rows, strict=True)
    ]
    splits, split, notes = split_clients(path, found, classes, settings.test_share, settings.split_seed)
    pixels = x.dtype == np.uint8
    train = np.concatenate([at[one.train] for at, one in zip(rows, splits, strict=True)])
    info = DatasetInfo(
        path.stem,
        path.stem,
        {name: name for name in clients},
        tuple(classes),
        x.shape[1:],
        PIXEL_MEAN if pixels else (0.0,),
        PIXEL_STD if pixels else (1.0,),
        input_type="uint8" if pixels else "float32",
        scaling=measure_scaling(x[train], np.ones(x.shape[1], bool)) if x.ndim == 2 else None,
        superclasses=_read_superclasses(path, arrays.get("superclasses"), len(classes)),
    )
    return FoundDataset(info, build_array_pools(info, x, labels, rows, splits), split, tuple(notes))


def _join_parts(path: Path, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """X, y and split of arrays that are there in two parts."""
    for names in PARTED:
        if "X" in arrays or not all(name in arrays for name in names):
            continue
        x, y, x_test, y_test = (arrays[name] for name in names)
        if x.shape[1:] != x_test.shape[1:] or not x.ndim or x.dtype != x_test.dtype:
            raise DataError(
                f"{path}: {names[0]} is {x.dtype} of shape {x.shape}, and {names[2]} {x_test.dtype} of {x_test.shape}; "
                "give both samples of one kind"
            )
        parts = np.repeat(["train", "test"], [len(x), len(x_test)])
        labels = np.concatenate([y.reshape(-1), y_test.reshape(-1)])
        return {**arrays, "X": np.concatenate([x, x_test]), "y": labels, "split": parts}
    return arrays


def _read_superclasses(path: Path, given: NDArray[Any] | None, classes: int) -> tuple[int, ...]:
    """The coarse class of each class, counted from 0."""
    if given is None:
        return ()
    if given.shape != (classes,):
        raise DataError(
            f"{path}: superclasses has shape {given.shape}, and there are {classes} classes; "
            "give the coarse class of each"
        )
    return tuple(np.unique(given, return_inverse=True)[1].tolist())


def _shape_inputs(path: Path, X: NDArray[Any], whose: list[str]) -> NDArray[Any]:
    """Bytes with height and width are images (n, C, H, W); all else is float32, of its own shape."""
    if X.dtype.kind == "U":
        raise DataError(f"{path}: X holds text; give numbers, or a CSV file with columns of categories")
    if X.dtype == np.uint8 and X.ndim in (3, 4):
        images = (
            X[:, None] if X.ndim == 3 else X if X.shape[1] in (1, 3) and X.shape[3] > 3 else X.transpose(0, 3, 1, 2)
        )
        if images.shape[1] not in (1, 3):
            raise DataError(f"{path}: X has shape {X.shape}; images of bytes are (n, H, W), (n, H, W, 1 or 3)")
        return np.ascontiguousarray(images)
    with np.errstate(over="ignore"):
        x = X.astype(np.float32)
    if (bad := np.argwhere(~np.isfinite(x))).size:
        place = ", ".join(map(str, bad[0].tolist()))
        value = X[tuple(bad[0])]
        raise DataError(
            f"{path}: X[{place}] (client {whose[bad[0][0]]}) is {value}; replace or drop values that are not finite "
            "numbers of single precision"
        )
    return x


def _read_labels(path: Path, y: NDArray[Any], named: NDArray[Any] | None) -> tuple[Indices, list[str]]:
    """Class numbers and names; without names classes are called by their labels."""
    if y.dtype.kind == "f" and not (np.isfinite(y) & (np.floor(y) == y)).all():
        bad = int(np.flatnonzero(~(np.isfinite(y) & (np.floor(y) == y)))[0])
        raise DataError(f"{path}: y[{bad}] is {y[bad]}; class labels are whole numbers or text")
    if named is not None:
        classes = [str(name) for name in np.atleast_1d(named).tolist()]
        if y.dtype.kind == "U" or len(set(classes)) < len(classes):
            raise DataError(f"{path}: classes names the numbers in y, one name each; leave one of the two as it is")
        if y.min() < 0 or y.max() >= len(classes):
            odd = y.max() if y.max() >= len(classes) else y.min()
            hint = ": subtract 1 from y" if y.min() == 1 and y.max() == len(classes) else ""
            raise DataError(f"{path}: a label in y is {odd}, and classes names {len(classes)}, counted from 0{hint}")
        labels = y.astype(np.int64)
    else:
        values, labels = np.unique(y, return_inverse=True)
        words = [str(v) if y.dtype.kind == "U" else str(int(v)) for v in values.tolist()]
        order = sort_names(words) if y.dtype.kind == "U" else words
        labels = np.array([order.index(word) for word in words], dtype=np.int64)[labels.reshape(-1)]
        classes = order
    if not 2 <= len(classes) <= MAX_CLASSES:
        raise DataError(f"{path}: y has {len(classes)} classes; give it from 2 to {MAX_CLASSES}")
    for name in classes:
        check_name(path, "class", name)
    return labels, classes


def _read_owners(path: Path, owner: NDArray[Any], arrays: dict[str, NDArray[Any]]) -> tuple[list[str], Indices]:
    """Names of clients, and whose each row is; ``clients`` names the numbers of ``owner``."""
    if "owner" not in arrays:
        return [ONE_CLIENT], owner
    values, number = np.unique(owner, return_inverse=True)
    names = [str(v) for v in values.tolist()]
    if owner.dtype.kind == "f":
        if not (np.isfinite(values) & (np.floor(values) == values)).all():
            raise DataError(f"{path}: owner holds numbers that are not whole; name clients by whole numbers or text")
        names = [str(int(v)) for v in values.tolist()]
    if "clients" in arrays:
        given = [str(name) for name in np.atleast_1d(arrays["clients"]).tolist()]
        if owner.dtype.kind == "U" or values.min() < 0 or values.max() >= len(given):
            raise DataError(f"{path}: clients names {len(given)} clients, which owner counts from 0; mend one of them")
        names = [given[int(v)] for v in values.tolist()]
    check_client_names(path, names)
    if len(set(names)) < len(names):
        raise DataError(f"{path}: two clients have the same name in clients; rename one")
    return names, number.reshape(-1)


def _read_split(path: Path, split: NDArray[Any]) -> NDArray[np.bool_]:
    if split.dtype.kind != "U":
        raise DataError(f"{path}: split holds {split.dtype}; write the texts train and test")
    parts = {word: parse_part(word) for word in set(split.tolist())}
    if odd := next((word for word, part in parts.items() if part is None), None):
        raise DataError(f"{path}: split holds {odd!r}; write train or test")
    return np.array([parts[word] == "test" for word in split.tolist()])


def _group_rows(x: NDArray[Any], labels: Indices) -> Indices:
    """A number for each sample, the same for those with equal bytes."""
    flat = np.ascontiguousarray(x).reshape(len(x), -1)
    rows = np.concatenate([flat.view(np.uint8).reshape(len(x), -1), labels[:, None].view(np.uint8)], axis=1)
    keys = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1])))
    return np.unique(keys, return_inverse=True)[1].reshape(-1)
