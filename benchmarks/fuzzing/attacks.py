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

from fuzzing.packing import MAT_HEAD, mat, npy, packed, png, tar_head, tar_seed, tarred, told, zip_seed
from fuzzing.pictures import COLOUR, GREY, LABELS

MIB = 2**20
BOMB = 17 * MIB  # a little above what may be unpacked at any ratio


def archives(canary: str) -> list[bytes]:
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
        made += [zip_seed(files).whole, tar_seed(files, pack=True).whole, tar_seed(files, pack=False).whole]
    for kind in (b"1", b"2", b"3", b"4", b"6", b"7", b"S", b"V", b"K", b"L", b"x", b"g", b"Z"):
        head = tar_head("link", 0, kind, os.path.dirname(canary) or "..")
        made.append(tarred([head, b"", tar_head("link/evil", 4), evil]))
    made += [
        zip_seed({"link": b"/etc"}, mode=kind | 0o777).whole for kind in (stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO)
    ]
    for twice in ({"a": b"1", "./a": b"2"}, {"a": b"1", "a/b": b"2"}, {"a/b": b"1", "a": b"2"}, {"A": b"1", "a": b"2"}):
        made += [zip_seed(twice).whole, tar_seed(twice, pack=False).whole]
    bomb = {"zeros": bytes(BOMB)}
    made += [zip_seed(bomb, method).whole for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA)]
    made += [tar_seed(bomb, pack=True).whole, gzip.compress(bytes(BOMB))]
    made.append(zip_seed({f"{n}": zip_seed({"zeros": bytes(MIB)}).whole for n in range(20)}).whole)  # nested
    made.append(zip_seed({f"d{n}/" * 20 + "f": b"" for n in range(2000)}).whole)  # many folders
    lie = zip_seed({"zeros": bytes(10**6)}).whole
    made.append(lie.replace(struct.pack("<I", 10**6), struct.pack("<I", 100)))
    made.append(lie.replace(struct.pack("<I", 10**6), struct.pack("<I", 2**32 - 2)))
    for kind in (tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XGLTYPE):
        made.append(tarred([tar_head("x", 2**33 - 1, kind), b""]))
    made.append(tarred([tar_head("x", 30, tarfile.XHDTYPE), b"30 size=99999999999999999999\n", tar_head("y", 1), b"a"]))
    return made


def images() -> list[bytes]:
    """Few bytes, many pixels; text and profiles that unpack to much."""

    def chunk(width: int, height: int) -> bytes:
        return b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)

    sides = [(2**31 - 1, 2**31 - 1), (60_000, 60_000), (9000, 9000), (1, 2**31 - 1), (2**26, 2), (0, 0), (2**26, 1)]
    small = b"IDAT" + zlib.compress(bytes(1000))
    made = [png([chunk(*side), small, b"IEND"]) for side in sides]
    made.append(png([chunk(3000, 3000), b"IDAT" + zlib.compress(bytes(3000 * (3 * 3000 + 1))), b"IEND"]))
    packed_text = zlib.compress(bytes(BOMB))
    made.append(png([chunk(8, 8), b"zTXta\0\0" + packed_text, small, b"IEND"]))
    made.append(png([chunk(8, 8), b"iCCPa\0\0" + packed_text, small, b"IEND"]))
    made.append(b"GIF89a" + struct.pack("<HH", 65535, 65535) + b"\0\0\0," + bytes(4) + struct.pack("<HH", 65535, 65535))
    for width, height in ((2**31 - 1, 1), (1, -(2**31)), (40_000, 40_000)):
        made.append(b"BM" + struct.pack("<IHHIIiiHHIIiiII", 100, 0, 0, 54, 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0))
    return made


@cache
def claims() -> dict[str, list[bytes]]:
    """Headers that promise more than is there, and files that unpack to far more than they are."""
    shape, zeros = struct.pack(">I3I", 0x0803, 2**31, 2**31, 2**31), zlib.compress(bytes(BOMB), 9)
    lie = npy(COLOUR).replace(b"(4, 5, 6, 3), }            ", b"(900000000000, 6, 3), }    ")
    deep = b"\x93NUMPY\x02\0" + struct.pack("<I", 50_000) + b"(" * 50_000
    long = b"\x93NUMPY\x02\0" + struct.pack("<I", 2**32 - 1) + b"{"
    members = [{f"{x}.npy": one, "y_train.npy": npy(LABELS)} for x in ("x_train", "X") for one in (lie, deep, long)]
    flat = npy(GREY[:, :, 0]).replace(b"(4, 5)", b"(0, 5)")
    bomb = npy(GREY)[:128] + bytes(BOMB)
    npz = [*(zip_seed(one).whole for one in members), zip_seed({"X.npy": flat, "y.npy": flat, "owner.npy": flat}).whole]
    big = (
        struct.pack("<II", 6, 8)
        + struct.pack("<II", 9, 0)
        + struct.pack("<II", 5, 16)
        + struct.pack("<4i", *[2**31 - 1] * 4)
    )
    entry = {"dtype": "F32", "shape": [2**40, 2**20], "data_offsets": [0, 2**62]}
    empty = {"dtype": "F32", "shape": [0, 2**62], "data_offsets": [0, 0]}
    return {
        "idx": [shape, packed([shape]), packed([struct.pack(">I3I", 0x0803, BOMB, 1, 1), bytes(BOMB)])],
        "mat": [mat(pack=pack)([big + struct.pack("<II", 1, 0)]) for pack in (True, False)]
        + [MAT_HEAD + struct.pack("<II", 15, len(zeros)) + zeros],
        "libsvm": [bz2.compress(b"\n" * (MIB // 2)), bz2.compress(b"1 " * (MIB // 2)), b"1 1:" + b"9" * MIB],
        "npz": [*npz, zip_seed({"X.npy": bomb}).whole, zip_seed({"x_train.npy": bomb}, zipfile.ZIP_LZMA).whole],
        "tensors": [
            struct.pack("<Q", 2**63) + b"{}",
            struct.pack("<Q", 2**40) + b"{}",
            *(told({"format": "fedco2 domain 1", "about": "{}"}, {"shared/w": one}) for one in (entry, empty)),
            told({"about": "[" * 100_000}, {}),
            told({"about": '{"format": "fedco2 checkpoint 1", "round": 1' + "0" * 5000 + "}"}, {}),
        ],
    }
