"""The records of the runs in docs/results, and that docs/results.md says what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedtrain.config import from_tables
from fedtrain.folder import SUMMARY, Folder
from fedtrain.report.records import Record, read_record
from fedtrain.selection import summarise

DOCS = Path(__file__).parents[1] / "docs"
RUNS = sorted(path.parent for path in (DOCS / "results").rglob("config.toml"))
TEXT = (DOCS / "results.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def records() -> dict[str, list[Record]]:
    """By the folder that they are in."""
    found: dict[str, list[Record]] = {}
    for path in RUNS:
        found.setdefault(path.parent.name, []).append(read_record(path))
    return found


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.name)
def test_a_record_is_whole(path):
    folder = Folder(path)
    config, summary = from_tables(folder.tables()), folder.read_json(SUMMARY)
    assert folder.finished
    assert not summary["standin"]
    rounds = config.server.rounds
    assert summary["rules"] == summarise(folder.rows(), lambda round: config.evaluation.in_window(round, rounds))
    for file in path.iterdir():
        assert not re.search(r"/(root|home|tmp)/", file.read_text(encoding="utf-8")), file


def table(heading: str) -> dict[str, list[str]]:
    """Rows of the first table under a heading of docs/results.md, by their first cell."""
    lines = TEXT.split(f"\n## {heading}", 1)[1].split("\n## ", 1)[0].splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("|"))
    rows = {}
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        first, *others = (cell.strip() for cell in line.strip("|").split("|"))
        rows.setdefault(first, others)
    return rows


@pytest.mark.parametrize(("heading", "folder"), [("Table 7", "digits"), ("Table 1", "office")])
def test_the_page_says_what_the_records_say(heading, folder, records):
    shown = table(heading)
    assert records[folder]
    for record in records[folder]:
        result = record.rules[record.own_rule]
        values = [*(one["fused"] for one in result["clients"].values()), result["mean"]["fused"]]
        title = from_tables(record.tables).method.title
        assert shown[title] == [f"{100 * value:.1f}" for value in values], title
