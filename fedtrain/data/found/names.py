"""Names of clients and classes that come from a user's files: refused if they would do harm as names of files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from fedtrain.data.errors import DataError

MAX_NAME = 80
RESERVED = {"train", "test"}
"""Names of parts, which no client may have."""


def check_client_names(source: object, names: Sequence[str]) -> None:
    """Refuse names that cannot be those of files, and two that a file system may take for one."""
    for name in names:
        check_name(source, "client", name)
        if name.startswith(".") or "/" in name or "\\" in name:
            raise DataError(f"{source}: client {name!r} cannot be the name of a file; rename it, without / and \\")
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(name.casefold(), name)) != name:
            raise DataError(
                f"{source}: clients {other!r} and {name!r} differ only by case; rename one, or make them one"
            )


def check_name(source: object, what: str, name: str) -> None:
    """Refuse a name that is empty, too long, or not all to be seen."""
    if not name.strip() or name != name.strip():
        raise DataError(f"{source}: a {what} is called {name!r}; give it a name without blanks at its ends")
    if not name.isprintable():
        raise DataError(f"{source}: {what} {name!r} has characters that cannot be printed; rename it")
    if len(name) > MAX_NAME:
        raise DataError(f"{source}: {what} {name[:20]!r}... has over {MAX_NAME} characters; give it a shorter name")


def sort_names(names: Iterable[str]) -> list[str]:
    """In the order that people expect: 2 before 10."""
    return sorted(names, key=lambda name: [(0, int(p), "") if p.isdecimal() else (1, 0, p) for p in split_digits(name)])


def split_digits(name: str) -> list[str]:
    """``img12b`` is img, 12, b."""
    return [part for part in re.split(r"([0-9]+)", name) if part]
