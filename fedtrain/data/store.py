"""Where data live, ``<folder>/<data set>/<domain>.safetensors``, and the pools that they give."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path

import platformdirs
import torch
from torch import Tensor

from fedtrain.data import domain_file
from fedtrain.data.catalogue import Dataset, dataset
from fedtrain.data.clients import Pool
from fedtrain.data.errors import DataError
from fedtrain.data.readers.images import Split
from fedtrain.data.skews.share import Indices

SUFFIX = ".safetensors"
OURS = "split by fedco2"
"""How the account of a split begins that the source of the data does not have."""


def data_dir(given: Path | None = None) -> Path:
    """The folder of all data: as given, else $FEDCO2_DATA, else the user's own folder for data."""
    told = given or os.environ.get("FEDCO2_DATA") or platformdirs.user_data_path("fedco2", appauthor=False)
    return Path(os.path.expanduser(told)).absolute()


def place(name: str, domain: str, root: Path) -> Path:
    """The file of a domain, whether it is there or not."""
    return root / name / f"{domain}{SUFFIX}"


def known(name: str, root: Path) -> dict[str, domain_file.About]:
    """What is said of each domain that is there, in the catalogue's order; images are not looked at."""
    places = {domain: place(name, domain, root) for domain in dataset(name).domains}
    return {domain: domain_file.about(path) for domain, path in places.items() if path.exists()}


def present(name: str, root: Path) -> dict[str, str]:
    """Domains that are there, and their titles."""
    return {domain: about.title for domain, about in known(name, root).items()}


def notes(name: str, root: Path, wanted: Sequence[str] | None = None) -> tuple[str, ...]:
    """What a reader of results must know: which domains are not the published ones, whose split is ours."""
    titles = dataset(name).domains
    found = [about for domain, about in known(name, root).items() if wanted is None or domain in wanted]
    other = [
        f"{about.title} stands for {titles[about.domain]}" for about in found if about.title != titles[about.domain]
    ]
    ours = [titles[about.domain] for about in found if about.split.startswith(OURS)]
    return (*other, *([f"the split into training and test is fedco2's own: {', '.join(ours)}"] if ours else []))


def real_pools(name: str, root: Path, wanted: Sequence[str] | None = None) -> list[Pool]:
    """All domains in the catalogue's order, or these. Labels are checked now, images when they are taken."""
    data, found = dataset(name), known(name, root)
    wanted = list(data.domains) if wanted is None else wanted
    if missing := [domain for domain in wanted if domain not in found]:
        raise DataError(
            f"{root / name}: {data.title} lacks {', '.join(missing)}; "
            f"fetch it: fedco2 data get {name}, or import your files: fedco2 data add {name} PATH"
        )
    return [_pool(data, found[domain], place(name, domain, root)) for domain in wanted]


def _pool(data: Dataset, about: domain_file.About, path: Path) -> Pool:
    mapped = cache(partial(domain_file.images, path, data=data))  # the checksum is verified once, not at every turn

    def take(part: Split, indices: Indices) -> Tensor:
        return mapped(part)[torch.from_numpy(indices)]

    train, test = (domain_file.labels(path, part, data) for part in domain_file.PARTS)
    return Pool(about.domain, about.title, train, test, take, data.size)
