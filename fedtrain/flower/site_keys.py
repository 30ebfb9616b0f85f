"""Names of sites, and what the settings of their nodes are called."""

from __future__ import annotations

from pathlib import Path

from theory.errors import InputError

SITE_KEY, DATA_KEY = "site", "data-path"
NAMED_FILES_KEY = "named-files"
"""Set where server and nodes are one user's on one machine, and a run may name any file as its data set."""


def get_site_name(data: Path) -> str:
    """Of the site with these data: that of its folder, or of its file without the ending."""
    return data.name if data.is_dir() else data.name.split(".")[0]


def list_sites(folder: Path) -> list[Path]:
    """What lies in a folder, one data set for each site."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; name one with the data of each site in it", options=("sites",))
    found = sorted(path.resolve() for path in folder.iterdir() if not path.name.startswith("."))
    names: dict[str, Path] = {}
    for path in found:
        if (other := names.setdefault(get_site_name(path).casefold(), path)) != path:
            raise InputError(f"{folder}: {other.name} and {path.name} are one name for a site; rename one of them")
    if not found:
        raise InputError(f"{folder}: it is empty; put the data of each site into it", options=("sites",))
    return found
