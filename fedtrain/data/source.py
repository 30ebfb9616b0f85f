"""Find the data of a request: those at a path, real ones of the paper, or their stand-in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedtrain.config.data import DataSettings, Skew
from fedtrain.data.client_data import SamplePool, merge_pools
from fedtrain.data.datasets import DATASETS, DatasetInfo, get_dataset_info
from fedtrain.data.errors import DataError
from fedtrain.data.found.code_dataset import find_code_dataset
from fedtrain.data.found.find_dataset import find_dataset
from fedtrain.data.found.kept_datasets import has_kept_dataset, list_kept_datasets, load_kept_dataset
from fedtrain.data.standin import build_standin_pools
from fedtrain.data.storage import store
from fedtrain.extensions.references import Extension, build_unknown_error, find_extension, is_reference, list_installed
from theory.errors import InputError
from theory.text import suggest_name

DATA_SOURCES = ("auto", "real", "standin")


@dataclass(frozen=True, eq=False)
class LoadedDataset:
    """A description and the pools that fit it, and what to say about them; whatever is trained on has become one.

    Who has data of a kind that nobody knows yet makes one of these: a `DatasetInfo` with a name of each natural client
    in ``domains``, and for each of these a `SamplePool`, whose ``load_inputs`` fetches samples when they are needed.
    """

    info: DatasetInfo
    pools: list[SamplePool]
    title: str
    standin: bool
    notes: tuple[str, ...]
    path: Path | None = None
    """Where it was found, if it is not one of the data folder."""
    sha256: str = ""
    """Of what was found there."""

    def merge_for(self, skew: Skew) -> LoadedDataset:
        """With one pool in place of all, in their order, for a skew that shares out by label."""
        if skew in ("domain", "label+feature") or len(self.pools) == 1:
            return self
        return replace(self, pools=[merge_pools(self.pools, self.info.name)])

    def settle(self, settings: DataSettings) -> DataSettings:
        """The settings with no doubt left about which data these are."""
        if not self.sha256:
            return settings
        name = settings.dataset if self.path is None else str(self.path)
        return replace(settings, dataset=name, sha256=self.sha256, source="real")

    def without_inputs(self) -> LoadedDataset:
        """The same for a look ahead: clients get inputs of the right shape, and not an image is read or drawn."""
        return replace(self, pools=[pool.without_inputs() for pool in self.pools])


def load_dataset(settings: DataSettings, root: Path | None = None, only: str | None = None) -> LoadedDataset:
    """The data that the settings mean: with ``auto`` the real ones if every domain is there, else the stand-in.

    Some domains without the others are the stand-in too, with a note of what is missing. Files that are there but
    broken are an error, never a reason for the stand-in. With ``only``, no other domain is looked for.
    """
    if settings.source not in DATA_SOURCES:
        raise InputError(f"unknown source {settings.source!r}; choose one of {', '.join(DATA_SOURCES)}")
    if settings.dataset not in DATASETS:
        return load_found_dataset(settings, root, only)
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


def load_found_dataset(settings: DataSettings, root: Path | None = None, only: str | None = None) -> LoadedDataset:
    """The data that were added under a name, or those at a path."""
    path, folder = Path(settings.dataset).expanduser(), store.resolve_data_dir(root)
    is_kept = has_kept_dataset(settings.dataset, folder)
    if not is_kept and not path.exists():
        if (code := find_extension("dataset", settings.dataset)) is not None:
            return _load_from_code(code, settings, only)
        if is_reference(settings.dataset):
            raise build_unknown_error("dataset", settings.dataset)
        known = [*DATASETS, *list_kept_datasets(folder), *list_installed("dataset")]
        raise InputError(
            f"unknown data set {settings.dataset!r}, and no such file or folder is here; "
            f"{suggest_name(settings.dataset, known)}, or give the path of your own",
            options=("dataset",),
        )
    if settings.source == "standin":
        raise InputError(f"{path}: only the paper's data sets have a stand-in; leave data.source out")
    if is_kept:
        return _load_kept(settings, folder, only)
    found = find_dataset(path.absolute(), settings)
    if settings.sha256 and found.sha256 != settings.sha256:
        now = ", ".join(f"{pool.domain} {len(pool.train)} + {len(pool.test)}" for pool in found.pools[:8])
        raise DataError(
            f"{path}: it is not what the run was planned with (SHA-256 {found.sha256[:12]}..., not "
            f"{settings.sha256[:12]}...; now {now}: training + test samples); put the same files there"
        )
    pools = [pool for pool in found.pools if only in (None, pool.domain)]
    return LoadedDataset(found.info, pools, found.info.title, False, found.notes, path.absolute(), found.sha256)


def _load_from_code(code: Extension, settings: DataSettings, only: str | None) -> LoadedDataset:
    """Data that a function outside fedco2 gives; it must give the same ones whenever it is asked."""
    if settings.source == "standin":
        raise InputError(f"{code.name}: only the paper's data sets have a stand-in; leave data.source out")
    found = find_code_dataset(code)
    if settings.sha256 and found.sha256 != settings.sha256:
        raise DataError(
            f"{code.name}: it does not give what the run was planned with (SHA-256 {found.sha256[:12]}..., not "
            f"{settings.sha256[:12]}...); let it give the same data every time, with a seed of its own"
        )
    pools = [pool for pool in found.pools if only in (None, pool.domain)]
    return LoadedDataset(found.info, pools, found.info.title, False, found.notes, None, found.sha256)


def _load_kept(settings: DataSettings, folder: Path, only: str | None) -> LoadedDataset:
    """Data that were added; how they are read was decided then."""
    decided = ("client_column", "target", "split_column", "categories", "ignore", "image_size")
    if given := next((name for name in decided if getattr(settings, name)), None):
        raise InputError(f"{settings.dataset} was added with a {given} of its own; leave data.{given} out")
    found = load_kept_dataset(settings.dataset, folder)
    if settings.sha256 and found.sha256 != settings.sha256:
        raise DataError(f"{folder / settings.dataset}: it was added anew since the run was planned; train anew")
    pools = [pool for pool in found.pools if only in (None, pool.domain)]
    return LoadedDataset(found.info, pools, found.info.title, False, found.notes, None, found.sha256)


def load_real_dataset(data: DatasetInfo, folder: Path, wanted: Sequence[str]) -> LoadedDataset:
    """Real data under their honest name: a data set of one pool has that one's, which says if it is a subset."""
    pools = store.load_real_pools(data.name, folder, wanted)
    title = pools[0].title if len(data.domains) == 1 else data.title
    return LoadedDataset(data, pools, title, False, store.collect_notes(data.name, folder, wanted))


def load_standin_dataset(data: DatasetInfo, wanted: Sequence[str], *why: str) -> LoadedDataset:
    """The stand-in, under its own name."""
    note = f"stand-in images, drawn by fedco2: results say nothing about the real {data.title}"
    pools = [pool for pool in build_standin_pools(data.name) if pool.domain in wanted]
    return LoadedDataset(data, pools, f"{data.title} (stand-in)", True, (note, *why))
