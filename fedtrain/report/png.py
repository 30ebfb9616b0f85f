"""Write a figure as a PNG file: whole or not at all, and never over a file that is not ours."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from fedtrain.utils.atomic_files import check_new_file, replace_atomically
from theory.report.plot_style import use_plot_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOTEBOOK_DPI = 80
"""Fine enough for a notebook, and small."""


def check_new_png(path: Path) -> None:
    """Refuse what cannot become the figure."""
    check_new_file(path, ".png", "figures are PNG files")


def write_png(figure: Figure, path: Path) -> None:
    """A new file."""
    check_new_png(path)
    replace_png(figure, path)


def replace_png(figure: Figure, path: Path) -> None:
    """Draw into a file beside it, then give that its name; without date or program, so that equal figures are equal."""
    with replace_atomically(path) as part, use_plot_style():
        figure.savefig(part, format="png", facecolor="white", metadata={"Software": None})


def render_png(figure: Figure, dpi: int = NOTEBOOK_DPI) -> bytes:
    """The bytes of such a file."""
    drawn = BytesIO()
    with use_plot_style():
        figure.savefig(drawn, format="png", dpi=dpi, facecolor="white", metadata={"Software": None})
    return drawn.getvalue()
