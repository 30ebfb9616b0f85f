"""How ``fedco2 theory`` shows what it found."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

VERDICT_COLOURS = {"holds": "green", "fails": "bold red", "certified": "green", "refuted": "bold red"}
VERDICT_SYMBOLS = {"holds": "✓", "fails": "✗", "certified": "✓", "refuted": "✗"}


def format_number(value: float | None, digits: int = 4) -> str:
    """So many significant digits."""
    if value is None or math.isnan(value):
        return "-"
    return "∞" if value == math.inf else f"{value:.{digits}g}"


def format_verdict(verdict: str) -> Text:
    """A verdict in colour and with a sign, so that colour is not all there is."""
    kind = verdict.split(":")[0]
    return Text(f"{VERDICT_SYMBOLS.get(kind, '~')} {verdict}", style=VERDICT_COLOURS.get(kind, "yellow"))


def show_report(screen: Console, report: dict[str, Any], folder: Path) -> None:
    """Setting, eigenvalues, claims, two sentences, and where to look."""
    _show_setting(screen, report["setting"])
    screen.print(_build_eigenvalue_table(report["eigenvalues"]))
    screen.print(_build_claim_table(report["claims"]))
    if "certificates" in report:
        screen.print(_build_certificate_table(report["certificates"]))
    for sentence in report["summary"]:
        screen.print(sentence)
    screen.print()
    screen.print(f"{report['seconds']:.0f} s. Page: {folder / 'report.html'}", soft_wrap=True)
    screen.print(f"Numbers: {folder / 'report.json'}, matrices: {folder / 'matrices.npz'}", soft_wrap=True)


def _show_setting(screen: Console, s: dict[str, Any]) -> None:
    sizes = s["samples"]
    each = str(sizes[0]) if len(set(sizes)) == 1 else f"{min(sizes)} to {max(sizes)}"
    source = f"{s['inputs']} ({s['data']}, ridge {s['ridge']:g})" if s["data"] else (
        f"{s['inputs']}, {s['covariance']} covariances, heterogeneity {s['heterogeneity']:g}"
    )  # fmt: skip
    screen.print(f"Fed-CO2's theory on {source}", style="bold")
    screen.print(
        f"N = {s['clients']} clients, M = {each} samples each, d = {s['dim']}, m = {s['width']} hidden units, "
        f"α = {s['alpha']:g}, seed {s['seed']}, {s['draws']} draw{'s' * (s['draws'] > 1)}, {s['steps']} steps, "
        f"{s['projection']} projection, {s['dtype']} on {s['device']}"
    )
    for broken in s["assumptions_broken"]:
        screen.print(f"Assumption 4.1 broken: {broken}", style="yellow")
    screen.print()


def _build_eigenvalue_table(rows: dict[str, dict[str, float]]) -> Table:
    meanings = {"on": "FedBN (online)", "off": "SingleSet (offline)", "": "Fed-CO2 (mean of both)"}
    table = Table(title="Eigenvalues", box=box.SIMPLE_HEAD, title_justify="left")
    for name in ("kernel", "model"):
        table.add_column(name)
    for name in ("least", "greatest", "condition"):
        table.add_column(name, justify="right")
    for name, row in rows.items():
        model = meanings["on" if "_on" in name else "off" if "_off" in name else ""]
        limit = ", infinite width" if name.endswith("inf") else ""
        cells = (format_number(row[k]) for k in ("min", "max", "condition"))
        table.add_row(name, model + limit, *cells, end_section=name in ("V", "G", "Lambda"))
    return table


def _build_claim_table(rows: list[dict[str, Any]]) -> Table:
    repeated = any("draws" in row for row in rows)
    table = Table(title="Claims", box=box.SIMPLE_HEAD, title_justify="left", padding=(0, 1))
    table.add_column("", style="bold")
    table.add_column("verdict", no_wrap=True)
    table.add_column("margin", justify="right", no_wrap=True)
    if repeated:
        table.add_column("held", justify="right", no_wrap=True)
    table.add_column("claim, and what was measured", ratio=1)
    for row in rows:
        table.add_row(row["id"], _format_short_verdict(row["verdict"]), *_format_margins(row), _format_claim(row))
    return table


def _format_short_verdict(verdict: str) -> Text:
    kind, _, _ = verdict.partition(":")
    return Text(str(format_verdict(kind)), style=format_verdict(verdict).style)


def _format_margins(row: dict[str, Any]) -> list[str]:
    unit = {"digits": " digits", "relative": " rel."}.get(row["unit"], "")
    if "draws" not in row:
        return [format_number(row["margin"], 3) + unit]
    many = row["draws"]
    return [
        f"{format_number(many['mean_margin'], 3)}{unit}\nworst {format_number(many['worst_margin'], 3)}",
        f"{many['held']}/{many['draws']}",
    ]


def _format_claim(row: dict[str, Any]) -> Text:
    """The claim, under what it holds, and the measurement: one line each where they fit."""
    told = Text(row["statement"])
    _, _, condition = row["verdict"].partition(": ")
    if condition:
        told.append(f"\nholds under: {condition}", style="yellow")
    return told.append(f"\n{row['words']}", style="dim")


def _build_certificate_table(rows: dict[str, dict[str, Any]]) -> Table:
    table = Table(
        title="Certificates (first draw, rounding errors included)", box=box.SIMPLE_HEAD, title_justify="left"
    )
    for name in ("ordering", "proof", "larger side", "smaller side", "margin"):
        table.add_column(name)
    for name, row in rows.items():
        sides = (f"{(a + b) / 2:.10g} ± {(b - a) / 2:.0e}" for a, b in (row["left"], row["right"]))
        table.add_row(name, format_verdict(row["verdict"]), *sides, format_number(row["margin"]))
    return table


def show_sweep(screen: Console, rows: list[dict[str, Any]], names: list[str], figure: Path, folder: Path) -> None:
    """One line for each combination."""
    title = "λ_min of V_on (FedBN), V_off (SingleSet) and V (Fed-CO2) as settings vary"
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    for name in (*names, "V_on", "V_off", "V", "V / V_on", "held"):
        table.add_column(name, justify="right")
    for row in rows:
        short = [f"{name} {count}/{row['draws']}" for name, count in row["held"].items() if count < row["draws"]]
        values = (format_number(row[k]) for k in ("V_on", "V_off", "V", "ratio"))
        table.add_row(*(f"{row[name]:g}" for name in names), *values, ", ".join(short) or f"all {len(row['held'])}")
    screen.print(table)
    screen.print(f"Figure: {figure}", soft_wrap=True)
    screen.print(f"Numbers: {folder / 'sweep.json'}", soft_wrap=True)
