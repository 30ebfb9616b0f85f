"""The error of data that are missing or not what they should be."""

from __future__ import annotations

from typing import ClassVar

from theory.errors import InputError


class DataError(InputError):
    """Data missing or wrong. The message is one line: which file, what is wrong, the way out.

    Names in it may come from a hostile file: what cannot be printed (a newline, a terminal's escape) is spelt out.
    """

    exit_code: ClassVar[int] = 3

    def __init__(self, message: str = "", *, options: tuple[str, ...] = ()) -> None:
        super().__init__("".join(c if c.isprintable() else ascii(c)[1:-1] for c in message), options=options)
