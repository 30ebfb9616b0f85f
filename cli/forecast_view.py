"""How ``fedco2 forecast`` shows what it foretells."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from fedtrain.report.wording import points
from theory.forecast import FEDBN, FEDCO2, SINGLESET

METHODS = (SINGLESET, FEDBN, FEDCO2)
FEW = 24
"""More clients are shown from the one that federation hurts most to the one that it helps most, a dozen of each."""


def show(screen: Console, told: dict[str, Any]) -> None:
    """A row a client, then the verdict in words."""
    screen.print(f"Foretold, nothing trained: {told['title']}", style="bold", soft_wrap=True)
    screen.print(f"{told['score']}, in %, training samples, each predicted from three quarters of the others")
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    table.add_column("client", no_wrap=True)
    for name in ("samples", *METHODS, "FedBN - SingleSet"):
        table.add_column(name, justify="right")
    table.add_column("federation")
    rows = told["clients"]
    if len(rows) > FEW:
        order = sorted(rows, key=lambda row: row["federation"]["gain"])
        rows = [*order[: FEW // 2], *order[-FEW // 2 :]]
    for k, row in enumerate(rows):
        gap = len(told["clients"]) > FEW and k == FEW // 2 - 1
        table.add_row(row["name"], f"{row['samples']:,}", *cells(row["scores"], row["federation"]))
        if gap:
            table.add_section()
    table.add_section()
    samples = sum(row["samples"] for row in told["clients"])
    table.add_row("mean of all", f"{samples:,}", *cells(told["mean"], told["federation"]), style="bold")
    screen.print(table)
    if len(told["clients"]) > FEW:
        screen.print(
            f"Of {len(told['clients'])} clients the {FEW // 2} whom federation hurts most, or helps least, and the"
        )
        screen.print(f"{FEW // 2} whom it helps most; --json has all.")
    first = told["first"]
    clear = "ahead of" if first["word"] == "helps" else "level with"
    screen.print(
        f"{first['method']} is {clear} {first['second']}: {points(first['gain'])} ± {100 * first['error']:.1f} points",
        style="bold",
    )
    screen.print("± standard error over samples; beyond two of them federation is said to help or to hurt.")
    if told["standin"]:
        screen.print("STAND-IN DATA: this says nothing about the real data set", style="bold yellow")
    for note in told["notes"]:
        screen.print(f"note: {note}", style="yellow", soft_wrap=True)


def cells(scores: dict[str, float], federation: dict[str, Any]) -> list[str]:
    """Scores of the three methods, and what federation does."""
    gain = f"{points(federation['gain'])} ± {100 * federation['error']:.1f}"
    return [*(f"{100 * scores[method]:.1f}" for method in METHODS), gain, federation["word"]]
