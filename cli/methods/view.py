"""How ``fedco2 methods`` shows what it found."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedtrain.utils.text import format_bytes

PART_MEANINGS = {
    "shared": "averaged by the server",
    "personal": "each client has its own",
    "published": "personal too, but shown to every other client",
}
NOTHING = "-"


def show_all(screen: Console, report: dict[str, Any]) -> None:
    """One row a method."""
    screen.print(format_heading(report), style="bold")
    for part, meaning in (*PART_MEANINGS.items(), ("up, down", "bytes of one client in one round")):
        screen.print(f"{part:<10} {meaning}")
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    table.add_column("method", no_wrap=True)
    for part in PART_MEANINGS:
        table.add_column(part)
    for way in ("up", "down"):
        table.add_column(way, justify="right", no_wrap=True)
    for one in report["methods"]:
        cells = (format_cell(one[part]) for part in PART_MEANINGS)
        table.add_row(one["name"], *cells, *(format_bytes(one["bytes"][way]["total"]) for way in ("up", "down")))
    screen.print()
    screen.print(table)
    screen.print()
    screen.print("A head is what follows the convolutions; of copa and moon the last layer alone (see model.split_at).")
    screen.print("More on one of them: fedco2 methods NAME")


def show_one(screen: Console, report: dict[str, Any], one: dict[str, Any]) -> None:
    """Everything about one method."""
    screen.print(one["about"], style="bold")
    screen.print(one["how"])
    screen.print()
    screen.print(format_heading(report), style="bold")
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for part in PART_MEANINGS:
        norm = one[part]["in_norm"]
        numbers = f"{one[part]['numbers']:,} numbers" + (
            f", {norm:,} of them batch norm" if 0 < norm < one[part]["numbers"] else ""
        )
        table.add_row(part, f"{one[part]['what']}: {numbers}" if one[part]["what"] else "nothing")
    for way in ("up", "down"):
        table.add_row(way, format_traffic_by_kind(one["bytes"][way]))
    screen.print(table)
    if one["names"]:
        screen.print()
        screen.print("Shared entries", style="bold")
        entries = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        for place, names in one["names"].items():
            entries.add_row(place, " ".join(name.removeprefix(f"{place}.") for name in names))
        screen.print(entries)
    screen.print()
    show_options(screen, one)


def show_options(screen: Console, one: dict[str, Any]) -> None:
    """Name, default, choices and meaning of each."""
    if not one["options"]:
        screen.print("It has no options.")
        return
    screen.print(f"Options: fedco2 train --method {one['name']} --set method.NAME=VALUE", style="bold")
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
            screen.print(Text(f"      {option['meaning']}"), soft_wrap=True)


def format_heading(report: dict[str, Any]) -> str:
    """What the numbers are of."""
    return f"On network {report['model']} as in preset {report['preset']}, {report['clients']} clients"


def format_cell(part: dict[str, Any]) -> str:
    """What, and how much of it."""
    return f"{part['what']} ({format_count(part['numbers'])})" if part["what"] else NOTHING


def format_count(numbers: int) -> str:
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
    return str(value).lower() if isinstance(value, bool) else str(value)
