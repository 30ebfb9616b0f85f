"""What clients keep, on the disk of whoever trains them: a file for each turn, so that a turn can be taken again."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path

from safetensors import SafetensorError

from fedtrain.config.toml import format_error
from fedtrain.parameters import StateDict
from fedtrain.serialization.checked_file import CORRUPT_FILE_ERRORS, load_checked, save_checked
from theory.errors import InputError

CLIENT_STATE_FORMAT = "fedco2 own entries 1"


class ClientStateStore:
    """Who trains client A in round 7 finds its entries of the round in which A trained last, and adds those of 7.

    A turn is thus a function of what the server says alone: told of the same round twice, a client answers the same.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, client: str, round: int, entries: StateDict) -> None:
        """Keep what a client has become in a round, counted from 1; complete or absent."""
        path = self._path(client, round)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            save_checked(path, entries, {"format": CLIENT_STATE_FORMAT, "client": client, "round": round})
        except (SafetensorError, OSError) as error:
            raise InputError(f"{path}: cannot be written ({format_error(error)}); make room or get leave") from None

    def load(self, client: str, round: int) -> StateDict:
        """What a client became in that round."""
        path = self._path(client, round)
        if not path.exists():
            raise InputError(
                f"client {client}: what it kept after round {round} is not in {self.folder}; it is where it trained"
            )
        try:
            entries, about = load_checked(path)
            if about != (wanted := {"format": CLIENT_STATE_FORMAT, "client": client, "round": round}):
                raise ValueError(f"it is of {about}, not of {wanted}")
        except (*CORRUPT_FILE_ERRORS, OSError) as error:
            raise InputError(f"{path}: damaged ({format_error(error)}); start the run anew") from None
        return entries

    def prune(self, client: str, needed: Collection[int], before: int) -> None:
        """Take away what a client became in earlier rounds, unless it is needed, and files that were never finished."""
        folder = self._path(client, 0).parent
        for path in folder.glob("*.safetensors"):
            if path.stem.isdecimal() and int(path.stem) < before and int(path.stem) not in needed:
                path.unlink(missing_ok=True)
        for path in folder.glob(".*.part"):
            path.unlink(missing_ok=True)

    def _path(self, client: str, round: int) -> Path:
        return self.folder / make_folder_name(client) / f"{round:06}.safetensors"


def make_folder_name(name: str) -> str:
    """A name may hold what no file system likes: its folder has its plain letters and a mark that is its own."""
    letters = "".join(c if c.isascii() and c.isalnum() else "-" for c in name)[:40]
    return f"{letters}-{hashlib.blake2b(name.encode(), digest_size=4).hexdigest()}"
