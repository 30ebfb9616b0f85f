"""Shapes to draw with: characters of the fonts that matplotlib ships, as distance fields."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from fedtrain.data.errors import DataError
from fedtrain.data.partition.indices import Indices

DistanceFields = NDArray[np.float32]
"""(n, SIDE, SIDE): distance to the outline of a shape, negative inside, 1 being half the shape's longer side."""

FIELD_SIZE = 64
SHAPE_HALF_SIZE = 20
"""Half the longer side of a shape, in pixels of a field; the rest is margin."""

FONTS = (
    *("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique"),
    *("DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic"),
    *("STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "cmr10", "cmss10", "cmtt10"),
)
SYMBOL_FONTS = ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSansMono")
"""Those that hold pictures."""

SYMBOL_FAMILIES = (
    *("★☆✪", "♥♡❥", "☎☏", "♞♘", "☂☔", "✈", "✿❀❁", "☠", "⚓", "♜♖"),
    *("☀☼✹", "❄❅❆", "♪♫♬", "✂✁✄", "✎✏✐", "☾☽", "♣♧☘", "☺☻☹", "☞☛", "♚♔♛"),
)
"""Twenty families of characters."""


class ShapeSet:
    """Families of characters, each a class, in several fonts."""

    def __init__(self, families: Sequence[str], fonts: Sequence[str]) -> None:
        self.fields: DistanceFields = np.stack(
            [_draw_distance_field(c, font) for family in families for c in family for font in fonts]
        )
        self.counts = np.array([len(family) * len(fonts) for family in families])
        self.starts = self.counts.cumsum() - self.counts

    def sample_fields(self, rng: np.random.Generator, classes: Indices) -> Indices:
        """A field of each of these classes, by its place."""
        return self.starts[classes] + rng.integers(0, self.counts[classes])


@cache
def build_digit_shapes() -> ShapeSet:
    """The ten digits."""
    return ShapeSet("0123456789", FONTS)


@cache
def build_symbol_shapes() -> ShapeSet:
    """Twenty things to tell apart."""
    return ShapeSet(SYMBOL_FAMILIES, SYMBOL_FONTS)


def _draw_distance_field(character: str, font: str) -> DistanceFields:
    """Drawn large, cut out, shrunk into the middle of a square, and measured."""
    from scipy.ndimage import distance_transform_edt  # slow to import, and labels are wanted more often than images

    drawn = Image.new("L", (400, 400))
    ImageDraw.Draw(drawn).text((100, 100), character, fill=255, font=_load_font(font))
    cut = drawn.crop(drawn.getbbox())
    shrink = 2 * SHAPE_HALF_SIZE / max(cut.size)
    small = cut.resize((max(1, round(cut.width * shrink)), max(1, round(cut.height * shrink))), Image.Resampling.BOX)
    square = Image.new("L", (FIELD_SIZE, FIELD_SIZE))
    square.paste(small, ((FIELD_SIZE - small.width) // 2, (FIELD_SIZE - small.height) // 2))
    inside = np.asarray(square) >= 128
    signed = distance_transform_edt(~inside) - distance_transform_edt(inside)
    return (signed / SHAPE_HALF_SIZE).astype(np.float32)


@cache
def _load_font(name: str) -> ImageFont.FreeTypeFont:
    import matplotlib

    path = Path(matplotlib.get_data_path(), "fonts", "ttf", f"{name}.ttf")
    try:
        return ImageFont.truetype(str(path), 160, layout_engine=ImageFont.Layout.BASIC)
    except OSError as error:
        raise DataError(f"{path}: stand-in data need this font ({error}); reinstall matplotlib") from error
