"""Real data or the stand-in: which of them a request means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedtrain.config.data import DataSettings
from fedtrain.data.client_data import SamplePool
from fedtrain.data.datasets import DatasetInfo, get_dataset_info
from fedtrain.data.errors import DataError
from fedtrain.data.standin import build_standin_pools
from fedtrain.data.storage import store
from theory.errors import InputError

DATA_SOURCES = ("auto", "real", "standin")


@dataclass(frozen=True, eq=False)
class LoadedDataset:
    """The domains of a data set, and what to say about them."""

    pools: list[SamplePool]
    title: str
    standin: bool
    notes: tuple[str, ...]

    def without_images(self) -> LoadedDataset:
        """The same for a look ahead: clients get inputs of the right shape, and not an image is read or drawn."""
        return replace(self, pools=[pool.without_images() for pool in self.pools])


def load_dataset(settings: DataSettings, root: Path | None = None, only: str | None = None) -> LoadedDataset:
    """The data that the settings mean: with ``auto`` the real ones if every domain is there, else the stand-in.

    Some domains without the others are the stand-in too, with a note of what is missing. Files that are there but
    broken are an error, never a reason for the stand-in. With ``only``, no other domain is looked for.
    """
    if settings.source not in DATA_SOURCES:
        raise InputError(f"unknown source {settings.source!r}; choose one of {', '.join(DATA_SOURCES)}")
    data, folder = get_dataset_info(settings.dataset), store.resolve_data_dir(root)
    wanted = list(data.domains) if only is None else [only]
    if settings.source == "standin":
        return load_standin_dataset(data, wanted)
    there = store.list_stored_titles(data.name, folder)
    try:
        return load_real_dataset(data, folder, wanted)
    except DataError as error:
        if settings.source == "real" or all(domain in there for domain in wanted):
            raise
        return load_standin_dataset(data, wanted, *[f"real data are there in part: {error}"] * bool(there))


def load_real_dataset(data: DatasetInfo, folder: Path, wanted: Sequence[str]) -> LoadedDataset:
    """Real data under their honest name: a data set of one pool has that one's, which says if it is a subset."""
    pools = store.load_real_pools(data.name, folder, wanted)
    title = pools[0].title if len(data.domains) == 1 else data.title
    return LoadedDataset(pools, title, False, store.collect_notes(data.name, folder, wanted))


def load_standin_dataset(data: DatasetInfo, wanted: Sequence[str], *why: str) -> LoadedDataset:
    """The stand-in, under its own name."""
    note = f"stand-in images, drawn by fedco2: results say nothing about the real {data.title}"
    pools = [pool for pool in build_standin_pools(data.name) if pool.domain in wanted]
    return LoadedDataset(pools, f"{data.title} (stand-in)", True, (note, *why))
