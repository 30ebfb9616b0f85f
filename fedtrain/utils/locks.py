"""One process at a time starts or ends something in a folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from theory.errors import InputError


@contextmanager
def exclusive_lock(folder: Path) -> Iterator[None]:
    """Keep others out of the folder while within; the lock is on the folder itself, so no file tells of it."""
    if not folder.exists():  # deleted by hand perhaps, while its processes live on
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{folder}: another process starts or ends something here; wait for it") from None
        yield
    finally:
        os.close(handle)
