"""Where data live, ``<folder>/<data set>/<domain>.safetensors``, and the pools that they give."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path

import platformdirs
import torch
from torch import Tensor

from fedtrain.data.client_data import SamplePool
from fedtrain.data.datasets import DatasetInfo, get_dataset_info
from fedtrain.data.errors import DataError
from fedtrain.data.partition.indices import Indices
from fedtrain.data.readers.labelled_images import Split
from fedtrain.data.storage import domain_file

DOMAIN_FILE_SUFFIX = ".safetensors"
OWN_SPLIT_PREFIX = "split by fedco2"
"""How the account of a split begins that the source of the data does not have."""


def resolve_data_dir(given: Path | None = None) -> Path:
    """The folder of all data: as given, else $FEDCO2_DATA, else the user's own folder for data."""
    folder = given or os.environ.get("FEDCO2_DATA") or platformdirs.user_data_path("fedco2", appauthor=False)
    return Path(os.path.expanduser(folder)).absolute()


def get_domain_path(name: str, domain: str, root: Path) -> Path:
    """The file of a domain, whether it is there or not."""
    return root / name / f"{domain}{DOMAIN_FILE_SUFFIX}"


def read_stored_domains(name: str, root: Path) -> dict[str, domain_file.DomainInfo]:
    """What is said of each domain that is there, in the catalogue's order; images are not looked at."""
    places = {domain: get_domain_path(name, domain, root) for domain in get_dataset_info(name).domains}
    return {domain: domain_file.read_domain_info(path) for domain, path in places.items() if path.exists()}


def list_stored_titles(name: str, root: Path) -> dict[str, str]:
    """Domains that are there, and their titles."""
    return {domain: about.title for domain, about in read_stored_domains(name, root).items()}


def collect_notes(name: str, root: Path, wanted: Sequence[str] | None = None) -> tuple[str, ...]:
    """What a reader of results must know: which domains are not the published ones, whose split is ours."""
    titles = get_dataset_info(name).domains
    found = [about for domain, about in read_stored_domains(name, root).items() if wanted is None or domain in wanted]
    other = [
        f"{about.title} stands for {titles[about.domain]}" for about in found if about.title != titles[about.domain]
    ]
    ours = [titles[about.domain] for about in found if about.split.startswith(OWN_SPLIT_PREFIX)]
    return (*other, *([f"the split into training and test is fedco2's own: {', '.join(ours)}"] if ours else []))


def load_real_pools(name: str, root: Path, wanted: Sequence[str] | None = None) -> list[SamplePool]:
    """All domains in the catalogue's order, or these. Labels are checked now, images when they are taken."""
    data, found = get_dataset_info(name), read_stored_domains(name, root)
    wanted = list(data.domains) if wanted is None else wanted
    if missing := [domain for domain in wanted if domain not in found]:
        raise DataError(
            f"{root / name}: {data.title} lacks {', '.join(missing)}; "
            f"fetch it: fedco2 data get {name}, or import your files: fedco2 data add {name} PATH"
        )
    return [build_stored_pool(data, found[domain], get_domain_path(name, domain, root)) for domain in wanted]


def build_stored_pool(data: DatasetInfo, about: domain_file.DomainInfo, path: Path) -> SamplePool:
    """The pool of a domain that is in the store."""
    mapped = cache(
        partial(domain_file.read_images, path, data=data)
    )  # the checksum is verified once, not at every turn

    def take(part: Split, indices: Indices) -> Tensor:
        return mapped(part)[torch.from_numpy(indices)]

    train, test = (domain_file.read_labels(path, part, data) for part in domain_file.SPLITS)
    return SamplePool(about.domain, about.title, train, test, take, data.input_shape, getattr(torch, data.input_type))
