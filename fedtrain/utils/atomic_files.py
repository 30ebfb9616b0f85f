"""Atomic files: complete or absent."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from theory.errors import InputError


def check_new_file(path: Path, suffix: str, what: str) -> None:
    """Refuse a file that is there, is of another kind, or has no folder; better before the work is done than after."""
    if path.suffix.lower() != suffix:
        raise InputError(f"{path}: {what}; let the name end in {suffix}")
    if path.exists():
        raise InputError(f"{path} is there already and is not overwritten; choose another name")
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.parent}; make it first")


def _read_umask() -> int:
    """What the user denies others. It can only be read by setting it, so once, before there are threads."""
    os.umask(mask := os.umask(0o077))
    return mask


UMASK = _read_umask()


@contextmanager
def replace_atomically(path: Path) -> Iterator[Path]:
    """A file beside ``path`` to be written within, which takes that name once it is on the disk, or vanishes."""
    part = path.with_name(f".{path.name}-{os.getpid()}.part")
    try:
        yield part
        part.chmod(0o666 & ~UMASK)  # as any new file; safetensors lets nobody else read
        with part.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
        _sync_folder(path.parent)
    finally:
        with suppress(OSError):  # not the last word on a disk that takes none
            part.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Let a new name survive a power cut too."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
