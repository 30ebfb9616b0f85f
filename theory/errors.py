"""The one error that a user can cause and fix."""

from __future__ import annotations

from collections.abc import Sequence


class InputError(ValueError):
    """Bad input: a one-line message that names the value and says how to fix it."""

    def __init__(self, message: str, options: Sequence[str] = ()) -> None:
        """``options`` are the keywords that the message advises to change; a command line calls them by its flags."""
        super().__init__(message)
        self.options = tuple(options)
