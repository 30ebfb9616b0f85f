"""Readers: each layout is written small, read back exactly, and then attacked. Only `DataError` may come out."""

import bz2
import gzip
import io
import os
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dataset_files import (
    CIFAR10_LABELS,
    CIFAR_IMAGES,
    COLOUR_IMAGES,
    GREY_IMAGES,
    LABELS,
    SMALL_OFFICE,
    USPS_IMAGES,
    Array,
    PickledCall,
    build_cifar10_files,
    encode_npy,
    ignore_progress,
    reads_or_raises_data_error,
    to_planes,
    write_cifar10_archive,
    write_cifar100_folder,
    write_digits_folder,
    write_idx,
    write_idx_pair,
    write_image_folder,
    write_image_list,
    write_libsvm_file,
    write_mat_file,
    write_npz_file,
    write_tar,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.io import savemat

from fedtrain.data.errors import DataError
from fedtrain.data.importing.recognise_folders import read_class_folders, read_listed_images
from fedtrain.data.readers import (
    LabelledImages,
    extract_archive,
    idx,
    libsvm,
    mat,
    npz,
    read_cifar10,
    read_cifar100,
    read_fedbn_digits,
    read_idx,
    read_image,
    read_image_list,
    read_libsvm,
    read_mat,
    read_mnist,
    read_npz,
)
from fedtrain.data.readers.labelled_images import validate_images
from fedtrain.data.readers.safe_pickle import load_pickle
from fedtrain.data.readers.safe_read import read_bounded, read_bytes
from theory.errors import InputError


@dataclass(frozen=True)
class Layout:
    """``write`` gives the file to attack; ``read`` takes the folder."""

    write: Callable[[Path], Path]
    read: Callable[[Path], LabelledImages]
    images: Array
    labels: Sequence[int] | Array
    exact: bool = True  # JPEG is not


def build_layout_fields(**kwargs: Any) -> dict[str, Any]:
    return {"images": COLOUR_IMAGES, "labels": LABELS.tolist(), **kwargs}


GREY4 = GREY_IMAGES[..., None]
LAYOUTS: dict[str, Layout] = {
    "idx": Layout(
        lambda f: write_idx_pair(f, False), lambda f: read_mnist(f, "test"), **build_layout_fields(images=GREY4)
    ),
    "idx.gz": Layout(
        lambda f: write_idx_pair(f, True), lambda f: read_mnist(f, "test"), **build_layout_fields(images=GREY4)
    ),
    "mat": Layout(lambda f: write_mat_file(f, False), lambda f: read_mat(f / "a.mat"), **build_layout_fields()),
    "mat packed": Layout(lambda f: write_mat_file(f, True), lambda f: read_mat(f / "a.mat"), **build_layout_fields()),
    "libsvm": Layout(
        lambda f: write_libsvm_file(f, False), lambda f: read_libsvm(f / "usps"), USPS_IMAGES[..., None], LABELS[:3]
    ),
    "libsvm.bz2": Layout(
        lambda f: write_libsvm_file(f, True), lambda f: read_libsvm(f / "usps"), USPS_IMAGES[..., None], LABELS[:3]
    ),
    "npz stored": Layout(
        lambda f: write_npz_file(f, zipfile.ZIP_STORED),
        lambda f: read_npz(f / "a.npz", "train", 10),
        **build_layout_fields(),
    ),
    "npz lzma": Layout(
        lambda f: write_npz_file(f, zipfile.ZIP_LZMA),
        lambda f: read_npz(f / "a.npz", "test"),
        **build_layout_fields(images=GREY4),
    ),
    "cifar10 python": Layout(
        lambda f: write_cifar10_archive(f, False),
        lambda f: read_cifar10(f / "cifar10.tar.gz", "train"),
        CIFAR_IMAGES,
        CIFAR10_LABELS,
    ),
    "cifar10 binary": Layout(
        lambda f: write_cifar10_archive(f, True),
        lambda f: read_cifar10(f / "cifar10.tar.gz", "train"),
        CIFAR_IMAGES,
        CIFAR10_LABELS,
    ),
    "cifar100 python": Layout(
        lambda f: write_cifar100_folder(f, False), lambda f: read_cifar100(f, "train"), CIFAR_IMAGES, range(90, 100)
    ),
    "cifar100 binary": Layout(
        lambda f: write_cifar100_folder(f, True),
        lambda f: read_cifar100(f, "train", "coarse"),
        CIFAR_IMAGES,
        range(10, 20),
    ),
    **{
        f"digits protocol {p}": Layout(
            partial(write_digits_folder, protocol=p), lambda f: read_fedbn_digits(f, "test"), **build_layout_fields()
        )
        for p in (0, 2, 4, 5)
    },
    "index": Layout(
        lambda f: write_image_list(f, 4),
        lambda f: read_listed_images(SMALL_OFFICE, f / "dslr_train.pkl", [f], ignore_progress),
        CIFAR_IMAGES[[3, 1, 9]],
        [3, 1, 9],
    ),
    "folder png": Layout(
        lambda f: write_image_folder(f, ".png"),
        lambda f: read_class_folders(SMALL_OFFICE, f / "dslr", ignore_progress),
        CIFAR_IMAGES,
        range(10),
    ),
    "folder bmp": Layout(
        lambda f: write_image_folder(f, ".bmp"),
        lambda f: read_class_folders(SMALL_OFFICE, f / "dslr", ignore_progress),
        CIFAR_IMAGES,
        range(10),
    ),
    "folder jpg": Layout(
        lambda f: write_image_folder(f, ".jpg"),
        lambda f: read_class_folders(SMALL_OFFICE, f / "dslr", ignore_progress),
        CIFAR_IMAGES,
        range(10),
        exact=False,
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


@every_layout
def test_truncated_files_are_refused(layout: Layout, tmp_path: Path) -> None:
    file = layout.write(tmp_path)
    whole = file.read_bytes()
    places = {*range(min(len(whole), 64)), *range(0, len(whole), max(1, len(whole) // 30)), len(whole) - 40}
    for place in sorted(p for p in places if 0 <= p <= len(whole) - 40):
        file.write_bytes(whole[:place])
        survived = reads_or_raises_data_error(lambda: layout.read(tmp_path))
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
        reads_or_raises_data_error(lambda: layout.read(folder))

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
        lambda f: read_fedbn_digits(f.parent, "test"),
        read_image_list,
        load_pickle,
        read_image,
        lambda f: extract_archive(f, f.parent / "out"),
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
        reads_or_raises_data_error(lambda: read(file))

    attack()


@pytest.mark.parametrize("place", ["missing", "folder", "pipe"])
def test_what_is_no_file_is_named(place: str, tmp_path: Path) -> None:
    path = tmp_path / place
    if place == "folder":
        path.mkdir()
    elif place == "pipe":
        os.mkfifo(path)  # reading it would block for ever
    for read in (read_mat, read_libsvm, load_pickle, read_image, read_image_list, lambda p: read_npz(p, "train")):
        with pytest.raises(DataError, match=f"{place}: "):
            read(path)
    with pytest.raises(DataError, match=place):
        read_idx(path, path)
    with pytest.raises(DataError, match=place):
        extract_archive(path, tmp_path / "out")
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
        (COLOUR_IMAGES, LABELS[:5], "6 images but 5 labels"),
        (COLOUR_IMAGES, np.array([0, 1, 12, 3, -1, 5]), "label 12 of image 2 is not within 0..9"),
        (COLOUR_IMAGES, [0, 1, 2, 3, 4, -5], "label -5 of image 5"),
        (COLOUR_IMAGES, np.full(6, 2**64 - 1, dtype=np.uint64), "label 18446744073709551615 of image 0"),
        (COLOUR_IMAGES, LABELS + 0.5, "whole numbers"),
        (COLOUR_IMAGES, np.full(6, np.nan), "whole numbers"),
        (COLOUR_IMAGES, [0, 1, 2, 3, 4, 2**80], "whole numbers"),
        (COLOUR_IMAGES, [[0]] * 6, "whole numbers"),
        (COLOUR_IMAGES, np.zeros((6, 2), dtype=int), "must be \\(n,\\)"),
        (COLOUR_IMAGES, np.array(list("abcdef")), "not <U1"),
        (COLOUR_IMAGES, "abcdef", "not str"),
        (COLOUR_IMAGES / 255, LABELS, "multiply by 255"),
        (COLOUR_IMAGES.astype(np.float32), LABELS, "\\[0, 255\\]: round"),
        (COLOUR_IMAGES.astype(np.float32) - 9, LABELS, "0..255 as uint8"),
        (COLOUR_IMAGES.astype(np.int64), LABELS, "not int64"),
        (COLOUR_IMAGES.transpose(0, 3, 1, 2), LABELS, "channels to the last axis"),
        (COLOUR_IMAGES[:, :, :, :2], LABELS, "1 or 3"),
        (COLOUR_IMAGES[:, :0], LABELS, "1 or 3"),
        (COLOUR_IMAGES[0, 0], LABELS, "1 or 3"),
        (COLOUR_IMAGES[:0], LABELS[:0], "no images"),
        ([1, 2], LABELS, "array, not list"),
    ],
)
def test_wrong_arrays_are_refused_with_a_hint(images: object, labels: object, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        validate_images("file", images, labels, 10)
    assert str(caught.value).startswith("file: ")


def test_labels_may_be_a_column_of_doubles() -> None:
    assert validate_images("file", GREY_IMAGES, LABELS.astype(float)[:, None]).labels.tolist() == LABELS.tolist()


def test_labels_are_free_where_no_classes_are_given() -> None:
    assert validate_images("file", GREY_IMAGES, LABELS + 1000).labels.max() == 1009
    with pytest.raises(DataError, match="small whole number"):
        validate_images("file", GREY_IMAGES, LABELS - 1)


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
        read_bounded(io.BytesIO(b"123456"), 5)
    assert read_bounded(io.BytesIO(b"12345"), 5) == b"12345"
    (tmp_path / "a").write_bytes(b"123456")
    with pytest.raises(ValueError, match="6 bytes, more than the 5"):
        read_bytes(tmp_path / "a", 5)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"X": COLOUR_IMAGES}, "no array y of real numbers with 2 axes"),
        ({"X": COLOUR_IMAGES[0], "y": LABELS}, "no array X"),
        ({"X": np.array([[{"a": 1}]], dtype=object), "y": LABELS}, "no array X"),
        ({"X": "text", "y": LABELS}, "no array X"),
        ({"X": COLOUR_IMAGES.transpose(1, 2, 3, 0).astype(float) / 255, "y": LABELS}, "multiply by 255"),
        ({"X": COLOUR_IMAGES.transpose(1, 2, 3, 0), "y": LABELS + 5}, "label 14 of image 2"),
        ({"X": COLOUR_IMAGES.transpose(1, 2, 3, 0), "y": LABELS + 1j}, "no array y"),
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
    data = matrix(b"X", 2, COLOUR_IMAGES.transpose(1, 2, 3, 0)) + matrix(b"y", 3, LABELS.astype(">i2")[:, None])
    (tmp_path / "a.mat").write_bytes(head + data)
    read = read_mat(tmp_path / "a.mat")
    assert np.array_equal(read.images, COLOUR_IMAGES)
    assert np.array_equal(read.labels, LABELS)


@pytest.mark.parametrize("kind", [0, 8, 10, 14, 15, 20, 200])
def test_unknown_types_in_mat_files(kind: int, tmp_path: Path) -> None:
    file = write_mat_file(tmp_path, False)
    tag = struct.pack("<II", 2, COLOUR_IMAGES.size)
    assert file.read_bytes().count(tag) == 1
    file.write_bytes(file.read_bytes().replace(tag, struct.pack("<II", kind, COLOUR_IMAGES.size)))
    with pytest.raises(DataError, match=f"X holds values of an unknown type {kind}"):
        read_mat(file)


def test_other_versions_of_mat_files(tmp_path: Path) -> None:
    file = tmp_path / "a.mat"
    savemat(file, {"X": GREY_IMAGES[0], "y": LABELS}, format="4")
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
    np.save(objects, np.array([PickledCall(eval, "1")], dtype=object), allow_pickle=True)
    lie = encode_npy(COLOUR_IMAGES).replace(b"(6, 5, 4, 3)", b"(9**9, 9, 3)")
    huge = encode_npy(COLOUR_IMAGES).replace(b"(6, 5, 4, 3), }          ", b"(600000000, 5, 4, 3), }  ")
    assert len(huge) == len(encode_npy(COLOUR_IMAGES))
    assert huge != encode_npy(COLOUR_IMAGES)
    for data, message in [
        (objects.getvalue(), "not numbers"),
        (lie, r"a\.npz"),
        (huge, "does not fit"),
        (encode_npy(COLOUR_IMAGES)[:-1], "does not fit"),
        (encode_npy(COLOUR_IMAGES / 255), "multiply by 255"),
        (b"\x93NUMPY\x09\x00" + encode_npy(COLOUR_IMAGES)[8:], r"a\.npz"),
        (b"", r"a\.npz"),
    ]:
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
            file.writestr("x_train.npy", data)
            file.writestr("y_train.npy", encode_npy(LABELS))
        with pytest.raises(DataError, match=message):
            read_npz(tmp_path / "a.npz", "train")
        with pytest.raises(DataError, match="holds no array x_test"):
            read_npz(tmp_path / "a.npz", "test")


def test_fortran_order_in_npz(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", x_train=np.asfortranarray(COLOUR_IMAGES), y_train=LABELS)
    assert np.array_equal(read_npz(tmp_path / "a.npz", "train").images, COLOUR_IMAGES)


@pytest.mark.parametrize("binary", [False, True])
def test_cifar10_from_a_folder(binary: bool, tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", build_cifar10_files(binary), "w:")
    extract_archive(tmp_path / "a.tar", tmp_path / "out")
    read = read_cifar10(tmp_path / "out", "train")
    assert np.array_equal(read.images, CIFAR_IMAGES)
    assert read.labels.tolist() == CIFAR10_LABELS
    inner = next(p for p in (tmp_path / "out").iterdir() if "batches" in p.name)
    assert np.array_equal(read_cifar10(inner, "train").images, CIFAR_IMAGES)
    with pytest.raises(DataError, match="holds no test_batch"):
        read_cifar10(inner, "test")
    next(inner.glob("data_batch_4*")).unlink()
    with pytest.raises(DataError, match="holds no data_batch_4"):
        read_cifar10(inner, "train")


def test_cifar_of_the_wrong_kind(tmp_path: Path) -> None:
    write_cifar100_folder(tmp_path, False)
    assert read_cifar100(tmp_path, "train", "coarse").labels.tolist() == list(range(10, 20))
    train = tmp_path / "cifar-100-python" / "train"
    for batch, message in [
        ({b"data": to_planes(CIFAR_IMAGES), b"labels": [0] * 10}, "other CIFAR"),
        ({b"data": CIFAR_IMAGES, b"fine_labels": [0] * 10}, "not an array"),
        ({b"data": to_planes(CIFAR_IMAGES) / 255, b"fine_labels": [0] * 10}, "not an array"),
        ({b"fine_labels": [0] * 10}, "not an array"),
        ({b"data": to_planes(CIFAR_IMAGES), b"fine_labels": [100] * 10}, "label 100 of image 0"),
        ({b"data": to_planes(CIFAR_IMAGES), b"fine_labels": [0] * 9}, "10 images but 9"),
        ([1, 2], "not a dict"),
    ]:
        train.write_bytes(pickle.dumps(batch, 2))
        with pytest.raises(DataError, match=message):
            read_cifar100(tmp_path, "train")


def test_cifar_archives_that_are_wrong(tmp_path: Path) -> None:
    files = build_cifar10_files(False)
    twice = files | {"other/data_batch_1": files["cifar-10-batches-py/data_batch_1"]}
    write_tar(tmp_path / "twice.tar.gz", twice)
    with pytest.raises(DataError, match="data_batch_1 twice"):
        read_cifar10(tmp_path / "twice.tar.gz", "train")
    write_tar(tmp_path / "empty.tar.gz", {})
    with pytest.raises(DataError, match="holds no data_batch_1"):
        read_cifar10(tmp_path / "empty.tar.gz", "train")
    evil = files | {"cifar-10-batches-py/data_batch_2": pickle.dumps(PickledCall(eval, "1"), 2)}
    write_tar(tmp_path / "evil.tar.gz", evil)
    with pytest.raises(DataError, match=r"\(data_batch_2\): .*__builtin__\.eval"):
        read_cifar10(tmp_path / "evil.tar.gz", "train")


def test_parts_of_digits(tmp_path: Path) -> None:
    write_digits_folder(tmp_path, 4)
    assert len(read_fedbn_digits(tmp_path, "train")) == 2 * (6 + 5 + 4 + 3 + 2)
    three = read_fedbn_digits(tmp_path, "train", parts=3)
    assert np.array_equal(three.images, np.concatenate([COLOUR_IMAGES, COLOUR_IMAGES, COLOUR_IMAGES[1:]]))
    for parts in (0, 11):
        with pytest.raises(DataError, match="1 to 10"):
            read_fedbn_digits(tmp_path, "train", parts)
    (tmp_path / "partitions" / "train_part1.pkl").write_bytes(pickle.dumps((GREY_IMAGES, LABELS)))
    with pytest.raises(DataError, match="different shapes"):
        read_fedbn_digits(tmp_path, "train", 2)
    (tmp_path / "partitions" / "train_part1.pkl").unlink()
    with pytest.raises(DataError, match=r"train_part1\.pkl: no such file"):
        read_fedbn_digits(tmp_path, "train", 2)


@pytest.mark.parametrize(
    "content", [COLOUR_IMAGES, [COLOUR_IMAGES], (COLOUR_IMAGES, LABELS, 1), "text", 5, None, {"a": 1}, np.float64(2)]
)
def test_digits_that_are_no_pair(content: object, tmp_path: Path) -> None:
    (tmp_path / "test.pkl").write_bytes(pickle.dumps(content))
    with pytest.raises(DataError, match=r"test\.pkl"):
        read_fedbn_digits(tmp_path, "test")


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
    index = read_image_list(tmp_path / "i.pkl")
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
        ((COLOUR_IMAGES, LABELS), "lists of text"),
        ((["a.jpg"], ["cup"]), "unknown class 'cup'"),
        ((["a.jpg"], ["mug"]), r"its first image a\.jpg is not there"),
    ],
)
def test_lists_of_images_that_are_wrong(pair: object, message: str, tmp_path: Path) -> None:
    (tmp_path / "i.pkl").write_bytes(pickle.dumps(pair))
    with pytest.raises(DataError, match=message):
        read_listed_images(SMALL_OFFICE, tmp_path / "i.pkl", [tmp_path / "data"], ignore_progress)


def test_a_list_may_not_ask_for_more_than_memory_holds(tmp_path: Path) -> None:
    (tmp_path / "i.pkl").write_bytes(pickle.dumps((["a.jpg"] * 10**4, ["mug"] * 10**4)))
    (tmp_path / "a.jpg").touch()
    with pytest.raises(DataError, match="import fewer"):
        read_listed_images(
            replace(SMALL_OFFICE, input_shape=(3, 4096, 4096)), tmp_path / "i.pkl", [tmp_path], ignore_progress
        )
