"""Decode one image file to (H, W, 3) bytes, as the reference does."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from fedtrain.data.readers.safe_read import read_bytes, wrap_read_errors

MAX_FILE = 2**26  # bytes
MAX_PIXELS = 2**26  # of one image before it is resized
FORMATS = ("JPEG", "PNG", "BMP", "GIF")
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif")


GREY_MODES = ("1", "L", "LA", "I", "I;16", "I;16B", "I;16L", "F")


def read_image(path: Path, size: tuple[int, int] | None = None) -> NDArray[np.uint8]:
    """The image, resized to ``size`` = (H, W) without regard to its aspect.

    What does not have three bands (grey, RGBA, palette, CMYK) becomes grey in three equal channels.
    """
    with _open_image(path) as image:
        colour = (image if len(image.getbands()) == 3 else image.convert("L")).convert("RGB")
        if size is not None:
            colour = colour.resize((size[1], size[0]), Image.Resampling.BILINEAR)
        return np.array(colour, dtype=np.uint8)


def read_image_as(path: Path, size: tuple[int, int], channels: int) -> NDArray[np.uint8]:
    """The image as (channels, H, W), grey or colour, resized without regard to its aspect; alpha is left out."""
    with wrap_read_errors(path, "image"):
        content = read_bytes(path, MAX_FILE)
    return decode_image_as(path, content, size, channels)


def decode_image_as(source: object, content: bytes, size: tuple[int, int], channels: int) -> NDArray[np.uint8]:
    """The same of the content of a file; ``source`` is where it is from."""
    with _open_content(source, content) as image:
        plain: Image.Image = image
        if image.mode.startswith("I"):  # 16 bits: the upper eight of them
            plain = Image.fromarray((np.asarray(image).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8))
        found = plain.convert("L" if channels == 1 else "RGB")
        if found.size != (size[1], size[0]):
            found = found.resize((size[1], size[0]), Image.Resampling.BILINEAR)
        return np.array(found, dtype=np.uint8).reshape(*size, channels).transpose(2, 0, 1)


def read_image_header(source: object, content: bytes) -> tuple[int, int, bool]:
    """(height, width, whether it is grey), without decoding it."""
    with _open_content(source, content) as image:
        return image.height, image.width, image.mode in GREY_MODES


@contextmanager
def _open_image(path: Path) -> Iterator[Image.Image]:
    """The image, opened and bounded, not yet decoded; whatever goes wrong is said of the file."""
    with wrap_read_errors(path, "image"):
        content = read_bytes(path, MAX_FILE)
    with _open_content(path, content) as image:
        yield image


@contextmanager
def _open_content(source: object, content: bytes) -> Iterator[Image.Image]:
    with wrap_read_errors(source, "image"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # odd metadata harm no pixels
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            opened = Image.open(io.BytesIO(content), formats=FORMATS)
        except UnidentifiedImageError:  # its own words name an object of Python
            raise ValueError(f"it is no {', '.join(FORMATS)}") from None
        with opened as image:
            if image.width * image.height > MAX_PIXELS:
                raise ValueError(f"{image.width} x {image.height} pixels, more than the {MAX_PIXELS} allowed")
            yield image
