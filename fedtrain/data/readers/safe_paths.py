"""Check names that come from a file: they must lie below a folder."""

from __future__ import annotations

from pathlib import PurePosixPath, PureWindowsPath

MAX_NAME = 1000  # characters
MAX_DEPTH = 32  # folders


def parse_safe_path(name: str) -> PurePosixPath:
    """The name as a relative path; absolute names, ``..``, backslashes, drives and control characters are refused."""
    path = PurePosixPath(name)
    if (
        not path.parts
        or path.is_absolute()
        or ".." in path.parts
        or "\\" in name
        or PureWindowsPath(name).drive
        or any(ord(c) < 32 for c in name)
    ):
        raise ValueError(f"the name {name[:100]!r} does not stay inside its folder")
    if len(name) > MAX_NAME or len(path.parts) > MAX_DEPTH:
        raise ValueError(f"the name {name[:100]!r}... has over {MAX_NAME} characters or over {MAX_DEPTH} folders")
    return path
