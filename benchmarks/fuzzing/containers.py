"""How containers are put together from parts, with lengths and checksums that fit whatever the parts have become."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuzzing.seed_file import Seed

TAR_BLOCK_SIZE = 512
MAT_HEADER = b"MATLAB 5.0".ljust(124) + struct.pack("<H", 0x0100) + b"IM"


def build_gzip(parts: Sequence[bytes]) -> bytes:
    """gzip."""
    return gzip.compress(b"".join(parts), 1, mtime=0)


def encode_npy(array: NDArray[Any], fortran: bool = False) -> bytes:
    """One array as NumPy writes it."""
    stream = io.BytesIO()
    np.save(stream, np.asfortranarray(array) if fortran else array, allow_pickle=False)
    return stream.getvalue()


def make_zip_builder(
    names: Sequence[str], method: int = zipfile.ZIP_DEFLATED, mode: int = 0
) -> Callable[[Sequence[bytes]], bytes]:
    """A zip whose members have these names, the last of them again if there are more parts."""

    def build(parts: Sequence[bytes]) -> bytes:
        stream = io.BytesIO()
        with warnings.catch_warnings(), zipfile.ZipFile(stream, "w", method) as archive:
            warnings.simplefilter("ignore")  # a name twice
            for number, part in enumerate(parts):
                info = zipfile.ZipInfo("placeholder")
                info.filename = names[min(number, len(names) - 1)]  # as it is: ZipInfo would mend it
                info.compress_type, info.external_attr = method, mode << 16
                archive.writestr(info, part)
        return stream.getvalue()

    return build


def build_zip_seed(files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED, mode: int = 0) -> Seed:
    """A zip with a part for each member."""
    return Seed(tuple(files.values()), make_zip_builder(list(files), method, mode))


def build_tar_header(name: str, size: int, kind: bytes = tarfile.REGTYPE, link: str = "") -> bytes:
    """The header of a member."""
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = size, kind, link
    return info.tobuf(tarfile.GNU_FORMAT)


def build_tar(parts: Sequence[bytes]) -> bytes:
    """Headers (even places) and contents (odd places); the sum of each header is made right."""
    blocks = []
    for number, part in enumerate(parts):
        block = part + bytes(-len(part) % TAR_BLOCK_SIZE)
        if number % 2 == 0 and len(block) >= TAR_BLOCK_SIZE:
            total = sum(block[-TAR_BLOCK_SIZE:][:148]) + sum(block[-TAR_BLOCK_SIZE:][156:]) + 8 * 32
            start = len(block) - TAR_BLOCK_SIZE
            block = block[: start + 148] + b"%06o\0 " % total + block[start + 156 :]
        blocks.append(block)
    return b"".join(blocks) + bytes(2 * TAR_BLOCK_SIZE)


def build_tar_seed(files: Mapping[str, bytes], pack: bool, kind: bytes = tarfile.REGTYPE, link: str = "") -> Seed:
    """A tar, plain or tar.gz."""
    parts = [part for name, data in files.items() for part in (build_tar_header(name, len(data), kind, link), data)]
    return Seed(tuple(parts), lambda parts: build_gzip([build_tar(parts)]) if pack else build_tar(parts))


def build_png(parts: Sequence[bytes]) -> bytes:
    """Chunks, each with its length and sum."""
    chunks = [struct.pack(">I", max(0, len(c) - 4)) + c + struct.pack(">I", zlib.crc32(c)) for c in parts]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def build_png_seed(data: bytes) -> Seed:
    """The chunks of a png; pixels stay packed, for their own sum is within."""
    parts, at = [], 8
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        parts.append(data[at + 4 : at + 8 + size])
        at += size + 12
    return Seed(tuple(parts), build_png)


def make_mat_builder(pack: bool) -> Callable[[Sequence[bytes]], bytes]:
    """MATLAB's elements, each a matrix whose tag is made to fit."""

    def build(parts: Sequence[bytes]) -> bytes:
        elements = [struct.pack("<II", 14, len(part)) + part for part in parts]
        if pack:
            squeezed = [zlib.compress(element) for element in elements]
            elements = [struct.pack("<II", 15, len(part)) + part for part in squeezed]
        return MAT_HEADER + b"".join(elements)

    return build


def build_safetensors(parts: Sequence[bytes]) -> bytes:
    """Safetensors: the length of the JSON, the JSON, the data."""
    return struct.pack("<Q", len(parts[0])) + b"".join(parts)


def build_safetensors_seed(data: bytes) -> Seed:
    """The JSON, sorted because safetensors writes it in another order each time, and the data."""
    (size,) = struct.unpack("<Q", data[:8])
    return Seed(
        (json.dumps(json.loads(data[8 : 8 + size]), sort_keys=True).encode(), data[8 + size :]), build_safetensors
    )


def build_claimed_safetensors(metadata: Mapping[str, str], entries: Mapping[str, Any], data: bytes = b"") -> bytes:
    """Safetensors of any claims."""
    return build_safetensors([json.dumps({"__metadata__": metadata, **entries}).encode(), data])
