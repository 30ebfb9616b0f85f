"""Folders of images as a data set: ``client/class/image`` or ``client/{train,test}/class/image``."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtrain.config.data import DataSettings
from fedtrain.data.datasets import DatasetInfo
from fedtrain.data.errors import DataError
from fedtrain.data.found.array_dataset import PIXEL_MEAN, PIXEL_STD
from fedtrain.data.found.names import check_client_names, check_name, sort_names
from fedtrain.data.found.pools import ONE_CLIENT, FoundDataset, LoadPlaces, build_pool, parse_part
from fedtrain.data.found.split import ClientLabels, split_clients
from fedtrain.data.partition.indices import Indices
from fedtrain.data.progress import Progress, tell_progress
from fedtrain.data.readers.class_folders import IGNORED_FILES
from fedtrain.data.readers.image_file import MAX_FILE, SUFFIXES, read_image_as, read_image_header
from fedtrain.data.readers.labelled_images import Split
from fedtrain.data.readers.safe_read import read_bytes, wrap_read_errors

MAX_SIDE = 256
"""Larger images are made smaller, unless a size is asked for."""
MAX_IMAGES = 5_000_000
MAX_DEPTH = 12
ImageShape = tuple[int, int, int]
"""Channels, height and width."""


@dataclass(frozen=True)
class ImageFile:
    """An image where it lies, and what its folders say of it."""

    path: Path
    client: str
    label: str
    part: Split | None


@dataclass(frozen=True)
class ScannedImages:
    """What a look at all images, in order, has shown."""

    twins: Indices
    shape: ImageShape
    sha256: str
    notes: tuple[str, ...]


def find_image_dataset(
    folder: Path, settings: DataSettings, title: str, progress: Progress, shape: ImageShape | None = None
) -> FoundDataset:
    """What is in a folder; images are decoded when a client is made of them, and to this shape if one is given."""
    files = list_labelled_files(folder)
    scanned = scan_images(folder, files, settings.image_size, progress)
    scanned = scanned if shape is None else replace(scanned, shape=shape, notes=())
    is_test = None if files[0].part is None else np.array([file.part == "test" for file in files])
    labelled = LabelledSamples([file.client for file in files], [file.label for file in files], is_test)
    return build_image_dataset(
        folder, title, scanned, labelled, settings, lambda places, size: _decode([files[i].path for i in places], size)
    )


@dataclass(frozen=True, eq=False)
class LabelledSamples:
    """Whose each sample is, its class, and whether it is for testing if its source says so."""

    clients: Sequence[str]
    classes: Sequence[str]
    is_test: NDArray[np.bool_] | None


def build_image_dataset(
    source: Path,
    title: str,
    scanned: ScannedImages,
    samples: LabelledSamples,
    settings: DataSettings,
    decode: Callable[[Sequence[int], ImageShape], Tensor],
    order: Sequence[str] | None = None,
) -> FoundDataset:
    """Images that ``decode`` fetches by their places, as a data set; ``order`` is that of the classes, if any."""
    clients, present = sort_names(set(samples.clients)), set(samples.classes)
    classes = sort_names(present) if order is None else [name for name in order if name in present]
    check_client_names(source, clients)
    for name in classes:
        check_name(source, "class", name)
    if len(classes) < 2:
        raise DataError(f"{source}: all images are of class {classes[0]!r}; at least two classes are needed")
    number, place = ({name: i for i, name in enumerate(names)} for names in (classes, clients))
    labels = np.array([number[name] for name in samples.classes], dtype=np.int64)
    owner = np.array([place[name] for name in samples.clients], dtype=np.int64)
    rows = [np.flatnonzero(owner == i) for i in range(len(clients))]
    found = [
        ClientLabels(name, labels[at], scanned.twins[at], None if samples.is_test is None else samples.is_test[at])
        for name, at in zip(clients, rows, strict=True)
    ]
    splits, split, said = split_clients(source, found, classes, settings.test_share, settings.split_seed)
    info = DatasetInfo(
        title, title, {name: name for name in clients}, tuple(classes), scanned.shape, PIXEL_MEAN, PIXEL_STD
    )

    def load(at: Indices) -> LoadPlaces:
        return lambda places: decode(at[places].tolist(), scanned.shape)

    pools = [
        build_pool(info, name, labels[at], one, load(at)) for name, at, one in zip(clients, rows, splits, strict=True)
    ]
    return FoundDataset(info, pools, split, (*scanned.notes, *said), scanned.sha256)


def _decode(paths: Sequence[Path], shape: ImageShape) -> Tensor:
    images = torch.empty(len(paths), *shape, dtype=torch.uint8)
    for i, path in enumerate(paths):
        images[i] = torch.from_numpy(read_image_as(path, shape[1:], shape[0]))
        tell_progress("reading images", i + 1, len(paths))
    return images


def list_labelled_files(folder: Path) -> list[ImageFile]:
    """Every image below the folder, with client, class and part by the names of its folders.

    Folders that only wrap the others are passed through. Hidden files, and files beside the clients, are passed over.
    """
    top = folder
    while len(inside := _list_folders(top)) == 1 and not _is_only_client(top, inside[0]):
        top = inside[0]
    levels = _count_levels(top)
    if levels < 1:
        raise DataError(f"{folder}: no images in folders found; the layout is client/class/image.png")
    files = []
    for path in _walk(top, levels):
        parts = path.relative_to(top).parts
        files.append(_read_place(folder, path, parts))
    split = {file.part is None for file in files}
    if len(split) > 1:
        odd = next(file for file in files if file.part is None)
        raise DataError(f"{odd.path}: it is neither below train nor below test, and others are; move it")
    return files


def _read_place(folder: Path, path: Path, parts: tuple[str, ...]) -> ImageFile:
    match parts:
        case (client, part, label, _) if (which := parse_part(part)) is not None:
            return ImageFile(path, client, label, which)
        case (part, label, _) if (which := parse_part(part)) is not None:
            return ImageFile(path, ONE_CLIENT, label, which)
        case (client, label, _):
            return ImageFile(path, client, label, None)
        case (label, _):
            return ImageFile(path, ONE_CLIENT, label, None)
    raise DataError(
        f"{path}: it lies {len(parts) - 1} folders deep in {folder}; the layouts are client/class/image and "
        "client/train/class/image"
    )


def _is_only_client(top: Path, folder: Path) -> bool:
    """Whether the only folder is a client's (or a class), rather than one that wraps all of them."""
    levels, inside = _count_levels(top), _list_folders(folder)
    split = bool(inside) and all(parse_part(one.name) for one in inside)
    return levels <= 2 or (levels == 4 and split) or (levels == 3 and not split and parse_part(folder.name) is None)


