"""Decode one image file to (H, W, 3) bytes, as the reference does."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from fedtrain.data.errors import DataError
from fedtrain.data.readers.guard import read_bytes, reading
from fedtrain.data.readers.images import Images, checked

MAX_FILE = 2**26  # bytes
MAX_PIXELS = 2**26  # of one image before it is resized
MAX_SET = 2**34  # bytes of many images together
FORMATS = ("JPEG", "PNG", "BMP", "GIF")
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif")


def read_image(path: Path, size: tuple[int, int] | None = None) -> NDArray[np.uint8]:
    """The image, resized to ``size`` = (H, W) without regard to its aspect.

    What does not have three bands (grey, RGBA, palette, CMYK) becomes grey in three equal channels.
    """
    with reading(path, "image"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # odd metadata harm no pixels
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            opened = Image.open(io.BytesIO(read_bytes(path, MAX_FILE)), formats=FORMATS)
        except UnidentifiedImageError:  # its own words name an object of Python
            raise ValueError(f"it is no {', '.join(FORMATS)}") from None
        with opened as image:
            if image.width * image.height > MAX_PIXELS:
                raise ValueError(f"{image.width} x {image.height} pixels, more than the {MAX_PIXELS} allowed")
            colour = (image if len(image.getbands()) == 3 else image.convert("L")).convert("RGB")
        if size is not None:
            colour = colour.resize((size[1], size[0]), Image.Resampling.BILINEAR)
        return np.array(colour, dtype=np.uint8)


def read_images(source: object, paths: Sequence[Path], labels: Sequence[int], size: tuple[int, int]) -> Images:
    """Many images as one array; ``source`` is where the list of them comes from."""
    if min(size) < 1:
        raise DataError(f"{source}: images cannot be resized to {size}; give a positive height and width")
    if len(paths) * size[0] * size[1] * 3 > MAX_SET:
        raise DataError(f"{source}: {len(paths)} images of {size} take over {MAX_SET} bytes; ask for a smaller size")
    with reading(source, "set of images"):
        images = np.empty((len(paths), *size, 3), dtype=np.uint8)
        for row, path in zip(images, paths, strict=True):
            row[:] = read_image(path, size)
        return checked(source, images, list(labels))
