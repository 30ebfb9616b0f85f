"""Unpack an archive into a new folder: all of it or nothing, and nothing anywhere else."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import closing
from pathlib import Path, PurePosixPath

from fedtrain.data.errors import DataError
from fedtrain.data.readers.archive_members import DEFAULT_LIMITS, ArchiveLimits, iterate_members
from fedtrain.data.readers.safe_paths import parse_safe_path
from fedtrain.data.readers.safe_read import CHUNK, Readable, require_regular_file, wrap_read_errors


def extract_archive(archive: Path, target: Path, limits: ArchiveLimits = DEFAULT_LIMITS) -> None:
    """Unpack a zip, tar or tar.gz into ``target``, which must not be there yet.

    The work is done in a hidden folder beside it that takes its name at the end. Absolute names, ``..``, links,
    devices, a name twice, and more than ``limits`` are refused. Permissions and times are not kept.
    """
    if os.path.lexists(target):
        raise DataError(f"{target}: is already there; remove it or unpack to another folder")
    with wrap_read_errors(archive, "zip or tar archive"):
        allowed = limits.compute_unpack_limit(require_regular_file(archive).stat().st_size)
        target.parent.mkdir(parents=True, exist_ok=True)
        workshop = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            content = workshop / "content"  # mkdtemp's own folder would be closed to others
            content.mkdir()
            folders: set[PurePosixPath] = set()
            with closing(iterate_members(archive, limits)) as each:
                for name, stream in each:
                    path = parse_safe_path(name)
                    place = content / path
                    folders.update(path.parents if stream is not None else (path, *path.parents))
                    if len(folders) > limits.folders:
                        raise ValueError(f"more than the {limits.folders} folders allowed")
                    (place if stream is None else place.parent).mkdir(parents=True, exist_ok=True)
                    if stream is not None:
                        allowed -= _copy_bounded(stream, place, allowed)
            os.rename(content, target)
        finally:
            shutil.rmtree(workshop, ignore_errors=True)


def _copy_bounded(stream: Readable, place: Path, allowed: int) -> int:
    """Write a new file; its true size counts, not the claimed one."""
    size = 0
    with place.open("xb") as file:
        while piece := stream.read(CHUNK):
            size += len(piece)
            if size > allowed:
                raise ValueError("it unpacks to more than is allowed for an archive of its size")
            file.write(piece)
    return size
