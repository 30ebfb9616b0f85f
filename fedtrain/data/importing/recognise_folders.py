"""Recognise a domain by a folder: FedBN's parts and lists, folders of classes, with or without train and test."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from fedtrain.data.datasets import DatasetInfo
from fedtrain.data.errors import DataError
from fedtrain.data.importing.candidate import SHUFFLED_ORDER, DomainCandidate, RawDomain, build_split_candidate
from fedtrain.data.importing.decode import decode_images
from fedtrain.data.importing.naming import guess_domain, list_path_names
from fedtrain.data.progress import Progress
from fedtrain.data.readers import LabelledImages, read_fedbn_digits, read_image_list
from fedtrain.data.readers.class_folders import list_image_files
from fedtrain.data.storage.store import OWN_SPLIT_PREFIX

FEDBN_SPLIT = "FedBN's split, in its order"


def recognise_folder(data: DatasetInfo, folder: Path, top: Path) -> DomainCandidate | None:
    """The domain that a folder holds, or None."""
    if data.name == "digits" and (folder / "test.pkl").is_file() and (folder / "partitions").is_dir():
        files = (folder / "test.pkl", *sorted((folder / "partitions").glob("train_part*.pkl")))
        return build_split_candidate(
            guess_domain(data, list_path_names(folder, top)),
            folder,
            files,
            partial(read_fedbn_digits, folder),
            FEDBN_SPLIT,
        )
    if all(_has_classes(data, folder / part) for part in ("train", "test")):
        return DomainCandidate(
            guess_domain(data, list_path_names(folder, top)), folder, (), partial(_read_split_folders, data, folder)
        )
    if _has_classes(data, folder):
        named = folder.parent if folder.name.lower() == "images" else folder
        names = list_path_names(folder, top) if data.name == "digits" else [named.name]
        return DomainCandidate(guess_domain(data, names), folder, (), partial(_read_unsplit_folder, data, folder))
    return None


def recognise_list(data: DatasetInfo, train: Path, tops: list[Path]) -> DomainCandidate | None:
    """FedBN's ``amazon_train.pkl``, with ``amazon_test.pkl`` beside it and images below one of several folders."""
    domain = train.name.removesuffix("_train.pkl").lower()
    if domain not in data.domains or not train.name.endswith("_train.pkl"):
        return None
    test = train.with_name(train.name.replace("_train.pkl", "_test.pkl"))
    roots = [train.parent, *list(train.parent.parents)[:2], *tops]

    def read(progress: Progress) -> RawDomain:
        first, second = (read_listed_images(data, path, roots, progress) for path in (train, test))
        return RawDomain(first, second, FEDBN_SPLIT, keep_order=True)

    return DomainCandidate(domain, train, (train, test), read)


def _has_classes(data: DatasetInfo, folder: Path) -> bool:
    """Most classes are there; a missing one is said later, by name."""
    return sum((folder / name).is_dir() for name in data.classes) > len(data.classes) / 2


def _read_unsplit_folder(data: DatasetInfo, folder: Path, progress: Progress) -> RawDomain:
    return RawDomain(
        read_class_folders(data, folder, progress),
        None,
        f"{OWN_SPLIT_PREFIX}: stratified, equal images on one side, seed 0",
    )


def _read_split_folders(data: DatasetInfo, folder: Path, progress: Progress) -> RawDomain:
    train, test = (read_class_folders(data, folder / part, progress) for part in ("train", "test"))
    return RawDomain(train, test, SHUFFLED_ORDER)


def read_class_folders(data: DatasetInfo, folder: Path, progress: Progress) -> LabelledImages:
    """Images of a folder of classes."""
    files = list_image_files(folder, data.classes)
    return decode_images(
        [path for path, _ in files], [label for _, label in files], data.image_size, folder.name, progress
    )


def read_listed_images(data: DatasetInfo, path: Path, roots: list[Path], progress: Progress) -> LabelledImages:
    """Images of a list. Archives differ in the folders that they put before a domain's, so some may be dropped."""
    index = read_image_list(path)
    if unknown := sorted(set(index.labels) - set(data.classes)):
        raise DataError(f"{path}: unknown class {unknown[0][:80]!r}; the classes are {', '.join(data.classes)}")
    parts = Path(index.paths[0]).parts
    for drop in range(max(1, len(parts) - 2)):
        for root in roots:
            if root.joinpath(*parts[drop:]).is_file():
                paths = [root.joinpath(*Path(name).parts[drop:]) for name in index.paths]
                labels = [data.classes.index(label) for label in index.labels]
                return decode_images(paths, labels, data.image_size, path.name, progress)
    raise DataError(f"{path}: its first image {index.paths[0]} is not there; unpack the images beside the list")
