"""Recognise a domain by a single file of its own: npz, SVHN's mat, USPS's LIBSVM text, MNIST's idx, CIFAR's archive."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fedtrain.data.datasets import DatasetInfo
from fedtrain.data.errors import DataError
from fedtrain.data.importing.candidate import SOURCE_ORDER, DomainCandidate, build_split_candidate
from fedtrain.data.importing.naming import guess_domain, list_path_names
from fedtrain.data.readers import read_cifar10, read_cifar100, read_libsvm, read_mat, read_mnist, read_npz
from fedtrain.data.readers.labelled_images import LabelledImages

MAT_PATTERN = re.compile(r"(synth_)?(train|test)_32x32\.mat", re.I)
USPS_PATTERN = re.compile(r"usps(\.t)?(\.bz2)?", re.I)
IDX_PATTERN = re.compile(r"(train|t10k)-(images|labels)[-.]idx[13]-ubyte(\.gz)?")
CIFAR_READERS = {"cifar10": read_cifar10, "cifar100": read_cifar100}
CIFAR_FILES = {"cifar10": ("test_batch", "test_batch.bin"), "cifar100": ("test", "test.bin")}


def recognise_file(data: DatasetInfo, path: Path, top: Path) -> DomainCandidate | None:
    """The domain that a file belongs to, with the file of its other part beside it; None if it tells nothing."""
    name = path.name
    if path.suffix.lower() == ".npz":
        read = partial(read_npz, path, classes=len(data.classes))
        return build_split_candidate(
            guess_domain(data, list_path_names(path, top)),
            path,
            (path,),
            read,
            SOURCE_ORDER if data.name in CIFAR_READERS else "",
        )
    if data.name in CIFAR_READERS:
        return build_cifar_candidate(data, path.parent) if name in CIFAR_FILES[data.name] else None
    if data.name != "digits":
        return None
    if path == top and path.suffix.lower() in (".h5", ".hdf5"):
        raise DataError(f"{path}: HDF5 is not read; give usps.bz2 and usps.t.bz2 (LIBSVM), or an npz")
    if match := MAT_PATTERN.fullmatch(name):
        prefix = match[1] or ""
        train, test = (path.with_name(f"{prefix}{part}_32x32.mat") for part in ("train", "test"))
        return _build_pair_candidate("synthdigits" if prefix else "svhn", train, test, read_mat)
    if match := USPS_PATTERN.fullmatch(name):
        end = match[2] or ""
        return _build_pair_candidate("usps", path.with_name(f"usps{end}"), path.with_name(f"usps.t{end}"), read_libsvm)
    if IDX_PATTERN.fullmatch(name):
        near = [path.name, *(parent.name for parent in list(path.parents)[:3])]
        files = tuple(sorted(file for file in path.parent.iterdir() if IDX_PATTERN.fullmatch(file.name)))
        return build_split_candidate(
            guess_domain(data, [*near, "mnist"]), path.parent, files, partial(read_mnist, path.parent)
        )
    return None


def build_cifar_candidate(data: DatasetInfo, path: Path) -> DomainCandidate:
    """CIFAR as its archive, read in place, or as the folder of its batches."""
    files = (path,) if path.is_file() else ()
    return build_split_candidate(data.name, path, files, partial(CIFAR_READERS[data.name], path), SOURCE_ORDER)


def _build_pair_candidate(
    domain: str, train: Path, test: Path, read: Callable[[Path], LabelledImages]
) -> DomainCandidate:
    return build_split_candidate(domain, train, (train, test), lambda part: read(train if part == "train" else test))
