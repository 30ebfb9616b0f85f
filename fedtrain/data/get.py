"""Fetch a data set from where it is published, and import it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from fedtrain.data.catalogue import dataset
from fedtrain.data.download import LEDGER, fetch
from fedtrain.data.errors import DataError
from fedtrain.data.importing import Added, Progress, add, quiet
from fedtrain.data.importing.naming import named_domain
from fedtrain.data.published import Source, sources
from fedtrain.data.store import place


def get(
    name: str,
    root: Path,
    domain: str | None = None,
    replace: bool = False,
    progress: Progress = quiet,
    tell: Callable[[str], None] = lambda line: None,
) -> list[Added]:
    """All domains that are not there yet, or one. What was downloaded goes once it is imported."""
    data = dataset(name)
    wanted = {named_domain(data, domain)} if domain else set(data.domains)
    if not replace:
        wanted = {one for one in wanted if not place(name, one, root).exists()}
    added: list[Added] = []
    chosen = sources(name, wanted, alone=domain is not None)
    for number, source in enumerate(chosen, 1):
        only = [one for one in source.domains if one in wanted]
        paths = _fetched(name, source, root, progress, tell)
        single = only[0] if len(source.domains) == 1 and name == "digits" else None
        added += add(name, paths, root, single, replace, progress, only)
        needed = {remote.name for later in chosen[number:] for remote in later.files}
        for path in paths:
            if path.name not in needed:
                path.unlink()
    with contextlib.suppress(OSError):
        (root / "downloads").rmdir()  # others' parts may be left in it
    return added


def _fetched(name: str, source: Source, root: Path, progress: Progress, tell: Callable[[str], None]) -> list[Path]:
    paths = []
    for remote in source.files:
        if remote.checksum is None:
            tell(f"{remote.name}: no published checksum; the one of the first download is kept and must recur")
        try:
            paths.append(fetch(remote, root / "downloads", root / LEDGER, progress))
        except DataError as error:
            note = f"; {source.note}" if source.note else ""
            way = f"get it by other means and import it: fedco2 data add {name} PATH"
            raise DataError(f"{error}; {way}{note}") from error
    return paths
