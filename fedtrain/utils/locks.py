"""Locks: one process at a time works in a folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from theory.errors import InputError


def acquire_lock(handle: int, busy: str) -> None:
    """Lock an open file or folder until it is closed; say that it is busy if another process has it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise InputError(busy) from None


def is_same_file(handle: int, path: Path) -> bool:
    """Whether an open file is still the one of this name."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except OSError:
        return False


@contextmanager
def exclusive_lock(folder: Path) -> Iterator[None]:
    """Keep others out of the folder while within; the lock is on the folder itself, so no file tells of it."""
    if not folder.exists():  # deleted by hand perhaps, while its processes live on
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        acquire_lock(handle, f"{folder}: another process starts or ends something here; wait for it")
        yield
    finally:
        os.close(handle)
