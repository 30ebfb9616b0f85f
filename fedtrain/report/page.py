"""Runs as one page that needs nothing but itself: no network, no script, no other file."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from fedtrain.files import check_new_file, replace_atomically
from fedtrain.report import page_tables, wording
from fedtrain.report.boards import RULES, Board, table
from fedtrain.report.likeness import differences
from fedtrain.report.pictures import labels, pictures
from theory.report.page import style


def check_new_page(path: Path) -> None:
    """Refuse what cannot become the page."""
    check_new_file(path, ".html", "the report is a page", "--out")


def write_page(
    boards: Sequence[Board], path: Path, comparison: dict[str, Any] | None = None, command: str = ""
) -> None:
    """Write the page of all boards, and of the comparison if there is one."""
    check_new_page(path)
    text = page(boards, comparison, command)
    with replace_atomically(path) as part:
        part.write_text(text, encoding="utf-8")


def page(boards: Sequence[Board], comparison: dict[str, Any] | None = None, command: str = "") -> str:
    """The page as text."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        name: getattr(wording, name)
        for name in ("percent", "spread", "points", "chance", "amount", "duration", "whole")
    }
    template = environment.from_string(files("fedtrain.report").joinpath("page.html.j2").read_text(encoding="utf-8"))
    rows = [row for board in boards for row in board.rows]
    apart, common = differences([row.runs for row in rows])
    return template.render(
        style=style(),
        title=title(boards),
        count=sum(len(row.runs) for row in rows),
        boards=[_board_view(number, board) for number, board in enumerate(boards, 1)],
        compare=comparison,
        rows=rows,
        apart=apart,
        common=common,
        command=command,
        rules=RULES,
    )


def title(boards: Sequence[Board]) -> str:
    """What was trained on what."""
    names = list(dict.fromkeys(row.first.title for board in boards for row in board.rows))
    data = " and ".join(dict.fromkeys(board.title for board in boards))
    methods = (
        f"{len(names)} methods"
        if len(names) > 3
        else " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)
    )
    return f"{methods} on {data}"


def _board_view(number: int, board: Board) -> dict[str, Any]:
    return {
        "number": number,
        "board": board,
        "table": table(board),
        "headline": page_tables.headline(board),
        "results": page_tables.results(board),
        "everyone": page_tables.everyone(board) if len(board.clients) > page_tables.MANY else None,
        "branches": page_tables.branches(board),
        "pictures": pictures(board),
        "labels": labels(board),
        "runs": page_tables.runs_table(board),
    }
