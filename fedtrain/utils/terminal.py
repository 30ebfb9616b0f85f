"""Paragraphs for a terminal of any width: broken between words there, one line elsewhere, for programs to read."""

from __future__ import annotations

import os
from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


NO_BREAK = "\N{NO-BREAK SPACE}"


def print_paragraph(screen: Console, text: str, style: str = "", indent: int = 0) -> None:
    """Print text that a terminal breaks between words, never within one; later lines hang by so many blanks."""
    shown = "\n".join(wrap_words(text, screen.width, indent)) if screen.is_terminal else text.replace(NO_BREAK, " ")
    screen.print(shown, style=style, soft_wrap=True)


def wrap_words(text: str, width: int, indent: int = 0) -> list[str]:
    """Lines broken between words; what is longer than a line, such as a path, stays whole to be copied."""
    hanging = " " * indent
    return [
        part.replace(NO_BREAK, " ")
        for line in text.split("\n")
        for part in wrap(line, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False) or [""]
    ]


def keep_together(text: object) -> str:
    """Words that are not to be parted: a number and its unit, a command to be copied. Printed as ordinary blanks."""
    return str(text).replace(" ", NO_BREAK)


def get_table_width(screen: Console) -> int | None:
    """How wide a table may be: as the terminal, or as COLUMNS says; None (any width) in a file or a pipe."""
    return screen.width if screen.is_terminal or os.environ.get("COLUMNS") else None
