"""How ``fedco2 methods`` shows what it found."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from rich.console import Console
from rich.text import Text

from cli.word_table import Column, print_word_table
from fedtrain.utils.terminal import print_paragraph
from fedtrain.utils.text import format_bytes

Part = Literal["shared", "personal", "published"]


class PartReport(TypedDict):
    """The entries of a model that are treated alike."""

    what: str
    """In words."""
    numbers: int
    in_norm: int
    """How many of the numbers belong to batch norm."""
    places: tuple[str, ...]
    """The modules that they are in."""


class OptionReport(TypedDict):
    """An option of a method."""

    name: str
    default: Any
    choices: tuple[str, ...]
    meaning: str
    preset: Any
    """Its value in the preset."""


class MethodReport(TypedDict):
    """All there is to say of a method on a network."""

    name: str
    title: str
    about: str
    how: str
    clients: int
    shared: PartReport
    personal: PartReport
    published: PartReport
    names: dict[str, list[str]]
    """The shared entries, by the part of the module that they are in."""
    bytes: dict[str, dict[str, int]]
    """Of one client in one round, by direction and kind."""
    options: list[OptionReport]


class MethodsReport(TypedDict):
    """One method or all, on one network."""

    model: str
    preset: str
    clients: int
    methods: list[MethodReport]


PART_MEANINGS: dict[Part, str] = {
    "shared": "averaged by the server",
    "personal": "each client has its own",
    "published": "personal too, but shown to every other client",
}
NOTHING = "-"
FIELD_WIDTH = max(map(len, PART_MEANINGS)) + 2


def show_all(screen: Console, report: MethodsReport) -> None:
    """One row a method."""
    print_paragraph(screen, format_heading(report), "bold")
    for part, meaning in (*PART_MEANINGS.items(), ("up, down", "bytes of one client in one round")):
        print_field(screen, part, meaning)
    columns = [Column("method", whole=True), *map(Column, PART_MEANINGS)]
    columns += [Column("up", numeric=True), Column("down", numeric=True)]
    rows = [
        [one["name"], *(format_cell(one[part]) for part in PART_MEANINGS)]
        + [format_bytes(one["bytes"][way]["total"]) for way in ("up", "down")]
        for one in report["methods"]
    ]
    screen.print()
    print_word_table(screen, columns, rows)
    screen.print()
    print_paragraph(
        screen, "A head is what follows the convolutions; of copa and moon the last layer alone (see model.split_at)."
    )
    screen.print("More on one of them: fedco2 methods NAME")


def show_one(screen: Console, report: MethodsReport, one: MethodReport) -> None:
    """Everything about one method."""
    print_paragraph(screen, one["about"], "bold")
    print_paragraph(screen, one["how"])
    screen.print()
    print_paragraph(screen, format_heading(report), "bold")
    for part in PART_MEANINGS:
        norm = one[part]["in_norm"]
        numbers = f"{one[part]['numbers']:,} numbers" + (
            f", {norm:,} of them batch norm" if 0 < norm < one[part]["numbers"] else ""
        )
        print_field(screen, part, f"{one[part]['what']}: {numbers}" if one[part]["what"] else "nothing")
    for way in ("up", "down"):
        print_field(screen, way, format_traffic_by_kind(one["bytes"][way]))
    if one["names"]:
        screen.print()
        screen.print("Shared entries", style="bold")
        width = max(map(len, one["names"])) + 2
        for place, names in one["names"].items():
            print_field(screen, place, " ".join(name.removeprefix(f"{place}.") for name in names), width)
    screen.print()
    show_options(screen, one)


def print_field(screen: Console, name: str, text: str, width: int = FIELD_WIDTH) -> None:
    """A name, and what it is in a column of its own."""
    print_paragraph(screen, f"{name:<{width}}{text}", indent=width)


def show_options(screen: Console, one: MethodReport) -> None:
    """Name, default, choices and meaning of each."""
    if not one["options"]:
        screen.print("It has no options.")
        return
    print_paragraph(screen, f"Options: fedco2 train --method {one['name']} --set method.NAME=VALUE", "bold")
    for option in one["options"]:
        line = Text(f"  {option['name']}", style="bold").append(
            f" = {format_toml_value(option['default'])}", style="not bold"
        )
        if option["preset"] != option["default"]:
            line.append(f" (here {format_toml_value(option['preset'])})", style="yellow not bold")
        if option["choices"]:
            line.append(f"   of {', '.join(option['choices'])}", style="dim not bold")
        screen.print(line, soft_wrap=True)
        if option["meaning"]:
            print_paragraph(screen, f"      {option['meaning']}", indent=6)


def format_heading(report: MethodsReport) -> str:
    """What the numbers are of."""
    return f"On network {report['model']} as in preset {report['preset']}, {report['clients']} clients"


def format_cell(part: PartReport) -> str:
    """What, and how much of it."""
    return f"{part['what']} ({format_short_count(part['numbers'])})" if part["what"] else NOTHING


def format_short_count(numbers: int) -> str:
    """Numbers as people say them."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if numbers >= size:
            return f"{numbers / size:.3g}{unit}"
    return str(numbers)


def format_traffic_by_kind(weights: dict[str, int]) -> str:
    """Bytes by kind."""
    kinds = {"shared": "averaged weights", "bn": "averaged batch norm", "head": "published heads"}
    each = [f"{format_bytes(weights[kind])} {name}" for kind, name in kinds.items() if weights[kind]]
    return f"{weights['total']:,} bytes" + (f": {', '.join(each)}" if each else "")


def format_toml_value(value: Any) -> str:
    """As TOML has it."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
