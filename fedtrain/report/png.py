"""A figure as a file: whole or not at all, and never over a file that is not ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedtrain.files import replacing
from theory.errors import InputError
from theory.report.style import drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def check_new_png(path: Path) -> None:
    """Refuse a file that is there, is no PNG, or has no folder; better before a figure is drawn than after."""
    if path.suffix.lower() != ".png":
        raise InputError(f"{path}: figures are PNG files; let the name end in .png")
    if path.exists():
        raise InputError(f"{path} is there already and is not overwritten; choose another name")
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.parent}; make it first")


def write_png(figure: Figure, path: Path) -> None:
    """A new file."""
    check_new_png(path)
    put_png(figure, path)


def put_png(figure: Figure, path: Path) -> None:
    """Draw into a file beside it, then give that its name; without date or program, so that equal figures are equal."""
    with replacing(path) as part, drawing():
        figure.savefig(part, format="png", facecolor="white", metadata={"Software": None})
