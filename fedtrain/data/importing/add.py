"""Import: from a user's files to the store, each domain whole or not at all."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedtrain.data.catalogue import Dataset, dataset
from fedtrain.data.domain_file import About, Block, write
from fedtrain.data.errors import DataError
from fedtrain.data.importing.decode import block, twins
from fedtrain.data.importing.files import CIFAR
from fedtrain.data.importing.found import Draft, Found
from fedtrain.data.importing.naming import named_domain, title
from fedtrain.data.importing.progress import Progress, quiet
from fedtrain.data.importing.scan import scan
from fedtrain.data.importing.split import own_split, spread
from fedtrain.data.readers import LabelledImages, extract_archive
from fedtrain.data.readers.guard import CHUNK
from fedtrain.data.store import place
from theory.errors import InputError

ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")


@dataclass(frozen=True)
class Added:
    """A domain that is now in the store."""

    about: About
    path: Path


def add(
    name: str,
    paths: Sequence[Path],
    root: Path,
    domain: str | None = None,
    replace: bool = False,
    progress: Progress = quiet,
    only: Sequence[str] = (),
) -> list[Added]:
    """Import all domains found in files, folders and archives; ``only`` some of them, if given.

    ``domain`` says which one it is where names do not tell. What is in the store stays there unless ``replace``.
    """
    data = dataset(name)
    if domain is not None:
        named_domain(data, domain)
    for path in paths:
        if not path.exists():
            raise DataError(f"{path}: no such file or folder; mend the path")
    with _unpacked(data, paths, root, progress) as (tops, archives):
        found = _settled(data, scan(data, tops), paths, domain)
        found = {key: one for key, one in found.items() if not only or key in only}
        if taken := [key for key in found if place(name, key, root).exists() and not replace]:
            raise InputError(f"{place(name, taken[0], root)}: is already there; replace it with --replace")
        return [_import(data, key, one, root, archives, progress) for key, one in found.items()]


def _settled(data: Dataset, found: list[Found], paths: Sequence[Path], domain: str | None) -> dict[str, Found]:
    """Each domain found once, in the catalogue's order."""
    if not found:
        raise DataError(f"{', '.join(map(str, paths))}: nothing of {data.title} found; see fedco2 data add --help")
    if domain is not None and len(found) > 1:
        raise InputError(f"--domain {domain}, but {found[0].place} and {found[1].place} are two; add one at a time")
    settled: dict[str, Found] = {}
    for one in found:
        key = domain or one.domain
        if key is None:
            choice = ", ".join(data.domains)
            raise InputError(f"{one.place}: its name does not tell the domain; say --domain, one of {choice}")
        if key in settled:
            raise InputError(f"{one.place} and {settled[key].place} are both {key}; give one of them, or say --domain")
        settled[key] = one
    return {key: settled[key] for key in data.domains if key in settled}


def _import(
    data: Dataset, domain: str, found: Found, root: Path, archives: dict[Path, Path], progress: Progress
) -> Added:
    draft = found.read(progress)
    train, test = _split(data, domain, draft, progress)
    if not len(test.labels):
        raise DataError(f"{found.place}: too few different images to set some apart for testing; import more")
    archive = next((archives[top] for top in archives if top in (found.place, *found.place.parents)), None)
    files = found.files if archive is None else (archive,)
    origin = "; ".join(f"{file.name} sha256 {_sum(file)}" for file in files) or f"folder {found.place.name}"
    names = " ".join(path.name for path in (found.place, *found.files, *files))
    name = title(data, domain, names, len(train.labels), len(test.labels))
    about = About(data.name, domain, name, origin, draft.split, f"{len(train.labels)} + {len(test.labels)}")
    path = place(data.name, domain, root)
    write(path, about, {"train": train, "test": test})
    return Added(about, path)


def _split(data: Dataset, domain: str, draft: Draft, progress: Progress) -> tuple[Block, Block]:
    train, test = draft.train, draft.test
    if test is None:
        first, second = own_split(train.labels, twins(train.images), data.test_sizes.get(domain))
        train, test = (LabelledImages(draft.train.images[part], draft.train.labels[part]) for part in (first, second))
    elif not draft.keep_order:
        order = spread(train.labels)
        train = LabelledImages(train.images[order], train.labels[order])
    first_block, second_block = (block(one, data.size, data.domains[domain], progress) for one in (train, test))
    return first_block, second_block


@contextmanager
def _unpacked(
    data: Dataset, paths: Sequence[Path], root: Path, progress: Progress
) -> Iterator[tuple[list[Path], dict[Path, Path]]]:
    """The paths with folders in place of archives, and which archive each such folder is; they vanish at the end."""
    root.mkdir(parents=True, exist_ok=True)
    workshop = Path(tempfile.mkdtemp(prefix=".importing-", dir=root))
    tops, archives = [], {}
    try:
        for number, path in enumerate(paths):
            suffix = next((end for end in ARCHIVES if path.name.lower().endswith(end)), None)
            if suffix and path.is_file() and data.name not in CIFAR:
                progress(f"unpacking {path.name}", 0, 0)
                top = workshop / str(number) / path.name[: -len(suffix)]
                extract_archive(path, top)
                archives[top] = path
                tops.append(top)
            else:
                tops.append(path)
        yield tops, archives
    finally:
        shutil.rmtree(workshop, ignore_errors=True)


def _sum(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(CHUNK):
            digest.update(piece)
    return digest.hexdigest()
