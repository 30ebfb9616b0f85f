"""The members of a zip or tar archive, one after another, without trust in what they claim."""

from __future__ import annotations

import gzip
import stat
import tarfile
import zipfile
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from fedtrain.data.readers.bounded_file import BoundedFile
from fedtrain.data.readers.safe_read import CHUNK, MAX_UNPACK_RATIO, MIN_UNPACK_LIMIT, Readable, require_regular_file

Member = tuple[str, Readable | None]  # a folder has no stream


@dataclass(frozen=True)
class ArchiveLimits:
    """How much an archive may hold: bytes once unpacked, members, folders, and bytes a byte of its own."""

    total: int = 2**35
    members: int = 500_000
    folders: int = 10_000  # a name of a few bytes can make many of them
    ratio: int = MAX_UNPACK_RATIO
    floor: int = MIN_UNPACK_LIMIT  # so many bytes are fine at any ratio

    def compute_unpack_limit(self, size: int) -> int:
        """Bytes that an archive of this size may unpack to."""
        return min(self.total, max(self.floor, self.ratio * size))


DEFAULT_LIMITS = ArchiveLimits()


def iterate_members(path: Path, limits: ArchiveLimits = DEFAULT_LIMITS) -> Generator[Member, None, None]:
    """Names as the archive spells them, and content; links, devices and sparse files are refused.

    The bounds on number and on the size of a tar are held here; whoever keeps the content counts its bytes.
    """
    allowed = limits.compute_unpack_limit(require_regular_file(path).stat().st_size)
    with path.open("rb") as file:
        magic = file.read(4)
        file.seek(0)
        each = _iterate_zip(file, limits) if magic[:2] == b"PK" else _iterate_tar(file, magic, allowed)
        for count, member in enumerate(each, 1):
            if count > limits.members:
                raise ValueError(f"more than the {limits.members} members allowed")
            yield member


def _iterate_zip(file: IO[bytes], limits: ArchiveLimits) -> Iterator[Member]:
    with zipfile.ZipFile(cast(IO[bytes], BoundedFile(file, 2**63))) as archive:
        if len(archive.filelist) > limits.members:
            raise ValueError(f"more than the {limits.members} members allowed")
        for info in archive.filelist:
            kind = stat.S_IFMT(info.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise ValueError(f"member {info.filename[:100]!r} is a link or device")
            if info.is_dir():
                yield info.orig_filename, None
            else:
                with archive.open(info) as stream:
                    yield info.orig_filename, stream


def _iterate_tar(file: IO[bytes], magic: bytes, allowed: int) -> Iterator[Member]:
    with gzip.GzipFile(fileobj=file) if magic[:2] == b"\x1f\x8b" else file as plain:
        stream = BoundedFile(cast(IO[bytes], plain), allowed + allowed // 8 + CHUNK)  # headers and padding take some
        with tarfile.open(fileobj=cast(IO[bytes], stream), mode="r:") as archive:
            for info in archive:
                if info.isdir():
                    yield info.name, None
                elif info.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not info.issparse():
                    with cast(IO[bytes], archive.extractfile(info)) as content:
                        yield info.name, content
                else:
                    raise ValueError(f"member {info.name[:100]!r} is a link, a device or sparse")
        if stream.last_read != bytes(tarfile.BLOCKSIZE):  # tarfile takes a broken header for the end
            raise ValueError("it does not end as a tar archive ends")
        while stream.read(CHUNK):  # to the end, where gzip checks its sum
            pass
