"""Data sets in the layouts in which they are published, a few images each, and what attacks on them share."""

import bz2
import gzip
import io
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.io import savemat

from fedtrain.data.datasets import get_dataset_info
from fedtrain.data.errors import DataError
from fedtrain.data.readers.class_folders import OFFICE_CLASSES

Array = NDArray[Any]
RNG = np.random.default_rng(0)
GREY_IMAGES = RNG.integers(0, 256, (6, 5, 4), dtype=np.uint8)
COLOUR_IMAGES = RNG.integers(0, 256, (6, 5, 4, 3), dtype=np.uint8)
CIFAR_IMAGES = RNG.integers(0, 256, (10, 32, 32, 3), dtype=np.uint8)
USPS_IMAGES = RNG.integers(0, 256, (3, 16, 16), dtype=np.uint8)
LABELS = np.array([3, 0, 9, 1, 1, 7])
SMALL_OFFICE = replace(get_dataset_info("office"), input_shape=(3, 32, 32))


def ignore_progress(what: str, done: int, total: int) -> None:
    """No progress is shown."""


def write_tar(path: Path, files: dict[str, bytes], mode: str = "w:gz") -> None:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def to_planes(images: Array) -> Array:
    """As CIFAR stores them: (n, 3072), one colour after another."""
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2)).reshape(len(images), -1)


def encode_npy(array: Array) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()


def write_idx(path: Path, array: Array, pack: bool) -> None:
    data = struct.pack(f">I{array.ndim}I", 0x0800 + array.ndim, *array.shape) + array.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(data) if pack else data)


def write_idx_pair(folder: Path, pack: bool) -> Path:
    end = ".gz" if pack else ""
    write_idx(folder / f"t10k-labels-idx1-ubyte{end}", LABELS, pack)
    write_idx(folder / f"t10k-images-idx3-ubyte{end}", GREY_IMAGES, pack)
    return folder / f"t10k-images-idx3-ubyte{end}"


def write_mat_file(folder: Path, pack: bool) -> Path:
    y = np.where(LABELS == 0, 10, LABELS).astype(np.uint8)[:, None]
    savemat(folder / "a.mat", {"X": COLOUR_IMAGES.transpose(1, 2, 3, 0), "y": y}, do_compression=pack)
    return folder / "a.mat"


def write_libsvm_file(folder: Path, pack: bool) -> Path:
    lines = []
    for label, image in zip(LABELS, USPS_IMAGES, strict=False):
        x = (image.reshape(-1) + 0.5) / 255 * 2 - 1  # half a step up, as the reader cuts off
        lines.append(f"{label + 1} " + " ".join(f"{i}:{v:.6f}" for i, v in enumerate(np.minimum(x, 1), 1)))
    data = "\n".join([*lines, ""]).encode()
    (folder / "usps").write_bytes(bz2.compress(data) if pack else data)
    return folder / "usps"


def write_npz_file(folder: Path, method: int) -> Path:
    with zipfile.ZipFile(folder / "a.npz", "w", method) as file:
        for name, array in {
            "x_train": COLOUR_IMAGES,
            "y_train": LABELS,
            "x_test": GREY_IMAGES,
            "y_test": LABELS,
        }.items():
            file.writestr(f"{name}.npy", encode_npy(array))
    return folder / "a.npz"


def build_cifar10_files(binary: bool) -> dict[str, bytes]:
    files = {}
    for i, name in enumerate([f"data_batch_{i}" for i in range(1, 6)]):
        data, labels = to_planes(CIFAR_IMAGES[2 * i : 2 * i + 2]), [i, 9 - i]
        if binary:
            files[f"cifar-10-batches-bin/{name}.bin"] = np.c_[np.array(labels, np.uint8), data].tobytes()
        else:
            batch = {b"data": data, b"labels": labels, b"filenames": [b"a.png", b"b.png"], b"batch_label": b"one"}
            files[f"cifar-10-batches-py/{name}"] = pickle.dumps(batch, 2)
    return {"cifar-10/readme.html": b"hello", **files}


CIFAR10_LABELS = [0, 9, 1, 8, 2, 7, 3, 6, 4, 5]


def write_cifar10_archive(folder: Path, binary: bool) -> Path:
    write_tar(folder / "cifar10.tar.gz", build_cifar10_files(binary))
    return folder / "cifar10.tar.gz"


def write_cifar100_folder(folder: Path, binary: bool) -> Path:
    inner = folder / ("cifar-100-binary" if binary else "cifar-100-python")
    inner.mkdir(exist_ok=True)
    fine, coarse = list(range(90, 100)), list(range(10, 20))
    if binary:
        (inner / "train.bin").write_bytes(
            np.c_[np.array([coarse, fine], np.uint8).T, to_planes(CIFAR_IMAGES)].tobytes()
        )
        return inner / "train.bin"
    batch = {b"data": to_planes(CIFAR_IMAGES), b"fine_labels": fine, b"coarse_labels": coarse}
    (inner / "train").write_bytes(pickle.dumps(batch, 2))
    return inner / "train"


def write_digits_folder(folder: Path, protocol: int) -> Path:
    (folder / "partitions").mkdir(exist_ok=True)
    for i in range(10):
        (folder / "partitions" / f"train_part{i}.pkl").write_bytes(
            pickle.dumps((COLOUR_IMAGES[i // 2 :], LABELS[i // 2 :]))
        )
    (folder / "test.pkl").write_bytes(pickle.dumps((COLOUR_IMAGES, LABELS), protocol))
    return folder / "test.pkl"


def write_image_folder(folder: Path, suffix: str) -> Path:
    for name, picture in zip(OFFICE_CLASSES, CIFAR_IMAGES, strict=True):
        (folder / "dslr" / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(folder / "dslr" / name / f"frame_0001{suffix}")
    return folder / "dslr" / OFFICE_CLASSES[0] / f"frame_0001{suffix}"


def write_image_list(folder: Path, protocol: int) -> Path:
    write_image_folder(folder, ".png")
    order = [3, 1, 9]
    paths = [f"dslr/{OFFICE_CLASSES[i]}/frame_0001.png" for i in order]
    pair = (np.array(paths, dtype=object), np.array([OFFICE_CLASSES[i] for i in order]))
    (folder / "dslr_train.pkl").write_bytes(pickle.dumps(pair, protocol))
    return folder / "dslr_train.pkl"


# --- attacks


def reads_or_raises_data_error(read: Callable[[], object]) -> bool:
    """True if it was read at all; a message is one printable line."""
    try:
        read()
    except DataError as error:
        message = str(error)
    else:
        return True
    assert message.isprintable()
    return False


class PickledCall:
    """Pickled, it is a call."""

    def __init__(self, function: Callable[..., object], *arguments: object, state: object = None) -> None:
        self.parts = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.parts
