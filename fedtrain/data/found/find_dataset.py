"""Find a data set at a path: a table, arrays, a folder of images, or an archive of one."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from torch import Tensor

from fedtrain.config.data import DataSettings
from fedtrain.data.client_data import LoadInputs
from fedtrain.data.errors import DataError
from fedtrain.data.found.array_dataset import find_array_dataset
from fedtrain.data.found.arrow_dataset import find_arrow_dataset, is_arrow_folder
from fedtrain.data.found.image_dataset import ImageShape, find_image_dataset
from fedtrain.data.found.pools import FoundDataset
from fedtrain.data.found.table_dataset import find_table_dataset
from fedtrain.data.partition.indices import Indices
from fedtrain.data.progress import Progress, tell_progress
from fedtrain.data.readers.archive import extract_archive
from fedtrain.data.readers.labelled_images import Split
from fedtrain.data.readers.safe_read import hash_file
from fedtrain.data.readers.table_file import TABLE_SUFFIXES, read_table
from fedtrain.data.superclasses import find_superclasses

ARCHIVE_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz")


def find_dataset(
    path: Path, settings: DataSettings, progress: Progress = tell_progress, shape: ImageShape | None = None
) -> FoundDataset:
    """What is at the path, whole and checked, before anything is trained or written; images as ``shape`` says."""
    found = _find_by_kind(path, settings, progress, shape)
    coarse = found.info.superclasses or find_superclasses(found.info.classes)
    return replace(found, info=replace(found.info, superclasses=coarse))


def _find_by_kind(path: Path, settings: DataSettings, progress: Progress, shape: ImageShape | None) -> FoundDataset:
    name = path.name.lower()
    if not path.exists():
        raise DataError(f"{path}: no such file or folder; mend the path")
    if path.is_dir():
        find = find_arrow_dataset if is_arrow_folder(path) else find_image_dataset
        return find(path, settings, path.name, progress, shape)
    if name.endswith(TABLE_SUFFIXES):
        named = [settings.target, settings.client_column, settings.split_column, *settings.categories]
        table = read_table(path, {one for one in named if one is not None})
        return replace(find_table_dataset(table, settings, path.stem), sha256=hash_file(path))
    if name.endswith(".npz"):
        return replace(find_array_dataset(path, settings), sha256=hash_file(path))
    if suffix := next((end for end in ARCHIVE_SUFFIXES if name.endswith(end)), None):
        return _find_in_archive(path, path.name[: -len(suffix)], settings, progress, shape)
    known = ", ".join((*TABLE_SUFFIXES, ".npz", *ARCHIVE_SUFFIXES))
    raise DataError(f"{path}: no kind of data set is known by this name; give a folder of images, or {known}")


def _find_in_archive(
    path: Path, title: str, settings: DataSettings, progress: Progress, shape: ImageShape | None
) -> FoundDataset:
    """Of a folder that is packed; it is unpacked into a folder that goes when nobody holds the pools any more."""
    progress(f"unpacking {path.name}", 0, 0)
    workshop = Workshop(path)
    with workshop.name_archive():
        extract_archive(path, workshop.folder / title)
        found = find_image_dataset(workshop.folder / title, settings, title, progress, shape)
    pools = [replace(pool, load_inputs=partial(_load_inside, workshop, pool.load_inputs)) for pool in found.pools]
    return replace(found, pools=pools, sha256=hash_file(path))


class Workshop:
    """A folder for what an archive unpacks to, which goes with this object."""

    def __init__(self, archive: Path) -> None:
        self.archive, self.folder = archive, Path(tempfile.mkdtemp(prefix="fedco2-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    @contextmanager
    def name_archive(self) -> Iterator[None]:
        """Within, errors speak of the archive and not of the folder that nobody knows."""
        try:
            yield
        except DataError as error:
            raise DataError(str(error).replace(str(self.folder), str(self.archive)), options=error.options) from error


def _load_inside(workshop: Workshop, load: LoadInputs, part: Split, indices: Indices) -> Tensor:
    with workshop.name_archive():
        return load(part, indices)
