"""Images and folders of them: which are read, in which order, and which are refused."""

import struct
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dataset_files import CIFAR_IMAGES, SMALL_OFFICE, ignore_progress, write_image_folder
from PIL import Image

from fedtrain.data.errors import DataError
from fedtrain.data.importing.recognise_folders import read_class_folders
from fedtrain.data.readers import (
    read_image,
)
from fedtrain.data.readers.class_folders import DOMAINNET_CLASSES, OFFICE_CLASSES, list_image_files


def test_class_order() -> None:
    assert dict(zip(OFFICE_CLASSES, range(10), strict=True)) == {
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
    assert DOMAINNET_CLASSES[2:4] == ("headphones", "ice_cream")
    assert len(DOMAINNET_CLASSES) == 10


def test_folders_are_listed_in_a_fixed_order(tmp_path: Path) -> None:
    for name in ("b/10.png", "b/2.PNG", "b/.hidden", "b/Thumbs.db", "a/z.jpeg", "a/B.gif", "other/c.png", "b/x.bmp"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    listed = [(str(path.relative_to(tmp_path)), label) for path, label in list_image_files(tmp_path, ("b", "a"))]
    assert listed == [("b/10.png", 0), ("b/2.PNG", 0), ("b/x.bmp", 0), ("a/B.gif", 1), ("a/z.jpeg", 1)]
    with pytest.raises(DataError, match="c: no such folder"):
        list_image_files(tmp_path, ("a", "c"))
    (tmp_path / "a" / "notes.txt").touch()
    with pytest.raises(DataError, match=r"notes\.txt: not an image"):
        list_image_files(tmp_path, ("a", "b"))
    (tmp_path / "b" / "deeper.png").mkdir()
    with pytest.raises(DataError, match=r"deeper\.png: not an image"):
        list_image_files(tmp_path, ("b",))


def test_an_empty_folder_holds_no_images(tmp_path: Path) -> None:
    for name in OFFICE_CLASSES:
        (tmp_path / name).mkdir()
    with pytest.raises(DataError, match="no images"):
        read_class_folders(SMALL_OFFICE, tmp_path, ignore_progress)


def make_picture(mode: str) -> Image.Image:
    base = Image.fromarray(CIFAR_IMAGES[0])
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
    make_picture(mode).save(file)
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
    file = write_image_folder(tmp_path, ".jpg")
    whole = file.read_bytes()
    for size in range(0, len(whole) - 2, 7):
        file.write_bytes(whole[:size])
        with pytest.raises(DataError, match=r"frame_0001\.jpg: not a readable image"):
            read_class_folders(SMALL_OFFICE, tmp_path / "dslr", ignore_progress)


def build_png_header(width: int, height: int) -> bytes:
    chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = b"IDAT" + zlib.compress(bytes(1000))
    pieces = [struct.pack(">I", len(c) - 4) + c + struct.pack(">I", zlib.crc32(c)) for c in (chunk, data, b"IEND")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(pieces)


@pytest.mark.parametrize("side", [9000, 12_000, 60_000, 2**31 - 1])
@pytest.mark.parametrize("action", ["error", "ignore"])
def test_image_bombs_are_refused(side: int, action: Any, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(build_png_header(side, side))
    with warnings.catch_warnings():
        warnings.simplefilter(action)
        with pytest.raises(DataError, match=r"a\.png: .*pixels"):
            read_image(tmp_path / "a.png")


def test_formats_with_powers_are_not_read(tmp_path: Path) -> None:
    make_picture("RGB").save(tmp_path / "a.eps")
    (tmp_path / "a.eps").rename(tmp_path / "a.jpg")
    with pytest.raises(DataError, match=r"a\.jpg: not a readable image"):
        read_image(tmp_path / "a.jpg")
