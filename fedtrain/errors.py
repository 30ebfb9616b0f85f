"""The error of training that went wrong although its input was right."""

from __future__ import annotations

from typing import ClassVar

from theory.errors import InputError


class TrainingError(InputError):
    """Training cannot go on. The message is one line: which client and round, what happened, the way out."""

    exit_code: ClassVar[int] = 1
