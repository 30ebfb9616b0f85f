"""Small valid files of every layout that images are published in."""

from __future__ import annotations

import bz2
import io
import pickle
import struct
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fuzzing.containers import build_gzip, build_png_seed, build_tar_seed, build_zip_seed, encode_npy, make_mat_builder
from fuzzing.seed_file import Seed, build_plain_seed

RNG = np.random.default_rng(0)
GREY_IMAGES = RNG.integers(0, 256, (4, 5, 6), dtype=np.uint8)
COLOUR_IMAGES = RNG.integers(0, 256, (4, 5, 6, 3), dtype=np.uint8)
CIFAR_ROWS = RNG.integers(0, 256, (10, 3072), dtype=np.uint8)
LABELS = np.array([3, 0, 9, 1])


def build_idx_seeds() -> list[Seed]:
    """Images and labels, plain and gzip."""
    files = [
        struct.pack(f">I{a.ndim}I", 0x800 + a.ndim, *a.shape) + a.tobytes() for a in (GREY_IMAGES, LABELS.astype("u1"))
    ]
    return [
        build_plain_seed(files[0]),
        build_plain_seed(files[1]),
        Seed((files[0],), build_gzip),
        Seed((files[1],), build_gzip),
    ]


def build_matlab_seeds() -> list[Seed]:
    """SVHN's two matrices, packed and not."""
    digits = np.where(LABELS == 0, 10, LABELS).astype("u1")[:, None]
    parts = tuple(
        _encode_matrix(name, array) for name, array in ((b"X", COLOUR_IMAGES.transpose(1, 2, 3, 0)), (b"y", digits))
    )
    return [Seed(parts, make_mat_builder(pack=False)), Seed(parts, make_mat_builder(pack=True))]


def _encode_matrix(name: bytes, array: NDArray[Any]) -> bytes:
    shape = struct.pack(f"<{array.ndim}i", *array.shape)
    parts = [(6, struct.pack("<II", 9, 0)), (5, shape), (1, name), (2, array.tobytes("F"))]
    return b"".join(struct.pack("<II", kind, len(body)) + body + bytes(-len(body) % 8) for kind, body in parts)


def build_libsvm_seeds() -> list[Seed]:
    """USPS, text and bz2."""
    lines = [
        b"%d " % (n + 1) + b" ".join(b"%d:%.2f" % (i, (i * n) % 200 / 100 - 1) for i in range(1, 257)) for n in (0, 9)
    ]
    text = tuple(line + b"\n" for line in lines)
    return [Seed(text), Seed(text, lambda parts: bz2.compress(b"".join(parts), 1))]


def build_cifar_seeds(binary: bool) -> list[Seed]:
    """CIFAR-10 as tar.gz, tar and zip."""
    files = {}
    for number in range(5):
        rows, labels = CIFAR_ROWS[2 * number : 2 * number + 2], [number, 9 - number]
        name = f"cifar-10/data_batch_{number + 1}"
        if binary:
            files[f"{name}.bin"] = np.c_[np.array(labels, np.uint8), rows].tobytes()
        else:
            files[name] = pickle.dumps({b"data": rows, b"labels": labels, b"filenames": [b"a", b"b"]}, 2)
    return [build_tar_seed(files, pack=True), build_tar_seed(files, pack=False), build_zip_seed(files)]


def build_digits_seeds() -> list[Seed]:
    """FedBN's pairs, in every protocol."""
    pairs: Sequence[object] = [(COLOUR_IMAGES, LABELS), (GREY_IMAGES, LABELS.tolist())]
    return [build_plain_seed(pickle.dumps(pair, protocol)) for pair in pairs for protocol in (0, 1, 2, 3, 4, 5)]


def build_index_seeds() -> list[Seed]:
    """FedBN's lists of images."""
    paths, labels = ["dslr/mug/a.png", "dslr/bike/b.png"], ["mug", "bike"]
    pairs: Sequence[object] = [(paths, labels), (np.array(paths, dtype=object), np.array(labels))]
    return [build_plain_seed(pickle.dumps(pair, protocol)) for pair in pairs for protocol in (0, 2, 4)]


def build_npz_seeds() -> list[Seed]:
    """With each of the four ways to pack a member."""
    arrays = {
        "x_train": encode_npy(COLOUR_IMAGES),
        "y_train": encode_npy(LABELS),
        "x_test": encode_npy(GREY_IMAGES, fortran=True),
        "y_test": encode_npy(LABELS),
    }
    files = {f"{name}.npy": data for name, data in arrays.items()}
    methods = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    return [build_zip_seed(files, method) for method in methods]


def build_image_seeds() -> list[Seed]:
    """Of each format that is read, several kinds, and two that are not read."""
    base = Image.fromarray(CIFAR_ROWS.reshape(-1, 3)[:, :].reshape(80, 128, 3)[:24, :20])
    kinds: list[tuple[str, str, dict[str, Any]]] = [
        ("RGB", "PNG", {}),
        ("P", "PNG", {"transparency": 0}),
        ("1", "PNG", {}),
        ("I;16", "PNG", {}),
        ("RGBA", "PNG", {"dpi": (72, 72)}),
        ("RGB", "JPEG", {"quality": 80}),
        ("RGB", "JPEG", {"progressive": True, "comment": b"hello"}),
        ("CMYK", "JPEG", {"exif": Image.Exif()}),
        ("RGB", "BMP", {}),
        ("P", "BMP", {}),
        ("P", "GIF", {"save_all": True, "append_images": [base.convert("P")], "loop": 0}),
        ("RGB", "WEBP", {}),
        ("RGB", "TIFF", {}),
    ]
    seeds = []
    for mode, form, options in kinds:
        stream = io.BytesIO()
        base.convert(mode if mode != "I;16" else "I").convert(mode).save(stream, form, **options)
        data = stream.getvalue()
        seeds.append(build_png_seed(data) if form == "PNG" else build_plain_seed(data))
    return seeds


def build_archive_seeds() -> list[Seed]:
    """Folders, empty files, text, and an archive within an archive."""
    files = {"set/a/1.txt": b"one", "set/a/2.txt": b"two" * 300, "set/b/3.txt": b""}
    nested = {
        "set/inner.zip": build_zip_seed(files).content,
        "set/inner.tar.gz": build_tar_seed(files, pack=True).content,
    }
    tars = [build_tar_seed(one, pack) for one in (files, nested) for pack in (True, False)]
    return [*tars, build_zip_seed(files), build_zip_seed(files, zipfile.ZIP_STORED), build_zip_seed(nested)]
