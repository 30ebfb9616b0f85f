"""Examples in the documentation that are run: what they print beside what the page says that they print."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO
from itertools import zip_longest
from typing import Any

EXAMPLE = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)
"""A block of Python, and what it prints if that stands in the next block."""
POINTS = 5
"""By so much an accuracy in %, or another number with a decimal point, may differ on another machine."""


def run_example(code: str, names: dict[str, Any], where: str) -> str:
    """Run the code with these names at hand, which it may add to; what it prints."""
    with redirect_stdout(StringIO()) as printed:
        exec(compile(code, where, "exec", dont_inherit=True), names)  # not this module's way with annotations
    return printed.getvalue()


def assert_like(printed: str, promised: str) -> None:
    """The same words, and numbers that are close; ``...`` on a line of its own stands for any lines."""
    for part in re.split(r"^\.\.\.$", promised, flags=re.MULTILINE):
        words = part.split()
        ways = range(len(printed.split()) - len(words) + 1)
        assert any(_is_like(printed.split()[at : at + len(words)], words) for at in ways), f"{printed}\nhas not\n{part}"


def _is_like(printed: list[str], promised: list[str]) -> bool:
    return all(one == other or _is_close(one, other) for one, other in zip_longest(printed, promised, fillvalue=""))


def _is_close(one: str, other: str) -> bool:
    numbers = [re.fullmatch(r"\(?([+\-−]?\d+\.\d+)[),]?", word) for word in (one, other)]
    if not all(numbers):
        return False
    first, second = (float(found.group(1).replace("−", "-")) for found in numbers if found)
    return abs(first - second) <= POINTS
