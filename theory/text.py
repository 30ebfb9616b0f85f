"""Text that several messages share: durations, counts, and the nearest name to one that is not known."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

CLOSE = 0.6
"""How alike two names are of which one may be a misspelling of the other; resnet18 is not alexnet."""
SHORT = 3
"""Of so few letters one may differ: nu, mu."""
FEW_NAMES = 20
"""Up to so many names are all listed beside the nearest."""


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
    """The way out when a name is not known: the nearest one, and all if they are few or none is near."""
    names = list(known)
    near, listed = find_nearest_name(name, names), f"there are {', '.join(names) or 'none'}"
    if near is None:
        return listed
    return f"did you mean {near!r}?" + (f" {listed}" if len(names) <= FEW_NAMES else "")


def find_nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The name that was probably meant, upper and lower case alike: one that it begins, else one spelt nearly so."""
    names = {one.lower(): one for one in known}
    longer = [one for one in names if name and one.startswith(name.lower())]  # best: best-by-validation, not last
    near = longer or get_close_matches(name.lower(), names, n=1, cutoff=CLOSE if len(name) > SHORT else 0.5)
    return names[near[0]] if near else None
