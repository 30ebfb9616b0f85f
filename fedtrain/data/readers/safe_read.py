"""What guards every reader: one place where errors become `DataError`, and reads that cannot exhaust the memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from fedtrain.data.errors import DataError

MAX_BYTES = 2**31  # of one file, and of what it unpacks to; the largest real one, SVHN's extra set, needs 1.6 GB
MAX_UNPACK_RATIO, MIN_UNPACK_LIMIT = (
    200,
    2**24,
)  # what is packed may unpack to so many times its size, or to so many bytes
CHUNK = 2**20
RETRY_HINT = "fetch or make it again"


class Readable(Protocol):
    """Whatever can be read in pieces."""

    def read(self, size: int, /) -> bytes:
        """At most ``size`` bytes, none at the end."""
        ...


def summarise_error(error: BaseException) -> str:
    """What an error says, in few words; its type only where the text alone would not tell."""
    text = " ".join(str(error).split())
    text = text if len(text) <= 200 else f"{text[:197]}..."
    return text if text and type(error) in (ValueError, OSError) else f"{type(error).__name__} {text}".rstrip()


@contextmanager
def wrap_read_errors(source: object, kind: str) -> Iterator[None]:
    """Whatever goes wrong inside is the fault of the file ``source``, meant to be a ``kind``, and says so."""
    try:
        yield
    except DataError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"{source}: no such file; fetch the data set or mend the path") from error
    except Exception as error:  # parsers of hostile bytes raise almost anything, RecursionError and MemoryError too
        raise DataError(f"{source}: not a readable {kind}: {summarise_error(error)}; {RETRY_HINT}") from error


def require_regular_file(path: Path) -> Path:
    """The path, if a plain file is there (a pipe would block, a device never ends)."""
    if not path.exists():
        raise FileNotFoundError(path)
    if not path.is_file():
        raise ValueError("a folder or device stands where a file should be")
    return path


def compute_unpack_limit(size: int, limit: int = MAX_BYTES) -> int:
    """Bytes that a packed file of this size may unpack to: a bomb must be large itself to take much memory."""
    return min(limit, max(MIN_UNPACK_LIMIT, MAX_UNPACK_RATIO * size))


def read_bounded(stream: Readable, limit: int) -> bytes:
    """All that is left in the stream; more than ``limit`` bytes are refused before they are held."""
    data = bytearray()
    while piece := stream.read(CHUNK):
        data += piece
        if len(data) > limit:
            raise ValueError(f"it unpacks to more than the {limit} bytes allowed")
    return bytes(data)


def read_bytes(path: Path, limit: int = MAX_BYTES) -> bytes:
    """The content of a plain file of at most ``limit`` bytes."""
    size = require_regular_file(path).stat().st_size
    if size > limit:
        raise ValueError(f"{size} bytes, more than the {limit} allowed")
    with path.open("rb") as file:
        return read_bounded(file, limit)


def hash_file(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with wrap_read_errors(path, "file"), require_regular_file(path).open("rb") as file:
        while piece := file.read(CHUNK):
            digest.update(piece)
    return digest.hexdigest()
