"""Numbers in words: durations, bytes and counts, the same in every table, line and page."""

from __future__ import annotations


def format_duration(seconds: float) -> str:
    """A time in the unit that fits, with two digits or so: 0.35 s, 42 s, 2.4 min, 1.7 h, 3.1 days."""
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.2g} s"


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
