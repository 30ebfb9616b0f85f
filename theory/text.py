"""Text that several messages share: durations, counts, and the nearest name to one that is not known."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def format_duration(seconds: float) -> str:
    """A time in the unit that fits, with two digits or so: 0.35 s, 42 s, 2.4 min, 1.7 h, 3.1 days."""
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.2g} s"


def format_count(count: int, noun: str) -> str:
    """Format a count with its noun: 1 step, 2 steps."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


def suggest_name(name: str, known: Iterable[str]) -> str:
    """The nearest known name if one is near, and all of them."""
    names = list(known)
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    return (f"did you mean {near[0]}? " if near else "") + f"there are {', '.join(names)}"
