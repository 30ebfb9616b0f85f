"""Readers: each layout is written small, read back exactly, and then attacked. Only `DataError` may come out."""

import bz2
import copyreg
import gzip
import io
import os
import pickle
import shutil
import stat
import struct
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from scipy.io import savemat

from fedtrain.data.errors import DataError
from fedtrain.data.readers import (
    Images,
    extract,
    idx,
    libsvm,
    mat,
    npz,
    read_cifar10,
    read_cifar100,
    read_digits,
    read_folder,
    read_idx,
    read_image,
    read_index,
    read_indexed,
    read_libsvm,
    read_mat,
    read_mnist,
    read_npz,
)
from fedtrain.data.readers.folder import DOMAINNET, OFFICE, list_folder
from fedtrain.data.readers.guard import bounded, read_bytes
from fedtrain.data.readers.images import checked
from fedtrain.data.readers.members import Limits
from fedtrain.data.readers.safe_pickle import load, loads
from theory.errors import InputError

Array = NDArray[Any]
RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (6, 5, 4), dtype=np.uint8)
COLOUR = RNG.integers(0, 256, (6, 5, 4, 3), dtype=np.uint8)
CIFAR = RNG.integers(0, 256, (10, 32, 32, 3), dtype=np.uint8)
USPS = RNG.integers(0, 256, (3, 16, 16), dtype=np.uint8)
LABELS = np.array([3, 0, 9, 1, 1, 7])


def tarred(path: Path, files: dict[str, bytes], mode: str = "w:gz") -> None:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def planes(images: Array) -> Array:
    """As CIFAR stores them: (n, 3072), one colour after another."""
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2)).reshape(len(images), -1)


def npy(array: Array) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()


# --- the layouts: how each is written, how it is read, what must come out -------------------------------------------


def write_idx(path: Path, array: Array, pack: bool) -> None:
    data = struct.pack(f">I{array.ndim}I", 0x0800 + array.ndim, *array.shape) + array.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(data) if pack else data)


def idx_pair(folder: Path, pack: bool) -> Path:
    end = ".gz" if pack else ""
    write_idx(folder / f"t10k-labels-idx1-ubyte{end}", LABELS, pack)
    write_idx(folder / f"t10k-images-idx3-ubyte{end}", GREY, pack)
    return folder / f"t10k-images-idx3-ubyte{end}"


def mat_file(folder: Path, pack: bool) -> Path:
    y = np.where(LABELS == 0, 10, LABELS).astype(np.uint8)[:, None]
    savemat(folder / "a.mat", {"X": COLOUR.transpose(1, 2, 3, 0), "y": y}, do_compression=pack)
    return folder / "a.mat"


def libsvm_file(folder: Path, pack: bool) -> Path:
    lines = []
    for label, image in zip(LABELS, USPS, strict=False):
        x = (image.reshape(-1) + 0.5) / 255 * 2 - 1  # half a step up, as the reader cuts off
        lines.append(f"{label + 1} " + " ".join(f"{i}:{v:.6f}" for i, v in enumerate(np.minimum(x, 1), 1)))
    data = "\n".join([*lines, ""]).encode()
    (folder / "usps").write_bytes(bz2.compress(data) if pack else data)
    return folder / "usps"


def npz_file(folder: Path, method: int) -> Path:
    with zipfile.ZipFile(folder / "a.npz", "w", method) as file:
        for name, array in {"x_train": COLOUR, "y_train": LABELS, "x_test": GREY, "y_test": LABELS}.items():
            file.writestr(f"{name}.npy", npy(array))
    return folder / "a.npz"


def cifar10_files(binary: bool) -> dict[str, bytes]:
    files = {}
    for i, name in enumerate([f"data_batch_{i}" for i in range(1, 6)]):
        data, labels = planes(CIFAR[2 * i : 2 * i + 2]), [i, 9 - i]
        if binary:
            files[f"cifar-10-batches-bin/{name}.bin"] = np.c_[np.array(labels, np.uint8), data].tobytes()
        else:
            batch = {b"data": data, b"labels": labels, b"filenames": [b"a.png", b"b.png"], b"batch_label": b"one"}
            files[f"cifar-10-batches-py/{name}"] = pickle.dumps(batch, 2)
    return {"cifar-10/readme.html": b"hello", **files}


CIFAR10_LABELS = [0, 9, 1, 8, 2, 7, 3, 6, 4, 5]


def cifar10_archive(folder: Path, binary: bool) -> Path:
    tarred(folder / "cifar10.tar.gz", cifar10_files(binary))
    return folder / "cifar10.tar.gz"


def cifar100_folder(folder: Path, binary: bool) -> Path:
    inner = folder / ("cifar-100-binary" if binary else "cifar-100-python")
    inner.mkdir(exist_ok=True)
    fine, coarse = list(range(90, 100)), list(range(10, 20))
    if binary:
        (inner / "train.bin").write_bytes(np.c_[np.array([coarse, fine], np.uint8).T, planes(CIFAR)].tobytes())
        return inner / "train.bin"
    batch = {b"data": planes(CIFAR), b"fine_labels": fine, b"coarse_labels": coarse}
    (inner / "train").write_bytes(pickle.dumps(batch, 2))
    return inner / "train"


