"""Shapes to draw with: characters of the fonts that matplotlib ships, as distance fields."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from fedtrain.data.errors import DataError
from fedtrain.data.skews.share import Indices

Fields = NDArray[np.float32]
"""(n, SIDE, SIDE): distance to the outline of a shape, negative inside, 1 being half the shape's longer side."""

SIDE = 64
HALF = 20
"""Half the longer side of a shape, in pixels of a field; the rest is margin."""

FONTS = (
    *("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique"),
    *("DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic"),
    *("STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "cmr10", "cmss10", "cmtt10"),
)
PICTURE_FONTS = ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSansMono")
"""Those that hold pictures."""

PICTURES = (
    *("★☆✪", "♥♡❥", "☎☏", "♞♘", "☂☔", "✈", "✿❀❁", "☠", "⚓", "♜♖"),
    *("☀☼✹", "❄❅❆", "♪♫♬", "✂✁✄", "✎✏✐", "☾☽", "♣♧☘", "☺☻☹", "☞☛", "♚♔♛"),
)
"""Twenty families of characters."""


class Shapes:
    """Families of characters, each a class, in several fonts."""

    def __init__(self, families: Sequence[str], fonts: Sequence[str]) -> None:
        self.fields: Fields = np.stack([_field(c, font) for family in families for c in family for font in fonts])
        self.counts = np.array([len(family) * len(fonts) for family in families])
        self.starts = self.counts.cumsum() - self.counts

    def pick(self, rng: np.random.Generator, classes: Indices) -> Indices:
        """A field of each of these classes, by its place."""
        return self.starts[classes] + rng.integers(0, self.counts[classes])


@cache
def digits() -> Shapes:
    """The ten digits."""
    return Shapes("0123456789", FONTS)


@cache
def pictures() -> Shapes:
    """Twenty things to tell apart."""
    return Shapes(PICTURES, PICTURE_FONTS)


def _field(character: str, font: str) -> Fields:
    """Drawn large, cut out, shrunk into the middle of a square, and measured."""
    from scipy.ndimage import distance_transform_edt  # slow to import, and labels are wanted more often than images

    drawn = Image.new("L", (400, 400))
    ImageDraw.Draw(drawn).text((100, 100), character, fill=255, font=_font(font))
    cut = drawn.crop(drawn.getbbox())
    shrink = 2 * HALF / max(cut.size)
    small = cut.resize((max(1, round(cut.width * shrink)), max(1, round(cut.height * shrink))), Image.Resampling.BOX)
    square = Image.new("L", (SIDE, SIDE))
    square.paste(small, ((SIDE - small.width) // 2, (SIDE - small.height) // 2))
    inside = np.asarray(square) >= 128
    signed = distance_transform_edt(~inside) - distance_transform_edt(inside)
    return (signed / HALF).astype(np.float32)


@cache
def _font(name: str) -> ImageFont.FreeTypeFont:
    import matplotlib

    path = Path(matplotlib.get_data_path(), "fonts", "ttf", f"{name}.ttf")
    try:
        return ImageFont.truetype(str(path), 160, layout_engine=ImageFont.Layout.BASIC)
    except OSError as error:
        raise DataError(f"{path}: stand-in data need this font ({error}); reinstall matplotlib") from error
