"""Real data or the stand-in: which of them a request means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedtrain.data import store
from fedtrain.data.catalogue import Dataset, dataset
from fedtrain.data.clients import Pool
from fedtrain.data.errors import DataError
from fedtrain.data.settings import DataSettings
from fedtrain.data.standin import standin_pools
from theory.errors import InputError

SOURCES = ("auto", "real", "standin")


@dataclass(frozen=True, eq=False)
class Found:
    """The domains of a data set, and what to say about them."""

    pools: list[Pool]
    title: str
    standin: bool
    notes: tuple[str, ...]

    def without_images(self) -> Found:
        """The same for a look ahead: clients get inputs of the right shape, and not an image is read or drawn."""
        return replace(self, pools=[pool.without_images() for pool in self.pools])


def find(settings: DataSettings, root: Path | None = None, only: str | None = None) -> Found:
    """The data that the settings mean: with ``auto`` the real ones if every domain is there, else the stand-in.

    Some domains without the others are the stand-in too, with a note of what is missing. Files that are there but
    broken are an error, never a reason for the stand-in. With ``only``, no other domain is looked for.
    """
    if settings.source not in SOURCES:
        raise InputError(f"unknown source {settings.source!r}; choose one of {', '.join(SOURCES)}")
    data, folder = dataset(settings.dataset), store.data_dir(root)
    wanted = list(data.domains) if only is None else [only]
    if settings.source == "standin":
        return standin(data, wanted)
    there = store.present(data.name, folder)
    try:
        return real(data, folder, wanted)
    except DataError as error:
        if settings.source == "real" or all(domain in there for domain in wanted):
            raise
        return standin(data, wanted, *[f"real data are there in part: {error}"] * bool(there))


def real(data: Dataset, folder: Path, wanted: Sequence[str]) -> Found:
    """Real data under their honest name: a data set of one pool has that one's, which says if it is a subset."""
    pools = store.real_pools(data.name, folder, wanted)
    title = pools[0].title if len(data.domains) == 1 else data.title
    return Found(pools, title, False, store.notes(data.name, folder, wanted))


def standin(data: Dataset, wanted: Sequence[str], *why: str) -> Found:
    """The stand-in, under its own name."""
    note = f"stand-in images, drawn by fedco2: results say nothing about the real {data.title}"
    pools = [pool for pool in standin_pools(data.name) if pool.domain in wanted]
    return Found(pools, f"{data.title} (stand-in)", True, (note, *why))
