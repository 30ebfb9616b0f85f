"""Plain folders of images, ``domain/class/file``, always in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedtrain.data.errors import DataError
from fedtrain.data.readers.image_file import SUFFIXES
from fedtrain.data.readers.safe_read import wrap_read_errors

OFFICE_CLASSES = (
    *("back_pack", "bike", "calculator", "headphones", "keyboard"),
    *("laptop_computer", "monitor", "mouse", "mug", "projector"),
)
DOMAINNET_CLASSES = (
    *("bird", "feather", "headphones", "ice_cream", "teapot"),
    *("tiger", "whale", "windmill", "wine_glass", "zebra"),
)
IGNORED_FILES = {"thumbs.db", "desktop.ini"}  # what file managers leave behind


def list_image_files(domain: Path, classes: Sequence[str]) -> list[tuple[Path, int]]:
    """The image files of a domain with their labels: classes as given, files by name.

    Folders of other classes are passed over, and so are hidden files and file managers' litter.
    Any other file that is no image by its suffix is an error: left out in silence it might be missed.
    """
    files: list[tuple[Path, int]] = []
    for label, name in enumerate(classes):
        folder = domain / name
        if not folder.is_dir():
            raise DataError(f"{folder}: no such folder; every class needs one, mend the path or the list of classes")
        with wrap_read_errors(folder, "folder"):
            entries = sorted(folder.iterdir(), key=lambda path: path.name)
        for path in entries:
            if path.name.startswith(".") or path.name.lower() in IGNORED_FILES:
                continue
            if path.suffix.lower() not in SUFFIXES or not path.is_file():
                raise DataError(f"{path}: not an image file ({', '.join(SUFFIXES)}); remove it from the folder")
            files.append((path, label))
    return files
