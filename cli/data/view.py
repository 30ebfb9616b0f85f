"""How ``fedco2 data`` shows which data sets there are, and which are here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NotRequired, TypedDict

from rich.console import Console

from cli.word_table import Column, print_word_table
from fedtrain.data.datasets import DATASETS
from fedtrain.utils.terminal import get_table_width, keep_together, print_paragraph
from fedtrain.utils.text import format_bytes

NAME_WIDTH = max(map(len, DATASETS)) + 2
ROOMY_WIDTH = 120
"""From here on the terms have a column of their own."""


class DatasetRow(TypedDict):
    """A data set of the paper."""

    name: str
    title: str
    domains: dict[str, str]
    """Titles by name."""
    classes: int
    size: int
    """Pixels a side."""
    terms: str
    present: list[str]
    """Its domains that are here."""


class StoredDomainRow(TypedDict):
    """A domain of a data set: whether it is here, and what it is."""

    dataset: str
    domain: str
    state: Literal["absent", "present", "broken"]
    bytes: int
    title: NotRequired[str]
    origin: NotRequired[str]
    split: NotRequired[str]
    counts: NotRequired[str]
    problem: NotRequired[str]


def show_datasets(screen: Console, rows: Sequence[DatasetRow]) -> None:
    """A row for each data set; on a narrow terminal the terms follow below."""
    width = get_table_width(screen)
    roomy = width is None or width >= ROOMY_WIDTH
    columns = [
        *(Column("name", whole=True), Column("data set"), Column("domains"), Column("classes", numeric=True)),
        *(Column("images", whole=True), Column("here", whole=True), *[Column("terms")] * roomy),
    ]
    cells = [
        [
            *(row["name"], row["title"], ", ".join(row["domains"].values()), row["classes"]),
            *(f"{row['size']} x {row['size']}", _format_presence(row), *[row["terms"]] * roomy),
        ]
        for row in rows
    ]
    print_word_table(screen, columns, cells)
    if not roomy:
        screen.print()
        for row in rows:
            print_paragraph(screen, f"{row['name']:<{NAME_WIDTH}}{row['terms']}", indent=NAME_WIDTH)


def _format_presence(row: DatasetRow) -> str:
    here, all_ = len(row["present"]), len(row["domains"])
    return "all" if here == all_ else f"{here} of {all_}" if here else "no"


def show_stored_data(screen: Console, rows: Sequence[StoredDomainRow]) -> None:
    """A line for each data set: what is here of it, what is missing, and the command that gets it."""
    for name in DATASETS:
        mine = [row for row in rows if row["dataset"] == name]
        print_paragraph(screen, f"{name:<{NAME_WIDTH}}{_describe_stored_data(name, mine)}", indent=NAME_WIDTH)
    for row in rows:
        if row["state"] == "broken":
            print_paragraph(screen, row["problem"], "bold red")
    if all(row["state"] == "absent" for row in rows):
        print_paragraph(screen, "nothing here yet; to import files that you have: fedco2 data add NAME PATH")


def _describe_stored_data(name: str, rows: Sequence[StoredDomainRow]) -> str:
    titles = DATASETS[name].domains
    present, broken, absent = (
        [row for row in rows if row["state"] == state] for state in ("present", "broken", "absent")
    )
    parts = []
    if present:
        names = ", ".join(row["title"] for row in present)
        parts.append(f"here: {names}, {keep_together(format_bytes(sum(row['bytes'] for row in present)))}")
    if broken:
        parts.append(f"broken: {', '.join(row['domain'] for row in broken)}")
    if absent:
        missing = ", ".join(titles[row["domain"]] for row in absent)
        parts.append(f"missing: {missing}" if present or broken else "not here")
        parts.append(
            f"to get {'it' if parts[-1] == 'not here' else 'the rest'}: {keep_together(f'fedco2 data get {name}')}"
        )
    return "; ".join(parts)
