"""Look through files and folders for domains of a data set."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from fedtrain.data.datasets import DatasetInfo
from fedtrain.data.importing.candidate import DomainCandidate
from fedtrain.data.importing.recognise_files import CIFAR_READERS, build_cifar_candidate, recognise_file
from fedtrain.data.importing.recognise_folders import recognise_folder, recognise_list

MAX_SCAN_DEPTH = 4
"""Levels of folders that are looked into."""


def find_candidates(data: DatasetInfo, tops: list[Path]) -> list[DomainCandidate]:
    """All domains found, each file or folder once. A list of images goes before the folder of the same images."""
    found: dict[Path, DomainCandidate] = {}
    for top in tops:
        for one in _scan_below(data, top, tops):
            found.setdefault(one.path, one)
    listed = {one.domain for one in found.values() if one.path.name.endswith("_train.pkl")}
    return [one for one in found.values() if one.domain not in listed or one.path.name.endswith("_train.pkl")]


def _scan_below(data: DatasetInfo, top: Path, tops: list[Path]) -> Iterator[DomainCandidate]:
    if not top.is_dir():
        if (one := _recognise_path(data, top, top, tops)) is not None:
            yield one
        elif data.name in CIFAR_READERS:
            yield build_cifar_candidate(data, top)
        return
    for name, folders, files in os.walk(top):
        folder = Path(name)
        if (here := recognise_folder(data, folder, top)) is not None:
            yield here
            folders.clear()  # what is below belongs to it
        elif len(folder.relative_to(top).parts) >= MAX_SCAN_DEPTH:
            folders.clear()
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__MACOSX")))
        for file in sorted(files):
            if (one := _recognise_path(data, folder / file, top, tops)) is not None:
                yield one


def _recognise_path(data: DatasetInfo, path: Path, top: Path, tops: list[Path]) -> DomainCandidate | None:
    return recognise_file(data, path, top) or recognise_list(data, path, tops)