def _list_folders(folder: Path) -> list[Path]:
    with wrap_read_errors(folder, "folder"):
        return sorted(one for one in folder.iterdir() if one.is_dir() and not one.name.startswith((".", "__MACOSX")))


def _count_levels(folder: Path) -> int:
    """Folders between this one and its deepest file, and the file."""
    deepest, start = 0, len(folder.parts)
    for name, folders, files in os.walk(folder):
        folders[:] = [one for one in folders if not one.startswith((".", "__MACOSX"))]
        depth = len(Path(name).parts) - start
        if depth > MAX_DEPTH:
            raise DataError(f"{name}: folders are more than {MAX_DEPTH} deep; the layout is client/class/image")
        if any(Path(one).suffix.lower() in SUFFIXES for one in files):
            deepest = max(deepest, depth + 1)
    return deepest


def _walk(top: Path, levels: int) -> Iterator[Path]:
    """The files of all class folders; one that is no image, and a class folder without any, are errors."""
    count = 0
    for name, folders, files in os.walk(top):
        folder = Path(name)
        depth = len(folder.relative_to(top).parts)
        folders[:] = sorted(one for one in folders if not one.startswith((".", "__MACOSX")))
        kept = [one for one in files if not one.startswith(".") and one.lower() not in IGNORED_FILES]
        if depth and not folders and not kept:
            raise DataError(f"{folder}: no image is in this folder; give it some, or remove it")
        if depth != levels - 1 and not any(Path(one).suffix.lower() in SUFFIXES for one in kept):
            continue  # a README beside the clients
        for one in sorted(kept, key=lambda one: sort_key(one)):
            path = folder / one
            if path.suffix.lower() not in SUFFIXES or not path.is_file():
                raise DataError(f"{path}: not an image file ({', '.join(SUFFIXES)}); remove it from the folder")
            if (count := count + 1) > MAX_IMAGES:
                raise DataError(f"{top}: more than {MAX_IMAGES} images; train on fewer")
            yield path


def sort_key(name: str) -> tuple[int, str]:
    """Short names first, so that 2.png is before 10.png."""
    return len(name), name


def scan_images(folder: Path, files: Sequence[ImageFile], side: int | None, progress: Progress) -> ScannedImages:
    """Read every file once: its bytes for twins and checksum, its header for size and colour."""

    def contents() -> Iterator[tuple[object, str, bytes]]:
        for file in files:
            with wrap_read_errors(file.path, "image"):
                content = read_bytes(file.path, MAX_FILE)
            yield file.path, file.path.relative_to(folder).as_posix(), content

    return scan_contents(contents(), len(files), side, progress)


def scan_contents(
    contents: Iterable[tuple[object, str, bytes]], count: int, side: int | None, progress: Progress
) -> ScannedImages:
    """The same of so many images, each with where it is from, a name and its bytes; one at a time is in memory."""
    groups: dict[bytes, int] = {}
    twins, total = np.empty(count, dtype=np.int64), hashlib.sha256()
    sizes = np.empty((count, 2), dtype=np.int64)
    grey = True
    for i, (source, name, content) in enumerate(contents):
        key = hashlib.sha256(content).digest()
        height, width, is_grey = read_image_header(source, content)
        sizes[i], grey = (height, width), grey and is_grey
        twins[i] = groups.setdefault(key, len(groups))
        total.update(
            f"{name}\0".encode(errors="surrogateescape") + key
        )  # a file may be called by bytes that are no text
        progress("looking through images", i + 1, count)
    height, width = np.median(sizes, axis=0).round().astype(int).tolist()
    shrink = min(1.0, MAX_SIDE / max(height, width))
    size = (side, side) if side else (max(1, round(height * shrink)), max(1, round(width * shrink)))
    notes = []
    if (sizes != size).any():
        spread = dict.fromkeys("x".join(map(str, extent)) for extent in (sizes.min(0), sizes.max(0)))
        notes = [f"images of {' to '.join(spread)} pixels are resized to {size[0]}x{size[1]}"]
    return ScannedImages(twins, (1 if grey else 3, *size), total.hexdigest(), tuple(notes))
