"""What came of a reproduction: tables beside the paper's numbers, the files they were written to, what failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from fedtrain.report.records import RunRecord, read_record
from fedtrain.reproduction.jobs import Job
from fedtrain.reproduction.owned_files import check_owned, write_owned
from fedtrain.reproduction.paper_numbers import PaperNumbers
from fedtrain.reproduction.plan import Plan
from fedtrain.reproduction.results import ComparisonTable, build_comparison_tables
from fedtrain.reproduction.table_formats import (
    format_lines,
    list_notes,
    to_csv,
    to_dict,
    to_json,
    to_latex,
    to_markdown,
)
from theory.errors import InputError
from theory.text import suggest_name

TABLE_FILES = ("table.md", "table.csv", "table.json", "table.tex")
FIGURE_FILE = "figure.png"


@dataclass(frozen=True)
class FailedRun:
    """A run that did not come to its end."""

    folder: Path
    log: Path
    why: str
    """The last line of its log."""


@dataclass(frozen=True)
class ItemResult:
    """A table or figure of the paper as our runs have it."""

    name: str
    tables: list[ComparisonTable]
    """One for each panel."""
    folder: Path
    files: list[str]
    """What was written there."""

    def to_dict(self) -> dict[str, Any]:
        """As ``table.json`` has it; numbers are in %."""
        return to_dict(self.name, self.tables)

    def _repr_html_(self) -> str:
        return "".join(map(_format_html_table, self.tables))

    def __repr__(self) -> str:
        return to_markdown(self.tables)


@dataclass(frozen=True, repr=False)
class Reproduction:
    """Tables and figures of the paper with our numbers beside the paper's; tables in a notebook."""

    items: dict[str, ItemResult]
    """By name, such as T7."""
    failed: list[FailedRun]
    """Runs that failed; the others went on."""
    out: Path
    """The folder of all of it."""

    def __getitem__(self, name: str) -> ItemResult:
        """A table or figure by its name."""
        if name.upper() not in self.items:
            raise InputError(f"{name!r} was not reproduced; {suggest_name(name.upper(), self.items)}")
        return self.items[name.upper()]

    def to_dict(self) -> dict[str, Any]:
        """What ``fedco2 reproduce --json`` prints."""
        return {
            "out": str(self.out),
            "experiments": [item.to_dict() for item in self.items.values()],
            "failed": [{"folder": str(one.folder), "log": str(one.log), "why": one.why} for one in self.failed],
        }

    def __repr__(self) -> str:
        return "\n\n".join([*map(repr, self.items.values()), *self._list_failures()])

    def _repr_html_(self) -> str:
        items = "".join(item._repr_html_() for item in self.items.values())
        return items + "".join(f"<p>{escape(text)}</p>" for text in self._list_failures())

    def _list_failures(self) -> list[str]:
        return [f"failed: {one.folder}: {one.why} (its log: {one.log})" for one in self.failed]


def _format_html_table(table: ComparisonTable) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in ("", *table.columns.values()))
    rows = "".join(
        f"<tr><th>{escape(name)}</th>{''.join(f'<td>{escape(text)}</td>' for text in texts)}</tr>"
        for name, _, texts in format_lines(table)
    )
    notes = "".join(f"<p>{escape(note)}</p>" for note in list_notes(table))
    return f"<table><caption>{escape(table.title)}</caption><tr>{head}</tr>{rows}</table>{notes}"


def check_output_files(one: Plan, out: Path) -> None:
    """Refuse to write over what is not ours, before hours of runs."""
    check_owned(out / one.paper_item.name, [*TABLE_FILES, *[FIGURE_FILE] * bool(one.paper_item.figure)])


def write_results(one: Plan, jobs: Mapping[str, Job], paper: PaperNumbers, out: Path) -> ItemResult:
    """Read the finished runs, write the tables and the figure."""
    identities = {cell.identity for cell in one.run_specs.values()}
    records: dict[str, RunRecord] = {i: read_record(jobs[i].folder) for i in identities if jobs[i].finished}
    name, folder, files = one.paper_item.name, out / one.paper_item.name, [*TABLE_FILES]
    found = build_comparison_tables(one, records, paper)
    texts = (to_markdown(found), to_csv(name, found), to_json(name, found), to_latex(found))
    for file, text in zip(TABLE_FILES, texts, strict=True):
        write_owned(folder, file, text)
    if one.paper_item.figure and records:
        from fedtrain.reproduction.paper_figures import draw_paper_figure

        write_owned(folder, FIGURE_FILE, draw_paper_figure(one, records, found))
        files.append(FIGURE_FILE)
    return ItemResult(name, found, folder, files)
