"""The records of the runs in docs/results, and that docs/results.md says what they say."""

from __future__ import annotations

import re
from collections.abc import Collection
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


def tables(text: str, heading: str) -> list[list[list[str]]]:
    """The cells of each table under a heading."""
    part = text.split(f"\n## {heading}", 1)[1].split("\n## ", 1)[0]
    found = re.findall(r"(?:^\|.*\n)+", part, re.MULTILINE)
    return [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if "---" not in line]
        for table in found
    ]


def said(table: list[list[str]]) -> dict[tuple[str, str], dict[str, str]]:
    """By method and branch: what stands in which column."""
    heads, *rows = table
    found: dict[tuple[str, str], dict[str, str]] = {}
    method = ""
    for first, *others in rows:
        branch = first.removeprefix("- ") if first.startswith("- ") else "fused"
        method = first if branch == "fused" else method
        found[method, branch] = dict(zip(heads[1:], others, strict=True))
    return found


def in_words(records: list[Record], rule: str) -> dict[tuple[str, str], list[str]]:
    """By method and branch: the accuracy of every client, and their mean."""
    found = {}
    for record in records:
        result, title = record.rules[rule], from_tables(record.tables).method.title
        for branch, mean in result["mean"].items():
            values = [*(one[branch] for one in result["clients"].values()), mean]
            found[title, branch] = [f"{100 * value:.1f}" for value in values]
    return found


def compare(table: list[list[str]], found: dict[tuple[str, str], list[str]], other: Collection[str] = ()) -> None:
    """Every row of the table, but for columns of others' numbers, is that of the records; none is missing."""
    shown = said(table)
    assert {key for key in found if key[1] == "fused"} <= set(shown)
    for key, row in shown.items():
        assert [value for head, value in row.items() if head not in other] == found[key], key


@pytest.mark.parametrize(
    ("heading", "number", "folder", "rule", "other"),
    [
        ("Table 7", 0, "digits", "last", ()),
        ("Table 1", 0, "office", "best-by-validation", ()),
        ("Table 1", 1, "office", "last", ("the authors' WebCam",)),
    ],
)
def test_the_page_says_what_the_records_say(heading, number, folder, rule, other, records):
    assert records[folder]
    compare(tables(TEXT, heading)[number], in_words(records[folder], rule), other)


def test_the_readme_says_what_the_records_say(records):
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    compare(tables(readme.replace("### Results", "## Results"), "Results")[0], in_words(records["digits"], "last"))
