"""Files of ours are made anew each time; a file that somebody else wrote or changed is not touched."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from fedtrain.utils.atomic_files import replace_atomically
from theory.errors import InputError

CHECKSUM_FILE = ".written.json"
"""What we wrote: names and checksums."""


def check_owned(folder: Path, names: Iterable[str]) -> None:
    """Refuse, better before hours of runs than after, to write over what is not ours."""
    ours = _read_checksums(folder)
    for name in names:
        path = folder / name
        if path.exists() and _hash_file(path) != ours.get(name):
            raise InputError(
                f"{path} is not as fedco2 wrote it and is not overwritten; move it away or choose another folder",
                options=("out",),
            )


def write_owned(folder: Path, name: str, content: str | bytes) -> Path:
    """Write a file, complete or not at all, in the place of an older one of ours."""
    folder.mkdir(parents=True, exist_ok=True)
    check_owned(folder, [name])
    data = content.encode() if isinstance(content, str) else content
    account = _read_checksums(folder) | {name: hashlib.sha256(data).hexdigest()}
    path = folder / name
    if path.exists() and path.read_bytes() == data:
        return path
    path.unlink(
        missing_ok=True
    )  # killed between the two files, the account names a file that is absent, not a strange one
    with replace_atomically(folder / CHECKSUM_FILE) as part:
        part.write_text(json.dumps(account, indent=1) + "\n", encoding="utf-8")
    with replace_atomically(path) as part:
        part.write_bytes(data)
    return path


def _read_checksums(folder: Path) -> dict[str, str]:
    try:
        return dict(json.loads((folder / CHECKSUM_FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def _hash_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
