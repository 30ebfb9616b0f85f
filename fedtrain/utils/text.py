"""Numbers in words: durations, bytes and counts, the same in every table, line and page."""

from __future__ import annotations

from theory.text import format_duration as format_duration


def format_bytes(count: float) -> str:
    """Bytes with three digits: 980 B, 1.13 MB, 279 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def format_count(number: int, what: str) -> str:
    """1 round, 2 rounds."""
    return f"{number:,} {what}{'s' * (number != 1)}"
