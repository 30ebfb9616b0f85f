"""Files that are hostile by design: archives that leave their folder, headers that claim too much, bombs."""

from __future__ import annotations

import bz2
import gzip
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from functools import cache

from fuzzing.containers import (
    MAT_HEADER,
    build_claimed_safetensors,
    build_gzip,
    build_png,
    build_tar,
    build_tar_header,
    build_tar_seed,
    build_zip_seed,
    encode_npy,
    make_mat_builder,
)
from fuzzing.dataset_files import COLOUR_IMAGES, GREY_IMAGES, LABELS

MIB = 2**20
BOMB_SIZE = 17 * MIB  # a little above what may be unpacked at any ratio


def build_archive_attacks(canary: str) -> list[bytes]:
    """Names that lead out, links and devices, the same name twice, bombs, and sizes that lie."""
    good, evil = {"good.txt": b"good"}, b"evil"
    names = [
        canary,
        f"../{canary}",
        "../../evil",
        "..",
        "a/../../evil",
        "//evil",
        "C:/evil",
        "a\\..\\..\\evil",
        ".",
        "",
    ]
    names += ["a\0b", "a\nb", "\x1b[31mred", "a/" * 600 + "b", "x" * 900, "con", "a/./b", "~/evil", "\u202eevil"]
    made = []
    for name in names:
        files = {**good, name: evil}
        made += [
            build_zip_seed(files).content,
            build_tar_seed(files, pack=True).content,
            build_tar_seed(files, pack=False).content,
        ]
    for kind in (b"1", b"2", b"3", b"4", b"6", b"7", b"S", b"V", b"K", b"L", b"x", b"g", b"Z"):
        head = build_tar_header("link", 0, kind, os.path.dirname(canary) or "..")
        made.append(build_tar([head, b"", build_tar_header("link/evil", 4), evil]))
    made += [
        build_zip_seed({"link": b"/etc"}, mode=kind | 0o777).content
        for kind in (stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO)
    ]
    for twice in ({"a": b"1", "./a": b"2"}, {"a": b"1", "a/b": b"2"}, {"a/b": b"1", "a": b"2"}, {"A": b"1", "a": b"2"}):
        made += [build_zip_seed(twice).content, build_tar_seed(twice, pack=False).content]
    bomb = {"zeros": bytes(BOMB_SIZE)}
    made += [build_zip_seed(bomb, method).content for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA)]
    made += [build_tar_seed(bomb, pack=True).content, gzip.compress(bytes(BOMB_SIZE))]
    made.append(
        build_zip_seed({f"{n}": build_zip_seed({"zeros": bytes(MIB)}).content for n in range(20)}).content
    )  # nested
    made.append(build_zip_seed({f"d{n}/" * 20 + "f": b"" for n in range(2000)}).content)  # many folders
    lie = build_zip_seed({"zeros": bytes(10**6)}).content
    made.append(lie.replace(struct.pack("<I", 10**6), struct.pack("<I", 100)))
    made.append(lie.replace(struct.pack("<I", 10**6), struct.pack("<I", 2**32 - 2)))
    for kind in (tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XGLTYPE):
        made.append(build_tar([build_tar_header("x", 2**33 - 1, kind), b""]))
    made.append(
        build_tar(
            [
                build_tar_header("x", 30, tarfile.XHDTYPE),
                b"30 size=99999999999999999999\n",
                build_tar_header("y", 1),
                b"a",
            ]
        )
    )
    return made


