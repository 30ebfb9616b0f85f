"""Recognise a domain by a single file of its own: npz, SVHN's mat, USPS's LIBSVM text, MNIST's idx, CIFAR's archive."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fedtrain.data.catalogue import Dataset
from fedtrain.data.errors import DataError
from fedtrain.data.importing.found import KEPT, Found, parts_of
from fedtrain.data.importing.naming import domain_of, trail
from fedtrain.data.readers import read_cifar10, read_cifar100, read_libsvm, read_mat, read_mnist, read_npz
from fedtrain.data.readers.images import LabelledImages

MAT = re.compile(r"(synth_)?(train|test)_32x32\.mat", re.I)
USPS = re.compile(r"usps(\.t)?(\.bz2)?", re.I)
IDX = re.compile(r"(train|t10k)-(images|labels)[-.]idx[13]-ubyte(\.gz)?")
CIFAR = {"cifar10": read_cifar10, "cifar100": read_cifar100}
CIFAR_FILES = {"cifar10": ("test_batch", "test_batch.bin"), "cifar100": ("test", "test.bin")}


def recognise_file(data: Dataset, path: Path, top: Path) -> Found | None:
    """The domain that a file belongs to, with the file of its other part beside it; None if it tells nothing."""
    name = path.name
    if path.suffix.lower() == ".npz":
        read = partial(read_npz, path, classes=len(data.classes))
        return parts_of(domain_of(data, trail(path, top)), path, (path,), read, KEPT if data.name in CIFAR else "")
    if data.name in CIFAR:
        return cifar(data, path.parent) if name in CIFAR_FILES[data.name] else None
    if data.name != "digits":
        return None
    if path == top and path.suffix.lower() in (".h5", ".hdf5"):
        raise DataError(f"{path}: HDF5 is not read; give usps.bz2 and usps.t.bz2 (LIBSVM), or an npz")
    if match := MAT.fullmatch(name):
        prefix = match[1] or ""
        train, test = (path.with_name(f"{prefix}{part}_32x32.mat") for part in ("train", "test"))
        return _pair("synthdigits" if prefix else "svhn", train, test, read_mat)
    if match := USPS.fullmatch(name):
        end = match[2] or ""
        return _pair("usps", path.with_name(f"usps{end}"), path.with_name(f"usps.t{end}"), read_libsvm)
    if IDX.fullmatch(name):
        near = [path.name, *(parent.name for parent in list(path.parents)[:3])]
        files = tuple(sorted(file for file in path.parent.iterdir() if IDX.fullmatch(file.name)))
        return parts_of(domain_of(data, [*near, "mnist"]), path.parent, files, partial(read_mnist, path.parent))
    return None


def cifar(data: Dataset, path: Path) -> Found:
    """CIFAR as its archive, read in place, or as the folder of its batches."""
    files = (path,) if path.is_file() else ()
    return parts_of(data.name, path, files, partial(CIFAR[data.name], path), KEPT)


def _pair(domain: str, train: Path, test: Path, read: Callable[[Path], LabelledImages]) -> Found:
    return parts_of(domain, train, (train, test), lambda part: read(train if part == "train" else test))
