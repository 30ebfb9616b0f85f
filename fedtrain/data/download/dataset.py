"""Fetch a data set from where it is published, and import it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from fedtrain.data.datasets import get_dataset_info
from fedtrain.data.download.file import CHECKSUMS_FILE, download_file
from fedtrain.data.download.sources import DownloadSource, select_sources
from fedtrain.data.errors import DataError
from fedtrain.data.importing import ImportedDomain, Progress, ignore_progress, import_dataset
from fedtrain.data.importing.naming import validate_domain
from fedtrain.data.storage.store import get_domain_path


def download_dataset(
    name: str,
    root: Path,
    domain: str | None = None,
    replace: bool = False,
    progress: Progress = ignore_progress,
    notify: Callable[[str], None] = lambda line: None,
) -> list[ImportedDomain]:
    """All domains that are not there yet, or one. What was downloaded goes once it is imported."""
    data = get_dataset_info(name)
    wanted = {validate_domain(data, domain)} if domain else set(data.domains)
    if not replace:
        wanted = {one for one in wanted if not get_domain_path(name, one, root).exists()}
    added: list[ImportedDomain] = []
    chosen = select_sources(name, wanted, prefer_own_source=domain is not None)
    for number, source in enumerate(chosen, 1):
        only = [one for one in source.domains if one in wanted]
        paths = _download_files(name, source, root, progress, notify)
        single = only[0] if len(source.domains) == 1 and name == "digits" else None
        added += import_dataset(name, paths, root, single, replace, progress, only)
        needed = {remote.name for later in chosen[number:] for remote in later.files}
        for path in paths:
            if path.name not in needed:
                path.unlink()
    with contextlib.suppress(OSError):
        (root / "downloads").rmdir()  # others' parts may be left in it
    return added


def _download_files(
    name: str, source: DownloadSource, root: Path, progress: Progress, notify: Callable[[str], None]
) -> list[Path]:
    paths = []
    for remote in source.files:
        if remote.checksum is None:
            notify(f"{remote.name}: no published checksum; the one of the first download is kept and must recur")
        try:
            paths.append(download_file(remote, root / "downloads", root / CHECKSUMS_FILE, progress))
        except DataError as error:
            note = f"; {source.note}" if source.note else ""
            way = f"get it by other means and import it: fedco2 data add {name} PATH"
            raise DataError(f"{error}; {way}{note}") from error
    return paths