def digits_folder(folder: Path, protocol: int) -> Path:
    (folder / "partitions").mkdir(exist_ok=True)
    for i in range(10):
        (folder / "partitions" / f"train_part{i}.pkl").write_bytes(pickle.dumps((COLOUR[i // 2 :], LABELS[i // 2 :])))
    (folder / "test.pkl").write_bytes(pickle.dumps((COLOUR, LABELS), protocol))
    return folder / "test.pkl"


def image_folder(folder: Path, suffix: str) -> Path:
    for name, picture in zip(OFFICE, CIFAR, strict=True):
        (folder / "dslr" / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(folder / "dslr" / name / f"frame_0001{suffix}")
    return folder / "dslr" / OFFICE[0] / f"frame_0001{suffix}"


def index_file(folder: Path, protocol: int) -> Path:
    image_folder(folder, ".png")
    order = [3, 1, 9]
    paths = [f"dslr/{OFFICE[i]}/frame_0001.png" for i in order]
    pair = (np.array(paths, dtype=object), np.array([OFFICE[i] for i in order]))
    (folder / "dslr_train.pkl").write_bytes(pickle.dumps(pair, protocol))
    return folder / "dslr_train.pkl"


@dataclass(frozen=True)
class Layout:
    """``write`` gives the file to attack; ``read`` takes the folder."""

    write: Callable[[Path], Path]
    read: Callable[[Path], Images]
    images: Array
    labels: Sequence[int] | Array
    exact: bool = True  # JPEG is not


def digit(**kwargs: Any) -> dict[str, Any]:
    return {"images": COLOUR, "labels": LABELS.tolist(), **kwargs}


GREY4 = GREY[..., None]
LAYOUTS: dict[str, Layout] = {
    "idx": Layout(lambda f: idx_pair(f, False), lambda f: read_mnist(f, "test"), **digit(images=GREY4)),
    "idx.gz": Layout(lambda f: idx_pair(f, True), lambda f: read_mnist(f, "test"), **digit(images=GREY4)),
    "mat": Layout(lambda f: mat_file(f, False), lambda f: read_mat(f / "a.mat"), **digit()),
    "mat packed": Layout(lambda f: mat_file(f, True), lambda f: read_mat(f / "a.mat"), **digit()),
    "libsvm": Layout(lambda f: libsvm_file(f, False), lambda f: read_libsvm(f / "usps"), USPS[..., None], LABELS[:3]),
    "libsvm.bz2": Layout(
        lambda f: libsvm_file(f, True), lambda f: read_libsvm(f / "usps"), USPS[..., None], LABELS[:3]
    ),
    "npz stored": Layout(
        lambda f: npz_file(f, zipfile.ZIP_STORED), lambda f: read_npz(f / "a.npz", "train", 10), **digit()
    ),
    "npz lzma": Layout(
        lambda f: npz_file(f, zipfile.ZIP_LZMA), lambda f: read_npz(f / "a.npz", "test"), **digit(images=GREY4)
    ),
    "cifar10 python": Layout(
        lambda f: cifar10_archive(f, False),
        lambda f: read_cifar10(f / "cifar10.tar.gz", "train"),
        CIFAR,
        CIFAR10_LABELS,
    ),
    "cifar10 binary": Layout(
        lambda f: cifar10_archive(f, True), lambda f: read_cifar10(f / "cifar10.tar.gz", "train"), CIFAR, CIFAR10_LABELS
    ),
    "cifar100 python": Layout(
        lambda f: cifar100_folder(f, False), lambda f: read_cifar100(f, "train"), CIFAR, range(90, 100)
    ),
    "cifar100 binary": Layout(
        lambda f: cifar100_folder(f, True), lambda f: read_cifar100(f, "train", "coarse"), CIFAR, range(10, 20)
    ),
    **{
        f"digits protocol {p}": Layout(partial(digits_folder, protocol=p), lambda f: read_digits(f, "test"), **digit())
        for p in (0, 2, 4, 5)
    },
    "index": Layout(
        lambda f: index_file(f, 4),
        lambda f: read_indexed(f / "dslr_train.pkl", f, OFFICE, (32, 32)),
        CIFAR[[3, 1, 9]],
        [3, 1, 9],
    ),
    "folder png": Layout(
        lambda f: image_folder(f, ".png"), lambda f: read_folder(f / "dslr", (32, 32)), CIFAR, range(10)
    ),
    "folder bmp": Layout(
        lambda f: image_folder(f, ".bmp"), lambda f: read_folder(f / "dslr", (32, 32)), CIFAR, range(10)
    ),
    "folder jpg": Layout(
        lambda f: image_folder(f, ".jpg"), lambda f: read_folder(f / "dslr", (32, 32)), CIFAR, range(10), exact=False
    ),
}
every_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


@every_layout
def test_what_was_written_is_read(layout: Layout, tmp_path: Path) -> None:
    layout.write(tmp_path)
    read = layout.read(tmp_path)
    assert read.images.dtype == np.uint8
    assert read.labels.dtype == np.int64
    assert read.images.shape == layout.images.shape
    assert read.labels.tolist() == list(layout.labels)
    assert read.images.flags.writeable
    assert read.images.flags.c_contiguous
    assert len(read) == len(layout.labels)
    if layout.exact:
        assert np.array_equal(read.images, layout.images)


def only_data_error(read: Callable[[], object]) -> bool:
    """True if it was read at all; a message is one printable line."""
    try:
        read()
    except DataError as error:
        message = str(error)
    else:
        return True
    assert message.isprintable()
    return False


@every_layout
def test_truncated_files_are_refused(layout: Layout, tmp_path: Path) -> None:
    file = layout.write(tmp_path)
    whole = file.read_bytes()
    places = {*range(min(len(whole), 64)), *range(0, len(whole), max(1, len(whole) // 30)), len(whole) - 40}
    for place in sorted(p for p in places if 0 <= p <= len(whole) - 40):
        file.write_bytes(whole[:place])
        survived = only_data_error(lambda: layout.read(tmp_path))
        # only a text file may end after any line, and a binary CIFAR file after any record
        assert not survived or file.name in ("usps", "train.bin"), place


@every_layout
def test_flipped_bytes_are_read_or_refused(layout: Layout, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("flips")
    file = layout.write(folder)
    whole = file.read_bytes()
    place = st.integers(0, len(whole) - 1) | st.integers(0, min(len(whole), 300) - 1)
    flips = st.lists(st.tuples(place, st.integers(0, 255)), min_size=1, max_size=4)

    @settings(max_examples=25, suppress_health_check=list(HealthCheck))
    @given(flips, st.sampled_from([b"", b"", b"\0" * 8, b"\xff" * 8]), place)
    def attack(changes: list[tuple[int, int]], extra: bytes, where: int) -> None:
        data = bytearray(whole)
        for at, value in changes:
            data[at] = value
        data[where : where + len(extra)] = extra
        file.write_bytes(data)
        only_data_error(lambda: layout.read(folder))

    attack()


@pytest.mark.parametrize(
    "read",
    [
        lambda f: read_idx(f, f),
        read_mat,
        read_libsvm,
        lambda f: read_npz(f, "train"),
        lambda f: read_cifar10(f, "train"),
        lambda f: read_cifar100(f, "test"),
        lambda f: read_digits(f.parent, "test"),
        read_index,
        load,
        read_image,
        lambda f: extract(f, f.parent / "out"),
    ],
)
def test_arbitrary_bytes_are_refused(read: Callable[[Path], object], tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("noise") / "test.pkl"
    heads = [
        b"",
        b"\x1f\x8b\x08\0",
        b"PK\x03\x04",
        b"BZh9",
        b"\x80\x04",
        b"\x89PNG\r\n\x1a\n",
        b"\xff\xd8\xff",
        b"(",
        b"GIF89a",
    ]

    @settings(max_examples=25)
    @given(st.sampled_from(heads), st.binary(max_size=300))
    def attack(head: bytes, tail: bytes) -> None:
        file.write_bytes(head + tail)
        only_data_error(lambda: read(file))

    attack()


@pytest.mark.parametrize("place", ["missing", "folder", "pipe"])
def test_what_is_no_file_is_named(place: str, tmp_path: Path) -> None:
    path = tmp_path / place
    if place == "folder":
        path.mkdir()
    elif place == "pipe":
        os.mkfifo(path)  # reading it would block for ever
    for read in (read_mat, read_libsvm, load, read_image, read_index, lambda p: read_npz(p, "train")):
        with pytest.raises(DataError, match=f"{place}: "):
            read(path)
    with pytest.raises(DataError, match=place):
        read_idx(path, path)
    with pytest.raises(DataError, match=place):
        extract(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_data_error_is_an_input_error_on_one_line() -> None:
    error = DataError("a\nb\x1b[31m\udcff: wrong")
    assert isinstance(error, InputError)
    assert str(error) == "a\\nb\\x1b[31m\\udcff: wrong"
    assert DataError.exit_code == 3


# --- validation ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (COLOUR, LABELS[:5], "6 images but 5 labels"),
        (COLOUR, np.array([0, 1, 12, 3, -1, 5]), "label 12 of image 2 is not within 0..9"),
        (COLOUR, [0, 1, 2, 3, 4, -5], "label -5 of image 5"),
        (COLOUR, np.full(6, 2**64 - 1, dtype=np.uint64), "label 18446744073709551615 of image 0"),
        (COLOUR, LABELS + 0.5, "whole numbers"),
        (COLOUR, np.full(6, np.nan), "whole numbers"),
        (COLOUR, [0, 1, 2, 3, 4, 2**80], "whole numbers"),
        (COLOUR, [[0]] * 6, "whole numbers"),
        (COLOUR, np.zeros((6, 2), dtype=int), "must be \\(n,\\)"),
        (COLOUR, np.array(list("abcdef")), "not <U1"),
        (COLOUR, "abcdef", "not str"),
        (COLOUR / 255, LABELS, "multiply by 255"),
        (COLOUR.astype(np.float32), LABELS, "\\[0, 255\\]: round"),
        (COLOUR.astype(np.float32) - 9, LABELS, "0..255 as uint8"),
        (COLOUR.astype(np.int64), LABELS, "not int64"),
        (COLOUR.transpose(0, 3, 1, 2), LABELS, "channels to the last axis"),
        (COLOUR[:, :, :, :2], LABELS, "1 or 3"),
        (COLOUR[:, :0], LABELS, "1 or 3"),
        (COLOUR[0, 0], LABELS, "1 or 3"),
        (COLOUR[:0], LABELS[:0], "no images"),
        ([1, 2], LABELS, "array, not list"),
    ],
)
def test_wrong_arrays_are_refused_with_a_hint(images: object, labels: object, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        checked("file", images, labels, 10)
    assert str(caught.value).startswith("file: ")


def test_labels_may_be_a_column_of_doubles() -> None:
    assert checked("file", GREY, LABELS.astype(float)[:, None]).labels.tolist() == LABELS.tolist()


def test_labels_are_free_where_no_classes_are_given() -> None:
    assert checked("file", GREY, LABELS + 1000).labels.max() == 1009
    with pytest.raises(DataError, match="small whole number"):
        checked("file", GREY, LABELS - 1)


# --- pickles ---------------------------------------------------------------------------------------------------------

dtypes = st.sampled_from(["u1", "<i8", ">i4", "<f4", ">f8", "?", "S3", "<U4", ">U2"])
arrays = st.builds(
    lambda dtype, shape, order: np.asarray(RNG.integers(0, 2, shape).astype(dtype), order=order),
    dtypes,
    st.lists(st.integers(0, 3), max_size=3),
    st.sampled_from("CF"),
)
texts = st.lists(st.text(max_size=5), max_size=4).map(lambda t: np.array([*t, None], dtype=object)[:-1])
leaves: st.SearchStrategy[object] = (
    st.none() | st.booleans() | st.integers(-(2**100), 2**100) | st.floats(allow_nan=False) | st.text()
)
leaves |= st.binary() | arrays | texts | st.integers(0, 99).map(np.int64) | st.floats(0, 1).map(np.float32)
values = st.recursive(
    leaves,
    lambda v: st.lists(v) | st.lists(v).map(tuple) | st.dictionaries(st.text(max_size=9) | st.binary(max_size=9), v),
    max_leaves=12,
)


def same(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return type(a) is type(b) and a == b


@settings(max_examples=60)
@given(values, st.integers(0, 5))
def test_plain_data_come_back_as_they_were(value: object, protocol: int) -> None:
    assert same(loads(pickle.dumps(value, protocol), "file"), value)


def test_one_array_named_twice_is_one_array() -> None:
    read = loads(pickle.dumps([GREY] * 2, 2), "file")
    assert isinstance(read, list)
    assert read[0] is read[1]


def test_pickles_of_python_2_give_bytes() -> None:
    data = (
        b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85U\x01b"
        b"\x87Rq\x05(K\x01K\x02K\x02\x86cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87Rq\x07(K\x03U\x01|NNNJ\xff\xff\xff\xff"
        b"J\xff\xff\xff\xffK\x00tb\x89U\x04\x00\x7f\x80\xfftbU\x06labelsq\x08]q\x09(K\x01K\x02eu."
    )
    read = loads(data, "file")
    assert isinstance(read, dict)
    assert list(read) == [b"data", b"labels"]
    assert read[b"data"].tolist() == [[0, 127], [128, 255]]
    assert read[b"labels"] == [1, 2]


class Call:
    """Pickled, it is a call."""

    def __init__(self, function: Callable[..., object], *arguments: object, state: object = None) -> None:
        self.parts = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.parts


UNBUILT = b"\x80\x03cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"


def malicious(mark: str) -> dict[str, bytes]:
    """Pickles that would create the file ``mark``, or use other powers, with the standard unpickler."""
    touch = f"open({mark!r}, 'w').close()"
    system = Call(os.system, f"touch {mark}")
    evaluate = Call(eval, touch)
    line = touch.encode()
    shell = struct.pack("<I", len(f"touch {mark}")) + f"touch {mark}".encode()
    array = pickle.dumps(GREY, 2)
    bad: dict[str, object] = {
        "eval": evaluate,
        "exec": Call(exec, touch),
        "in a tuple": (GREY, evaluate),
        "in a dict": {b"data": GREY, b"labels": [1, evaluate]},
        "getattr": Call(getattr, Call(__import__, "os"), "system"),
        "nested": Call(eval, Call(str, touch)),
        "object array": np.array([evaluate, "b"], dtype=object),
        "state": Call(np.dtype, "u1", state=evaluate),
        "memmap": Call(np.memmap, mark, "u1", "w+", 0, (3,)),
        "numpy load": Call(np.load, mark),
        "set": {1, 2},
        "class": Path("a"),
        "complex": 1j,
    }
    pickles = {f"{name} {p}": pickle.dumps(value, p) for name, value in bad.items() for p in (0, 2, 4)}
    return (
        pickles
        | {f"system {p}": pickle.dumps(system, p) for p in range(6)}
        | {
            "inst": b"(S'" + line.replace(b"'", b'"') + b"'\nibuiltins\nexec\n.",
            "obj": b"(cbuiltins\nexec\nX" + struct.pack("<I", len(line)) + line + b"o.",
            "newobj": b"\x80\x02cbuiltins\nobject\n)\x81.",
            "newobj_ex": b"\x80\x04cbuiltins\nobject\n)}\x92.",
            "memo": b"\x80\x04(\x8c\x02os\x94\x8c\x06system\x94h\x00h\x01\x93X" + shell + b"\x85Rt.",
            "memo overwritten": UNBUILT + b"q\x01cos\nsystem\nq\x01h\x01X" + shell + b"\x85R\x86.",
            "dotted": b"\x80\x04\x8c\x05numpy\x8c\x0ef2py.os.system\x93\x8c\x04true\x85R.",
            "persistent id": b"P" + line + b"\n.",
            "binary persistent id": b"\x80\x02U\x01aQ.",
            "extension": b"\x80\x02\x82\xf0X" + struct.pack("<I", len(line)) + line + b"\x85R.",
            "extension 4": b"\x80\x02\x84\xf0\0\0\0).",
            "build on dict": b"\x80\x02}X\x01\0\0\0aK\x01\x85b.",
            "build twice": array[:-1] + b"(K\x01K\x00\x85Nb.",
            "call an array": array[:-1] + b")R.",
            "call text": b"\x80\x02U\x06system)R.",
            "encode by hex": b"c_codecs\nencode\n(X\x02\0\0\0abX\x03\0\0\0hextR.",
            "encode by zlib": b"c_codecs\nencode\n(C\x02abX\x04\0\0\0zlibtR.",
            "subclass": array.replace(b"cnumpy\nndarray\n", b"cnumpy\nmatrix\n"),
            "dtype name": b"cnumpy\ndtype\n(X\x03\0\0\0O,OtR.",
            "unbuilt array": UNBUILT + b"\x85.",
            "next buffer": b"\x80\x05\x97.",
        }
    )


def test_malicious_pickles_do_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    copyreg.add_extension("builtins", "exec", 0xF0)
    try:
        for name, data in malicious(str(mark)).items():
            file = tmp_path / "test.pkl"
            file.write_bytes(data)
            with pytest.raises(DataError, match=r"test\.pkl: "):
                read_digits(tmp_path, "test")
            if name != "unbuilt array":  # which is harmless, and no pair
                with pytest.raises(DataError, match="not a readable pickle"):
                    loads(data, "file")
            assert not mark.exists(), name
            assert sorted(p.name for p in tmp_path.iterdir()) == ["test.pkl"], name
    finally:
        copyreg.remove_extension("builtins", "exec", 0xF0)


@pytest.mark.parametrize("name", ["system 4", "exec 2", "inst", "obj", "extension", "memo", "memo overwritten"])
def test_the_malicious_pickles_are_malicious(name: str, tmp_path: Path) -> None:
    copyreg.add_extension("builtins", "exec", 0xF0)
    try:
        pickle.loads(malicious(str(tmp_path / "mark"))[name])
    finally:
        copyreg.remove_extension("builtins", "exec", 0xF0)
        copyreg.clear_extension_cache()
    assert (tmp_path / "mark").exists()


def test_what_a_pickle_asks_for_is_named() -> None:
    with pytest.raises(DataError, match=r"builtins\.eval"):
        loads(pickle.dumps(Call(eval, "1"), 4), "file")
    for name in ("memo", "memo overwritten"):
        with pytest.raises(DataError, match=r"asks for os\.system"):
            loads(malicious("mark")[name], "file")
    with pytest.raises(DataError, match=r"file: .*posix\.system"):
        loads(b"\x80\x04\x8c\x05posix\x8c\x06system\x93.", "file")
    with pytest.raises(DataError, match="PERSID"):
        loads(b"Pa\n.", "file")
    with pytest.raises(DataError, match="EXT1"):
        loads(b"\x80\x02\x82\x01.", "file")
    with pytest.raises(DataError) as caught:
        loads(b"\x80\x04X" + struct.pack("<I", 9999) + b"\n\x1b" * 4999 + b"a\x8c\x01x\x93.", "file")
    assert len(str(caught.value)) < 600


def claim(shape: bytes, data: bytes = b"C\x04abcd", code: bytes = b"u1") -> bytes:
    """A pickled array whose state is what one says; ``shape`` as opcodes."""
    return (
        UNBUILT
        + b"(K\x01"
        + shape
        + b"cnumpy\ndtype\nX"
        + struct.pack("<I", len(code))
        + code
        + b"K\x00K\x01\x87R(K\x03X\x01\0\0\0|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        + data
        + b"tb."
    )


def test_the_claim_is_an_array() -> None:
    assert loads(claim(b"K\x04\x85"), "file").tolist() == list(b"abcd")  # type: ignore[attr-defined]
    texts = loads(claim(b"K\x01\x85", b"]X\x01\0\0\0aa", b"O8"), "file")
    assert texts.tolist() == ["a"]  # type: ignore[attr-defined]


HUGE = b"\x8a\x08" + b"\xff" * 7 + b"\x7f"  # 2^63 - 1
NEST = b"\x80\x02]" + b"]".join([b""] * 50_000) + b"a" * 49_999 + b"."


@pytest.mark.parametrize(
    "data",
    [
        claim(HUGE + b"\x85"),
        claim(HUGE + HUGE + HUGE + b"\x87"),
        claim(b"K\x00" + HUGE + b"\x86"),
        claim(b"K\x05\x85"),
        claim(b"K\x03\x85"),
        claim(b"J\xff\xff\xff\xffJ\xfc\xff\xff\xff\x86"),
        claim(b"(" + b"K\x01" * 65 + b"t"),
        claim(b"X\x01\0\0\0a\x85"),
        claim(b"N"),
        claim(b"K\x04\x85", b"K\x07"),
        claim(b"K\x04\x85", code=b"O8"),
        claim(b"K\x01\x85", b"](K\x01e", b"O8"),
        claim(b"K\x01\x85", b"]](a", b"O8"),
        claim(HUGE + b"\x85", b"]X\x01\0\0\0aa", b"O8"),
        claim(b"K\x04\x85", code=b"V4"),
        claim(b"K\x04\x85", code=b"S0"),
        claim(b"K\x04\x85", code=b"U99999999"),
        claim(b"K\x04\x85", code=b"u1,u1"),
        b"\x80\x05\x96" + struct.pack("<Q", 2**62) + b"a.",
        b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b"a.",
        b"\x80\x04\x95" + struct.pack("<Q", 2**62) + b".",
        b"\x80\x02Nr\xff\xff\xff\x7f.",
        b"Np" + b"9" * 4000 + b"\n.",
        b"I" + b"9" * 100_000 + b"\n.",
        b"\x80\x02\x8b" + struct.pack("<i", 2**20) + b"\x7f" * 2**20 + b".",
        b"\x80\x02\x8b\xff\xff\xff\xff.",
        b"\x80\x02}(((((((((((tttttttttttK\x01u.",
        b"\x80\x02})" + b"\x85" * 20_000 + b"K\x01s.",
        b"\x80\x02})" + b"q\x01h\x01\x86" * 60 + b"K\x01s.",
        b"\x80\x02}K\x01K\x02s.",
        b"\x80\x02}(X\x01\0\0\0au.",
        b"\x80\x02cnumpy\ndtype\n(" + b"K\x01" * 20_000 + b"tR.",
        b"\x80\x02h\x05.",
        b"\x80\x02a.",
        b"\x80\x02t.",
        b"\x80\x02(.",
        b"\x80\x02NN.",
        b"\x80\x02N",
        b".",
        b"",
    ],
)
def test_false_claims_and_bombs_are_refused(data: bytes) -> None:
    with pytest.raises(DataError, match=r"^file: not a readable pickle: .*; fetch"):
        loads(data, "file")


def test_deep_and_endless_values_are_no_pair(tmp_path: Path) -> None:
    for data in (NEST, b"\x80\x02]q\x01h\x01a.", b"\x80\x02]q\x01(h\x01h\x01e."):
        assert isinstance(loads(data, "file"), list)
        (tmp_path / "test.pkl").write_bytes(data)
        for read in (read_digits, lambda folder, _: read_index(folder / "test.pkl")):
            with pytest.raises(DataError):
                read(tmp_path, "test")


def test_the_same_data_again_and_again_is_refused() -> None:
    long = b"X" + struct.pack("<I", 100_000) + b"a" * 100_000 + b"q\x01"
    encode = b"\x80\x02c_codecs\nencode\nq\x02X\x06\0\0\0latin1q\x03" + long
    with pytest.raises(DataError, match="again and again"):
        loads(encode + b"h\x02h\x01h\x03\x86R" * 1000 + b".", "file")
    items = b"](" + b"X\x01\0\0\0a" * 10_000 + b"eq\x09"
    once = claim(b"M\x10\x27\x85", b"h\x09", b"O8")[2:-1]
    with pytest.raises(DataError, match="again and again"):
        loads(b"\x80\x02" + items + once * 500 + b".", "file")


def test_too_many_opcodes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtrain.data.readers.safe_pickle.MAX_STEPS", 1000)
    with pytest.raises(DataError, match="1000 opcodes"):
        loads(b"](" + b"N" * 2000 + b"e.", "file")


def test_too_large_a_pickle_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("fedtrain.data.readers.safe_pickle.MAX_BYTES", 100)
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(GREY))
    with pytest.raises(DataError, match="more than the 100 allowed"):
        load(tmp_path / "a.pkl")


# --- each format's own ways to be wrong ------------------------------------------------------------------------------


def test_idx_files_that_lie(tmp_path: Path) -> None:
    file, labels = tmp_path / "images", tmp_path / "labels"
    write_idx(labels, LABELS, False)
    lie = struct.pack(">I3I", 0x0803, 2**31, 2**31, 2**31)
    for data in (lie, gzip.compress(lie), lie[:3] + b"\x01" + lie[4:]):
        file.write_bytes(data)
        with pytest.raises(DataError, match="images: not a readable idx file"):
            read_idx(file, labels)
    with pytest.raises(DataError, match="starts with 00 00 08 01, not 00 00 08 03"):
        read_idx(labels, labels)
    with pytest.raises(DataError, match="holds no train-images-idx3-ubyte"):
        read_mnist(tmp_path, "train")


def test_packed_bombs_stop_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_bytes(gzip.compress(struct.pack(">I3I", 0x0803, 2, 2, 2) + bytes(10**7)))
    with pytest.raises(DataError, match="more than the 8 bytes"):
        read_idx(file, file)
    monkeypatch.setattr(libsvm, "MAX_TEXT", 10**6)
    file.write_bytes(bz2.compress(b"\n" * 10**7))
    with pytest.raises(DataError, match="more than the 1000000 bytes"):
        read_libsvm(file)
    monkeypatch.setattr(mat, "MAX_BYTES", 10**6)
    head = b"MATLAB 5.0".ljust(124) + struct.pack("<H", 0x0100) + b"IM"
    packed = zlib.compress(bytes(10**7))
    file.write_bytes(head + struct.pack("<II", 15, len(packed)) + packed)
    with pytest.raises(DataError, match="more than the 1000000 bytes"):
        read_mat(file)
    monkeypatch.setattr(npz, "MAX_BYTES", 10**6)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("x_train.npy", bytes(10**7))
    with pytest.raises(DataError, match="more than the 1000000 bytes"):
        read_npz(file, "train")
    monkeypatch.setattr(idx, "MAX_BYTES", 10**6)
    file.write_bytes(gzip.compress(struct.pack(">I3I", 0x0803, 10**4, 1000, 1) + bytes(10**7)))
    with pytest.raises(DataError, match="more than the 1000000 bytes"):
        read_idx(file, file)


def test_reads_stop_at_the_limit(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="more than the 5 bytes"):
        bounded(io.BytesIO(b"123456"), 5)
    assert bounded(io.BytesIO(b"12345"), 5) == b"12345"
    (tmp_path / "a").write_bytes(b"123456")
    with pytest.raises(ValueError, match="6 bytes, more than the 5"):
        read_bytes(tmp_path / "a", 5)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"X": COLOUR}, "no array y of real numbers with 2 axes"),
        ({"X": COLOUR[0], "y": LABELS}, "no array X"),
        ({"X": np.array([[{"a": 1}]], dtype=object), "y": LABELS}, "no array X"),
        ({"X": "text", "y": LABELS}, "no array X"),
        ({"X": COLOUR.transpose(1, 2, 3, 0).astype(float) / 255, "y": LABELS}, "multiply by 255"),
        ({"X": COLOUR.transpose(1, 2, 3, 0), "y": LABELS + 5}, "label 14 of image 2"),
        ({"X": COLOUR.transpose(1, 2, 3, 0), "y": LABELS + 1j}, "no array y"),
    ],
)
def test_mat_files_with_other_content(variables: dict[str, Any], message: str, tmp_path: Path) -> None:
    savemat(tmp_path / "a.mat", variables)
    with pytest.raises(DataError, match=message):
        read_mat(tmp_path / "a.mat")


def test_mat_files_of_the_other_byte_order(tmp_path: Path) -> None:
    def element(kind: int, body: bytes) -> bytes:
        return struct.pack(">II", kind, len(body)) + body + bytes(-len(body) % 8)

    def matrix(name: bytes, kind: int, array: Array) -> bytes:
        shape = struct.pack(f">{array.ndim}i", *array.shape)
        parts = [(6, struct.pack(">II", 6, 0)), (5, shape), (1, name), (kind, array.tobytes("F"))]
        return element(14, b"".join(element(*part) for part in parts))

    head = b"MATLAB 5.0".ljust(124) + b"\x01\0MI"
    data = matrix(b"X", 2, COLOUR.transpose(1, 2, 3, 0)) + matrix(b"y", 3, LABELS.astype(">i2")[:, None])
    (tmp_path / "a.mat").write_bytes(head + data)
    read = read_mat(tmp_path / "a.mat")
    assert np.array_equal(read.images, COLOUR)
    assert np.array_equal(read.labels, LABELS)


@pytest.mark.parametrize("kind", [0, 8, 10, 14, 15, 20, 200])
def test_unknown_types_in_mat_files(kind: int, tmp_path: Path) -> None:
    file = mat_file(tmp_path, False)
    tag = struct.pack("<II", 2, COLOUR.size)
    assert file.read_bytes().count(tag) == 1
    file.write_bytes(file.read_bytes().replace(tag, struct.pack("<II", kind, COLOUR.size)))
    with pytest.raises(DataError, match=f"X holds values of an unknown type {kind}"):
        read_mat(file)


def test_other_versions_of_mat_files(tmp_path: Path) -> None:
    file = tmp_path / "a.mat"
    savemat(file, {"X": GREY[0], "y": LABELS}, format="4")
    with pytest.raises(DataError, match=r"a\.mat"):
        read_mat(file)
    file.write_bytes(b"MATLAB 7.3 MAT-file".ljust(124) + b"\0\x02IM" + bytes(600))
    with pytest.raises(DataError, match="-v7"):
        read_mat(file)


def test_usps_scales_as_the_reference(tmp_path: Path) -> None:
    values = np.linspace(-1, 1, 256)
    line = "10 " + " ".join(f"{i}:{v:.6f}" for i, v in enumerate(values, 1))
    (tmp_path / "usps").write_text(line)
    read = read_libsvm(tmp_path / "usps")
    wanted = ((np.array([f"{v:.6f}" for v in values], dtype=np.float32) + 1) / 2 * 255).astype(np.uint8)
    assert read.labels.tolist() == [9]
    assert np.array_equal(read.images.reshape(-1), wanted)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (" 2:", " 3:", "line 2 does not give the pixels"),
        ("256:", "257:", "line 1 does not"),
        (" 7:0", " 7:1.5 ", "line 1"),
        (" 7:0", " 7:nan0", "could not convert"),
        ("1 1:", "11 1:", "label 10 of image 0"),
        ("1 1:", "0 1:", "label -1 of image 0"),
        ("1 1:", "x 1:", "invalid literal"),
    ],
)
def test_libsvm_lines_that_are_wrong(old: str, new: str, message: str, tmp_path: Path) -> None:
    line = "1 " + " ".join(f"{i}:0.5" for i in range(1, 257))
    lines = [line, line.replace(old, new, 1)] if "line 2" in message else [line.replace(old, new, 1), line]
    (tmp_path / "usps").write_text("\n".join(lines))
    with pytest.raises(DataError, match=message):
        read_libsvm(tmp_path / "usps")


@pytest.mark.parametrize("value", ["1.01", "-1.01", "nan", "inf", "-inf", "1e400"])
def test_libsvm_pixels_out_of_range(value: str, tmp_path: Path) -> None:
    line = "1 " + " ".join(f"{i}:{value if i == 9 else 0}" for i in range(1, 257))
    (tmp_path / "usps").write_text(line)
    with pytest.raises(DataError, match="line 1 holds a pixel outside"):
        read_libsvm(tmp_path / "usps")


def test_npz_members_that_are_wrong(tmp_path: Path) -> None:
    objects = io.BytesIO()
    np.save(objects, np.array([Call(eval, "1")], dtype=object), allow_pickle=True)
    lie = npy(COLOUR).replace(b"(6, 5, 4, 3)", b"(9**9, 9, 3)")
    huge = npy(COLOUR).replace(b"(6, 5, 4, 3), }          ", b"(600000000, 5, 4, 3), }  ")
    assert len(huge) == len(npy(COLOUR))
    assert huge != npy(COLOUR)
    for data, message in [
        (objects.getvalue(), "not numbers"),
        (lie, r"a\.npz"),
        (huge, "does not fit"),
        (npy(COLOUR)[:-1], "does not fit"),
        (npy(COLOUR / 255), "multiply by 255"),
        (b"\x93NUMPY\x09\x00" + npy(COLOUR)[8:], r"a\.npz"),
        (b"", r"a\.npz"),
    ]:
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
            file.writestr("x_train.npy", data)
            file.writestr("y_train.npy", npy(LABELS))
        with pytest.raises(DataError, match=message):
            read_npz(tmp_path / "a.npz", "train")
        with pytest.raises(DataError, match="holds no array x_test"):
            read_npz(tmp_path / "a.npz", "test")


def test_fortran_order_in_npz(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", x_train=np.asfortranarray(COLOUR), y_train=LABELS)
    assert np.array_equal(read_npz(tmp_path / "a.npz", "train").images, COLOUR)


@pytest.mark.parametrize("binary", [False, True])
def test_cifar10_from_a_folder(binary: bool, tmp_path: Path) -> None:
    tarred(tmp_path / "a.tar", cifar10_files(binary), "w:")
    extract(tmp_path / "a.tar", tmp_path / "out")
    read = read_cifar10(tmp_path / "out", "train")
    assert np.array_equal(read.images, CIFAR)
    assert read.labels.tolist() == CIFAR10_LABELS
    inner = next(p for p in (tmp_path / "out").iterdir() if "batches" in p.name)
    assert np.array_equal(read_cifar10(inner, "train").images, CIFAR)
    with pytest.raises(DataError, match="holds no test_batch"):
        read_cifar10(inner, "test")
    next(inner.glob("data_batch_4*")).unlink()
    with pytest.raises(DataError, match="holds no data_batch_4"):
        read_cifar10(inner, "train")


def test_cifar_of_the_wrong_kind(tmp_path: Path) -> None:
    cifar100_folder(tmp_path, False)
    assert read_cifar100(tmp_path, "train", "coarse").labels.tolist() == list(range(10, 20))
    train = tmp_path / "cifar-100-python" / "train"
    for batch, message in [
        ({b"data": planes(CIFAR), b"labels": [0] * 10}, "other CIFAR"),
        ({b"data": CIFAR, b"fine_labels": [0] * 10}, "not an array"),
        ({b"data": planes(CIFAR) / 255, b"fine_labels": [0] * 10}, "not an array"),
        ({b"fine_labels": [0] * 10}, "not an array"),
        ({b"data": planes(CIFAR), b"fine_labels": [100] * 10}, "label 100 of image 0"),
        ({b"data": planes(CIFAR), b"fine_labels": [0] * 9}, "10 images but 9"),
        ([1, 2], "not a dict"),
    ]:
        train.write_bytes(pickle.dumps(batch, 2))
        with pytest.raises(DataError, match=message):
            read_cifar100(tmp_path, "train")


def test_cifar_archives_that_are_wrong(tmp_path: Path) -> None:
    files = cifar10_files(False)
    twice = files | {"other/data_batch_1": files["cifar-10-batches-py/data_batch_1"]}
    tarred(tmp_path / "twice.tar.gz", twice)
    with pytest.raises(DataError, match="data_batch_1 twice"):
        read_cifar10(tmp_path / "twice.tar.gz", "train")
    tarred(tmp_path / "empty.tar.gz", {})
    with pytest.raises(DataError, match="holds no data_batch_1"):
        read_cifar10(tmp_path / "empty.tar.gz", "train")
    evil = files | {"cifar-10-batches-py/data_batch_2": pickle.dumps(Call(eval, "1"), 2)}
    tarred(tmp_path / "evil.tar.gz", evil)
    with pytest.raises(DataError, match=r"\(data_batch_2\): .*__builtin__\.eval"):
        read_cifar10(tmp_path / "evil.tar.gz", "train")


def test_parts_of_digits(tmp_path: Path) -> None:
    digits_folder(tmp_path, 4)
    assert len(read_digits(tmp_path, "train")) == 2 * (6 + 5 + 4 + 3 + 2)
    three = read_digits(tmp_path, "train", parts=3)
    assert np.array_equal(three.images, np.concatenate([COLOUR, COLOUR, COLOUR[1:]]))
    for parts in (0, 11):
        with pytest.raises(DataError, match="1 to 10"):
            read_digits(tmp_path, "train", parts)
    (tmp_path / "partitions" / "train_part1.pkl").write_bytes(pickle.dumps((GREY, LABELS)))
    with pytest.raises(DataError, match="different shapes"):
        read_digits(tmp_path, "train", 2)
    (tmp_path / "partitions" / "train_part1.pkl").unlink()
    with pytest.raises(DataError, match=r"train_part1\.pkl: no such file"):
        read_digits(tmp_path, "train", 2)


@pytest.mark.parametrize("content", [COLOUR, [COLOUR], (COLOUR, LABELS, 1), "text", 5, None, {"a": 1}, np.float64(2)])
def test_digits_that_are_no_pair(content: object, tmp_path: Path) -> None:
    (tmp_path / "test.pkl").write_bytes(pickle.dumps(content))
    with pytest.raises(DataError, match=r"test\.pkl"):
        read_digits(tmp_path, "test")


@pytest.mark.parametrize(
    "make",
    [
        tuple,
        list,
        np.array,
        lambda pair: tuple(np.array(c, dtype=object) for c in pair),
        lambda p: tuple(map(tuple, p)),
    ],
)
def test_lists_of_images_in_any_wrapping(make: Callable[[Any], object], tmp_path: Path) -> None:
    pair = [["dslr/b.jpg", "dslr/a.jpg"], ["mug", "bike"]]
    (tmp_path / "i.pkl").write_bytes(pickle.dumps(make(pair), 4))
    index = read_index(tmp_path / "i.pkl")
    assert index.paths == ("dslr/b.jpg", "dslr/a.jpg")
    assert index.labels == ("mug", "bike")


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ((["../a.jpg"], ["mug"]), "does not stay inside"),
        ((["/etc/a.jpg"], ["mug"]), "does not stay inside"),
        ((["C:/a.jpg"], ["mug"]), "does not stay inside"),
        ((["a\\..\\b.jpg"], ["mug"]), "does not stay inside"),
        ((["a\0b.jpg"], ["mug"]), "does not stay inside"),
        (([""], ["mug"]), "does not stay inside"),
        ((["a.jpg"], ["mug", "bike"]), "1 paths but 2 labels"),
        ((["a.jpg"], [3]), "lists of text"),
        (([], []), "lists of text"),
        ((["a.jpg"], "mug"), "lists of text"),
        ((COLOUR, LABELS), "lists of text"),
        ((["a.jpg"], ["cup"]), "unknown class 'cup'"),
        ((["a.jpg"], ["mug"]), r"a\.jpg: no such file"),
    ],
)
def test_lists_of_images_that_are_wrong(pair: object, message: str, tmp_path: Path) -> None:
    (tmp_path / "i.pkl").write_bytes(pickle.dumps(pair))
    with pytest.raises(DataError, match=message):
        read_indexed(tmp_path / "i.pkl", tmp_path / "data", OFFICE, (8, 8))


def test_a_list_may_not_ask_for_more_than_memory_holds(tmp_path: Path) -> None:
    (tmp_path / "i.pkl").write_bytes(pickle.dumps((["a.jpg"] * 10**4, ["mug"] * 10**4)))
    with pytest.raises(DataError, match="smaller size"):
        read_indexed(tmp_path / "i.pkl", tmp_path, OFFICE, (4096, 4096))


# --- image folders and images ----------------------------------------------------------------------------------------


def test_class_order() -> None:
    assert dict(zip(OFFICE, range(10), strict=True)) == {
        "back_pack": 0,
        "bike": 1,
        "calculator": 2,
        "headphones": 3,
        "keyboard": 4,
        "laptop_computer": 5,
        "monitor": 6,
        "mouse": 7,
        "mug": 8,
        "projector": 9,
    }
    assert DOMAINNET[2:4] == ("headphones", "ice_cream")
    assert len(DOMAINNET) == 10


def test_folders_are_listed_in_a_fixed_order(tmp_path: Path) -> None:
    for name in ("b/10.png", "b/2.PNG", "b/.hidden", "b/Thumbs.db", "a/z.jpeg", "a/B.gif", "other/c.png", "b/x.bmp"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    listed = [(str(path.relative_to(tmp_path)), label) for path, label in list_folder(tmp_path, ("b", "a"))]
    assert listed == [("b/10.png", 0), ("b/2.PNG", 0), ("b/x.bmp", 0), ("a/B.gif", 1), ("a/z.jpeg", 1)]
    with pytest.raises(DataError, match="c: no such folder"):
        list_folder(tmp_path, ("a", "c"))
    (tmp_path / "a" / "notes.txt").touch()
    with pytest.raises(DataError, match=r"notes\.txt: not an image"):
        list_folder(tmp_path, ("a", "b"))
    (tmp_path / "b" / "deeper.png").mkdir()
    with pytest.raises(DataError, match=r"deeper\.png: not an image"):
        list_folder(tmp_path, ("b",))


def test_an_empty_folder_holds_no_images(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(DataError, match="no images"):
        read_folder(tmp_path, (8, 8), ["a"])
    with pytest.raises(DataError, match="positive height"):
        read_folder(tmp_path, (0, 8), ["a"])


def picture(mode: str) -> Image.Image:
    base = Image.fromarray(CIFAR[0])
    if mode == "P transparent":
        palette = base.convert("P", palette=Image.Palette.ADAPTIVE, colors=16)
        palette.info["transparency"] = bytes(range(0, 256, 16))
        return palette
    return base.convert(mode)


@pytest.mark.parametrize(
    ("mode", "suffix"),
    [
        ("L", ".png"),
        ("L", ".jpg"),
        ("LA", ".png"),
        ("RGBA", ".png"),
        ("P", ".png"),
        ("P", ".gif"),
        ("P transparent", ".png"),
        ("1", ".png"),
        ("I;16", ".png"),
        ("CMYK", ".jpg"),
        ("RGB", ".jpg"),
        ("RGB", ".png"),
    ],
)
def test_images_without_three_bands_become_grey(mode: str, suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"a{suffix}"
    picture(mode).save(file)
    read = read_image(file, (20, 40))
    with Image.open(file) as image, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bands = len(image.split())
        plain = image if bands == 3 else Image.merge("RGB", [image.convert("L")] * 3)
        wanted = np.asarray(plain.resize((40, 20), Image.Resampling.BILINEAR))
    assert read.shape == (20, 40, 3)
    assert np.array_equal(read, wanted)
    assert (bands == 3) == (mode == "RGB")
    grey = (read[..., 0] == read[..., 1]).all() and (read[..., 1] == read[..., 2]).all()
    assert grey == (bands != 3)


def test_a_truncated_jpeg_is_named(tmp_path: Path) -> None:
    file = image_folder(tmp_path, ".jpg")
    whole = file.read_bytes()
    for size in range(0, len(whole) - 2, 7):
        file.write_bytes(whole[:size])
        with pytest.raises(DataError, match=r"frame_0001\.jpg: not a readable image"):
            read_folder(tmp_path / "dslr", (32, 32))


def png_header(width: int, height: int) -> bytes:
    chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = b"IDAT" + zlib.compress(bytes(1000))
    pieces = [struct.pack(">I", len(c) - 4) + c + struct.pack(">I", zlib.crc32(c)) for c in (chunk, data, b"IEND")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(pieces)


@pytest.mark.parametrize("side", [9000, 12_000, 60_000, 2**31 - 1])
@pytest.mark.parametrize("action", ["error", "ignore"])
def test_image_bombs_are_refused(side: int, action: Any, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png_header(side, side))
    with warnings.catch_warnings():
        warnings.simplefilter(action)
        with pytest.raises(DataError, match=r"a\.png: .*pixels"):
            read_image(tmp_path / "a.png")


def test_formats_with_powers_are_not_read(tmp_path: Path) -> None:
    picture("RGB").save(tmp_path / "a.eps")
    (tmp_path / "a.eps").rename(tmp_path / "a.jpg")
    with pytest.raises(DataError, match=r"a\.jpg: not a readable image"):
        read_image(tmp_path / "a.jpg")


# --- archives --------------------------------------------------------------------------------------------------------

GOOD = {"set/a/1.txt": b"one", "set/a/2.txt": b"two" * 1000, "set/b/3.txt": b""}


def zipped(path: Path, files: dict[str, bytes], mode: int = 0) -> None:
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        warnings.simplefilter("ignore")  # a name twice
        for name, data in files.items():
            info = zipfile.ZipInfo("placeholder")
            info.filename = name
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = mode << 16
            file.writestr(info, data)


def tarred_plain(path: Path, files: dict[str, bytes]) -> None:
    tarred(path, files, "w:")


every_archive = pytest.mark.parametrize("pack", [zipped, tarred, tarred_plain])


def below(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@every_archive
def test_archives_unpack(pack: Callable[[Path, dict[str, bytes]], None], tmp_path: Path) -> None:
    pack(tmp_path / "a", GOOD | {"./set/c.txt": b"c"})
    extract(tmp_path / "a", tmp_path / "new" / "out")
    assert below(tmp_path / "new" / "out") == GOOD | {"set/c.txt": b"c"}
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["out"]
    with pytest.raises(DataError, match="already there"):
        extract(tmp_path / "a", tmp_path / "new" / "out")


@every_archive
@pytest.mark.parametrize(
    "name",
    [
        "../evil",
        "set/../../evil",
        "/tmp/evil",
        "..",
        "C:/evil",
        "set\\..\\..\\evil",
        "",
        "a/" * 500 + "b",
        "a\x01b",
        "//evil",
    ],
)
def test_names_that_leave_the_folder_are_refused(
    pack: Callable[[Path, dict[str, bytes]], None], name: str, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    pack(home / "a", {"good.txt": b"good", name.replace("/tmp/evil", str(tmp_path / "evil")): b"evil"})
    with pytest.raises(DataError, match="home/a: "):
        extract(home / "a", home / "out")
    assert list(tmp_path.rglob("*")) == [home, home / "a"]


@pytest.mark.parametrize(
    "kind",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE],
)
def test_links_and_devices_in_tar_are_refused(kind: bytes, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = kind, str(outside)
        tar.addfile(link)
        info = tarfile.TarInfo("link/evil")
        info.size = 4
        tar.addfile(info, io.BytesIO(b"evil"))
    with pytest.raises(DataError, match=r"a\.tar: "):
        extract(tmp_path / "a.tar", tmp_path / "out")
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a.tar", "outside"]


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO, stat.S_IFSOCK])
def test_links_and_devices_in_zip_are_refused(kind: int, tmp_path: Path) -> None:
    zipped(tmp_path / "a.zip", {"link": b"/etc"}, kind | 0o777)
    with pytest.raises(DataError, match="link or device"):
        extract(tmp_path / "a.zip", tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["a.zip"]


@every_archive
def test_limits_of_archives(pack: Callable[[Path, dict[str, bytes]], None], tmp_path: Path) -> None:
    pack(tmp_path / "a", {f"{i}": bytes(1000) for i in range(100)})
    extract(tmp_path / "a", tmp_path / "fine")
    for limits in (Limits(total=50_000), Limits(ratio=0, floor=50_000), Limits(members=50)):
        with pytest.raises(DataError, match="allowed"):
            extract(tmp_path / "a", tmp_path / "out", limits)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "fine"]


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_archive_bombs_are_refused(pack: Callable[[Path, dict[str, bytes]], None], tmp_path: Path) -> None:
    pack(tmp_path / "a", {"zeros": bytes(40 * 2**20)})  # 1000 to 1
    with pytest.raises(DataError, match="allowed"):
        extract(tmp_path / "a", tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_tar_header_that_asks_for_too_much(tmp_path: Path) -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 2**33 - 1
    (tmp_path / "a.tar").write_bytes(info.tobuf() + bytes(4096))
    with pytest.raises(DataError, match="at once"):
        extract(tmp_path / "a.tar", tmp_path / "out")


def test_a_zip_that_lies_about_sizes(tmp_path: Path) -> None:
    zipped(tmp_path / "a.zip", {"zeros": bytes(10**6)})
    data = (tmp_path / "a.zip").read_bytes()
    (tmp_path / "a.zip").write_bytes(data.replace(struct.pack("<I", 10**6), struct.pack("<I", 100)))
    with pytest.raises(DataError, match=r"a\.zip"):
        extract(tmp_path / "a.zip", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@every_archive
def test_a_name_twice_or_a_file_as_a_folder(pack: Callable[[Path, dict[str, bytes]], None], tmp_path: Path) -> None:
    for number, files in enumerate([{"a": b"1", "./a": b"2"}, {"a": b"1", "a/b": b"2"}, {"a/b": b"1", "a": b"2"}]):
        pack(tmp_path / f"{number}", files)
        with pytest.raises(DataError, match="not a readable zip or tar"):
            extract(tmp_path / f"{number}", tmp_path / "out")
        assert not (tmp_path / "out").exists()


@every_archive
def test_damaged_archives_leave_nothing(
    pack: Callable[[Path, dict[str, bytes]], None], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("archive")
    file = folder / "a"
    pack(file, GOOD)
    whole = file.read_bytes()
    place = st.integers(0, len(whole) - 1)

    @settings(max_examples=40)
    @given(st.lists(st.tuples(place, st.integers(0, 255)), max_size=3), st.none() | place)
    def damage(changes: list[tuple[int, int]], end: int | None) -> None:
        data = bytearray(whole)
        for at, value in changes:
            data[at] = value
        file.write_bytes(data[:end])
        if only_data_error(lambda: extract(file, folder / "out")):
            shutil.rmtree(folder / "out")
        assert list(folder.iterdir()) == [file]

    damage()


@pytest.mark.parametrize("pack", [tarred, tarred_plain])
def test_a_truncated_tar_is_not_half_unpacked(pack: Callable[[Path, dict[str, bytes]], None], tmp_path: Path) -> None:
    pack(tmp_path / "whole", GOOD)
    whole = (tmp_path / "whole").read_bytes()
    content = 3 * 512 + 512 + 3072  # headers and files, without the blocks of zeros that end it
    for size in range(0, len(whole), 7) if pack is tarred else range(0, content + 1, 512):
        (tmp_path / "a").write_bytes(whole[:size])
        with pytest.raises(DataError):
            extract(tmp_path / "a", tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_a_broken_header_is_not_the_end_of_a_tar(tmp_path: Path) -> None:
    tarred_plain(tmp_path / "a", GOOD)
    data = bytearray((tmp_path / "a").read_bytes())
    data[1024 + 150] ^= 1  # the checksum of the second member
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(DataError, match="does not end"):
        extract(tmp_path / "a", tmp_path / "out")


def test_links_at_the_target_are_not_followed(tmp_path: Path) -> None:
    zipped(tmp_path / "a.zip", GOOD)
    (tmp_path / "out").symlink_to(tmp_path / "nowhere")
    with pytest.raises(DataError, match="already there"):
        extract(tmp_path / "a.zip", tmp_path / "out")
    assert not (tmp_path / "nowhere").exists()


def test_an_encrypted_zip_is_refused(tmp_path: Path) -> None:
    zipped(tmp_path / "a.zip", GOOD)
    data = bytearray((tmp_path / "a.zip").read_bytes())
    start = data.index(b"PK\x01\x02")
    data[start + 8] |= 1
    data[6] |= 1
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(DataError, match="encrypted"):
        extract(tmp_path / "a.zip", tmp_path / "out")