def build_image_attacks() -> list[bytes]:
    """Few bytes, many pixels; text and profiles that unpack to much."""

    def chunk(width: int, height: int) -> bytes:
        return b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)

    sides = [(2**31 - 1, 2**31 - 1), (60_000, 60_000), (9000, 9000), (1, 2**31 - 1), (2**26, 2), (0, 0), (2**26, 1)]
    small = b"IDAT" + zlib.compress(bytes(1000))
    made = [build_png([chunk(*side), small, b"IEND"]) for side in sides]
    made.append(build_png([chunk(3000, 3000), b"IDAT" + zlib.compress(bytes(3000 * (3 * 3000 + 1))), b"IEND"]))
    packed_text = zlib.compress(bytes(BOMB_SIZE))
    made.append(build_png([chunk(8, 8), b"zTXta\0\0" + packed_text, small, b"IEND"]))
    made.append(build_png([chunk(8, 8), b"iCCPa\0\0" + packed_text, small, b"IEND"]))
    made.append(b"GIF89a" + struct.pack("<HH", 65535, 65535) + b"\0\0\0," + bytes(4) + struct.pack("<HH", 65535, 65535))
    for width, height in ((2**31 - 1, 1), (1, -(2**31)), (40_000, 40_000)):
        made.append(b"BM" + struct.pack("<IHHIIiiHHIIiiII", 100, 0, 0, 54, 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0))
    return made


@cache
def build_header_attacks() -> dict[str, list[bytes]]:
    """Headers that promise more than is there, and files that unpack to far more than they are."""
    shape, zeros = struct.pack(">I3I", 0x0803, 2**31, 2**31, 2**31), zlib.compress(bytes(BOMB_SIZE), 9)
    lie = encode_npy(COLOUR_IMAGES).replace(b"(4, 5, 6, 3), }            ", b"(900000000000, 6, 3), }    ")
    deep = b"\x93NUMPY\x02\0" + struct.pack("<I", 50_000) + b"(" * 50_000
    long = b"\x93NUMPY\x02\0" + struct.pack("<I", 2**32 - 1) + b"{"
    members = [
        {f"{x}.npy": one, "y_train.npy": encode_npy(LABELS)} for x in ("x_train", "X") for one in (lie, deep, long)
    ]
    flat = encode_npy(GREY_IMAGES[:, :, 0]).replace(b"(4, 5)", b"(0, 5)")
    bomb = encode_npy(GREY_IMAGES)[:128] + bytes(BOMB_SIZE)
    npz = [
        *(build_zip_seed(one).content for one in members),
        build_zip_seed({"X.npy": flat, "y.npy": flat, "owner.npy": flat}).content,
    ]
    big = (
        struct.pack("<II", 6, 8)
        + struct.pack("<II", 9, 0)
        + struct.pack("<II", 5, 16)
        + struct.pack("<4i", *[2**31 - 1] * 4)
    )
    entry = {"dtype": "F32", "shape": [2**40, 2**20], "data_offsets": [0, 2**62]}
    empty = {"dtype": "F32", "shape": [0, 2**62], "data_offsets": [0, 0]}
    return {
        "idx": [
            shape,
            build_gzip([shape]),
            build_gzip([struct.pack(">I3I", 0x0803, BOMB_SIZE, 1, 1), bytes(BOMB_SIZE)]),
        ],
        "mat": [make_mat_builder(pack=pack)([big + struct.pack("<II", 1, 0)]) for pack in (True, False)]
        + [MAT_HEADER + struct.pack("<II", 15, len(zeros)) + zeros],
        "libsvm": [bz2.compress(b"\n" * (MIB // 2)), bz2.compress(b"1 " * (MIB // 2)), b"1 1:" + b"9" * MIB],
        "npz": [
            *npz,
            build_zip_seed({"X.npy": bomb}).content,
            build_zip_seed({"x_train.npy": bomb}, zipfile.ZIP_LZMA).content,
        ],
        "tensors": [
            struct.pack("<Q", 2**63) + b"{}",
            struct.pack("<Q", 2**40) + b"{}",
            *(
                build_claimed_safetensors({"format": "fedco2 domain 1", "about": "{}"}, {"shared/w": one})
                for one in (entry, empty)
            ),
            build_claimed_safetensors({"about": "[" * 100_000}, {}),
            build_claimed_safetensors({"about": '{"format": "fedco2 checkpoint 1", "round": 1' + "0" * 5000 + "}"}, {}),
        ],
    }
