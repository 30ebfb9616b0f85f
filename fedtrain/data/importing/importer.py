"""Import: from a user's files to the store, each domain whole or not at all."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedtrain.data.datasets import DatasetInfo, get_dataset_info
from fedtrain.data.errors import DataError
from fedtrain.data.importing.candidate import DomainCandidate, RawDomain
from fedtrain.data.importing.decode import group_duplicates, resize_to_stored
from fedtrain.data.importing.naming import format_title, validate_domain
from fedtrain.data.importing.recognise_files import CIFAR_READERS
from fedtrain.data.importing.scan_paths import find_candidates
from fedtrain.data.importing.train_test_split import interleave_classes, split_train_test
from fedtrain.data.progress import Progress, ignore_progress
from fedtrain.data.readers import LabelledImages, extract_archive
from fedtrain.data.readers.safe_read import CHUNK
from fedtrain.data.storage.domain_file import DomainInfo, StoredImages, write_domain_file
from fedtrain.data.storage.store import get_domain_path
from theory.errors import InputError

ARCHIVE_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz")


@dataclass(frozen=True)
class ImportedDomain:
    """A domain that is now in the store."""

    info: DomainInfo
    path: Path


def import_dataset(
    name: str,
    paths: Sequence[Path],
    root: Path,
    domain: str | None = None,
    replace: bool = False,
    progress: Progress = ignore_progress,
    only: Sequence[str] = (),
) -> list[ImportedDomain]:
    """Import all domains found in files, folders and archives; ``only`` some of them, if given.

    ``domain`` says which one it is where names do not tell. What is in the store stays there unless ``replace``.
    """
    data = get_dataset_info(name)
    if domain is not None:
        validate_domain(data, domain)
    for path in paths:
        if not path.exists():
            raise DataError(f"{path}: no such file or folder; mend the path")
    with _unpack_archives(data, paths, root, progress) as (tops, archives):
        found = _match_domains(data, find_candidates(data, tops), paths, domain)
        found = {key: one for key, one in found.items() if not only or key in only}
        if taken := [key for key in found if get_domain_path(name, key, root).exists() and not replace]:
            raise InputError(
                f"{get_domain_path(name, taken[0], root)}: is already there; ask for it to be replaced",
                options=("replace",),
            )
        return [_import_domain(data, key, one, root, archives, progress) for key, one in found.items()]


def _match_domains(
    data: DatasetInfo, found: list[DomainCandidate], paths: Sequence[Path], domain: str | None
) -> dict[str, DomainCandidate]:
    """Each domain found once, in the catalogue's order."""
    if not found:
        raise DataError(f"{', '.join(map(str, paths))}: nothing of {data.title} found; see fedco2 data add --help")
    if domain is not None and len(found) > 1:
        raise InputError(
            f"domain {domain}, but {found[0].path} and {found[1].path} are two; add one at a time", options=("domain",)
        )
    settled: dict[str, DomainCandidate] = {}
    for one in found:
        key = domain or one.domain
        if key is None:
            choice = ", ".join(data.domains)
            raise InputError(
                f"{one.path}: its name does not tell the domain; say which, one of {choice}", options=("domain",)
            )
        if key in settled:
            raise InputError(
                f"{one.path} and {settled[key].path} are both {key}; give one of them, or say which domain it is",
                options=("domain",),
            )
        settled[key] = one
    return {key: settled[key] for key in data.domains if key in settled}


def _import_domain(
    data: DatasetInfo, domain: str, found: DomainCandidate, root: Path, archives: dict[Path, Path], progress: Progress
) -> ImportedDomain:
    draft = found.read(progress)
    train, test = _split_domain(data, domain, draft, progress)
    if not len(test.labels):
        raise DataError(f"{found.path}: too few different images to set some apart for testing; import more")
    archive = next((archives[top] for top in archives if top in (found.path, *found.path.parents)), None)
    files = found.files if archive is None else (archive,)
    origin = "; ".join(f"{file.name} sha256 {_hash_file(file)}" for file in files) or f"folder {found.path.name}"
    names = " ".join(path.name for path in (found.path, *found.files, *files))
    name = format_title(data, domain, names, len(train.labels), len(test.labels))
    about = DomainInfo(data.name, domain, name, origin, draft.split, f"{len(train.labels)} + {len(test.labels)}")
    path = get_domain_path(data.name, domain, root)
    write_domain_file(path, about, {"train": train, "test": test})
    return ImportedDomain(about, path)


def _split_domain(
    data: DatasetInfo, domain: str, draft: RawDomain, progress: Progress
) -> tuple[StoredImages, StoredImages]:
    train, test = draft.train, draft.test
    if test is None:
        first, second = split_train_test(train.labels, group_duplicates(train.images), data.test_sizes.get(domain))
        train, test = (LabelledImages(draft.train.images[part], draft.train.labels[part]) for part in (first, second))
    elif not draft.keep_order:
        order = interleave_classes(train.labels)
        train = LabelledImages(train.images[order], train.labels[order])
    first_block, second_block = (
        resize_to_stored(one, data.image_size, data.domains[domain], progress) for one in (train, test)
    )
    return first_block, second_block


@contextmanager
def _unpack_archives(
    data: DatasetInfo, paths: Sequence[Path], root: Path, progress: Progress
) -> Iterator[tuple[list[Path], dict[Path, Path]]]:
    """The paths with folders in place of archives, and which archive each such folder is; they vanish at the end."""
    root.mkdir(parents=True, exist_ok=True)
    workshop = Path(tempfile.mkdtemp(prefix=".importing-", dir=root))
    tops, archives = [], {}
    try:
        for number, path in enumerate(paths):
            suffix = next((end for end in ARCHIVE_SUFFIXES if path.name.lower().endswith(end)), None)
            if suffix and path.is_file() and data.name not in CIFAR_READERS:
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


def _hash_file(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(CHUNK):
            digest.update(piece)
    return digest.hexdigest()
