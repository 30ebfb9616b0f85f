"""Tables of words: what gives way when there is little room."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from cli.word_table import Column, compute_widths, print_word_table

COLUMNS = [Column("name", whole=True), Column("what"), Column("n", numeric=True)]
ROWS = [["first-of-all", "some words that can be broken", 7], ["b", "short", 12345]]


def show(width: int | None) -> list[str]:
    screen = Console(file=io.StringIO(), width=width or 300, force_terminal=width is not None, color_system=None)
    print_word_table(screen, COLUMNS, ROWS)
    return screen.file.getvalue().splitlines()


def test_a_pipe_gets_one_line_a_row(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert show(None) == [
        "name          what                               n",
        "first-of-all  some words that can be broken      7",
        "b             short                          12345",
    ]


def test_words_are_broken_between_and_names_and_numbers_never():
    assert show(32) == [
        "name          what             n",
        "────────────────────────────────",
        "first-of-all  some words       7",
        "              that can be",
        "              broken",
        "b             short        12345",
    ]


@pytest.mark.parametrize("width", [1, 20, 27, 28, 40, 80])
def test_no_word_is_broken_however_narrow(width):
    words = " ".join(show(width)).split()
    assert {"first-of-all", "words", "broken", "12345"} <= set(words)


def test_the_column_gives_way_that_costs_fewest_lines():
    rows = [["a b c d e f", "x"], ["a b c d e f", "y"], ["g", "two words"]]
    assert compute_widths([Column("a"), Column("b")], rows, 18) == [11, 5]
