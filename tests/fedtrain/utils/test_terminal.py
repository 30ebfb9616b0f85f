"""Paragraphs: broken between words on a terminal, whole elsewhere."""

from __future__ import annotations

import io

from rich.console import Console

from fedtrain.utils.terminal import get_table_width, keep_together, print_paragraph, wrap_words

TEXT = "note: some words and /a/path/that/is/longer/than/any/line and an end"


def show(text: str, terminal: bool, **options: int) -> str:
    screen = Console(file=io.StringIO(), width=20, force_terminal=terminal, color_system=None)
    print_paragraph(screen, text, **options)
    return screen.file.getvalue()


def test_lines_are_broken_between_words_and_hang():
    assert show(TEXT, terminal=True, indent=6).splitlines() == [
        "note: some words and",
        "      /a/path/that/is/longer/than/any/line",
        "      and an end",
    ]


def test_elsewhere_a_paragraph_is_one_line():
    assert show(TEXT, terminal=False, indent=6) == f"{TEXT}\n"


def test_what_is_kept_together_moves_to_the_next_line_as_a_whole():
    text = f"to get it: {keep_together('fedco2 data get x')}"
    assert wrap_words(text, 20) == ["to get it:", "fedco2 data get x"]
    assert show(text, terminal=False) == "to get it: fedco2 data get x\n"


def test_lines_and_leading_blanks_stay():
    assert wrap_words("  a\n\nb", 20) == ["  a", "", "b"]


def test_a_table_is_as_wide_as_the_terminal_or_as_columns_says(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert get_table_width(Console(file=io.StringIO(), width=50, force_terminal=True)) == 50
    assert get_table_width(Console(file=io.StringIO())) is None
    monkeypatch.setenv("COLUMNS", "60")
    assert get_table_width(Console(file=io.StringIO())) == 60
