"""How ``fedco2 theory`` shows what it found, on 80 columns as on 140."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from theory.certify import Ordering
from theory.formula_certificates import FormulaCertificates
from theory.results import ClaimFinding, EigenvalueRange, MixtureResults, VerificationResults
from theory.sweep import SweepResult

WIDE_SCREEN = 110
"""Columns from which a claim stands beside its verdict rather than below it."""
INDENT = 7
VERDICT_COLOURS = {"holds": "green", "fails": "bold red", "certified": "green", "refuted": "bold red"}
VERDICT_SYMBOLS = {"holds": "✓", "fails": "✗", "certified": "✓", "refuted": "✗"}
MAX_SHARING_ROWS = 16
"""Clients beyond these are left to report.json."""
MARGIN_LEGEND = (
    "margin: how far the claim as printed is from failing, above 0 it holds; in digits (log10 of a ratio), relative, "
    "or absolute"
)


def format_number(value: float | None, digits: int = 4) -> str:
    """So many significant digits."""
    if value is None or math.isnan(value):
        return "-"
    return "∞" if value == math.inf else f"{value:.{digits}g}"


def format_verdict(verdict: str) -> Text:
    """A verdict without its conditions, in colour and with a sign, so that colour is not all there is."""
    kind = verdict.split(":")[0]
    return Text(f"{VERDICT_SYMBOLS.get(kind, '~')} {kind}", style=VERDICT_COLOURS.get(kind, "yellow"))


def show_report(screen: Console, report: VerificationResults, folder: Path) -> None:
    """Setting, eigenvalues, claims, two sentences, and where to look."""
    _show_setting(screen, report)
    screen.print(_build_eigenvalue_table(report.eigenvalues))
    _show_claims(screen, report.findings)
    if report.certificates is not None:
        screen.print(_build_certificate_table(report.certificates, wide=screen.width >= WIDE_SCREEN))
    if report.formula_certificates is not None:
        _show_formula_certificates(screen, report.formula_certificates)
    if report.mixture is not None:
        _show_mixture(screen, report.mixture)
    for sentence in report.summary:
        screen.print(sentence)
    screen.print()
    screen.print(f"{report.seconds:.0f} s. Page: {folder / 'report.html'}", soft_wrap=True)
    screen.print(f"Numbers: {folder / 'report.json'}, matrices: {folder / 'matrices.npz'}", soft_wrap=True)


def _show_setting(screen: Console, report: VerificationResults) -> None:
    s, sizes, data = report.setting, report.sizes, report.data
    each = str(sizes[0]) if len(set(sizes)) == 1 else f"{min(sizes)} to {max(sizes)}"
    if data:
        source = [f"{report.inputs} ({data.source}", f"ridge {s.ridge:g})"]
    else:
        source = [report.inputs, f"{s.covariance} covariances", f"heterogeneity {s.heterogeneity:g}"]
    _show_items(screen, [f"Fed-CO2's theory on {source[0]}", *source[1:]], style="bold")
    values = [
        f"N = {report.clients} client{'s' * (report.clients > 1)}", f"M = {each} samples each", f"d = {report.dim}",
        f"m = {s.width} hidden units", f"α = {s.alpha:g}", f"seed {s.seed}", f"{s.draws} draw{'s' * (s.draws > 1)}",
        f"{s.steps} steps", f"{s.projection} projection", f"{s.dtype} on {s.device}",
    ]  # fmt: skip
    _show_items(screen, values)
    for broken in report.assumptions_broken:
        screen.print(f"Assumption 4.1 is broken: {broken}", style="yellow")
    for note in report.notes:
        screen.print(f"Note: {note}", style="yellow")
    screen.print()


def _show_items(screen: Console, items: Iterable[str], style: str = "") -> None:
    """Items with commas between them, broken only there."""
    lines = [""]
    for item in items:
        longer = f"{lines[-1]}, {item}" if lines[-1] else item
        if lines[-1] and len(longer) + 1 > screen.width:
            lines[-1] += ","
            lines.append(item)
        else:
            lines[-1] = longer
    for line in lines:
        screen.print(line, style=style, soft_wrap=True)  # a long path is left whole


def _build_eigenvalue_table(rows: dict[str, EigenvalueRange]) -> Table:
    meanings = {"on": "FedBN (online)", "off": "SingleSet (offline)", "": "Fed-CO2 (mean of both)"}
    table = Table(title="Eigenvalues", box=box.SIMPLE_HEAD, title_justify="left")
    for name in ("kernel", "model"):
        table.add_column(name, no_wrap=True)
    for name in ("least", "greatest", "condition"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, row in rows.items():
        model = meanings["on" if "_on" in name else "off" if "_off" in name else ""]
        limit = ", m → ∞" if name.endswith("inf") else ""
        cells = (format_number(value) for value in (row.min, row.max, row.condition))
        table.add_row(name, model + limit, *cells, end_section=name in ("V", "G", "Lambda"))
    return table


def _show_claims(screen: Console, findings: list[ClaimFinding]) -> None:
    if screen.width >= WIDE_SCREEN:
        screen.print(_build_claim_table(findings))
    else:
        screen.print("Claims", style="italic")
        screen.print()
        for finding in findings:
            screen.print(_format_claim_line(finding))
            screen.print(Padding(_format_claim(finding), (0, 0, 0, INDENT), expand=False))
        screen.print()
    screen.print(MARGIN_LEGEND, style="dim")
    screen.print()


def _format_claim_line(finding: ClaimFinding) -> Text:
    """Verdict and margin of a claim on one line."""
    line = Text(f"  {finding.id:<{INDENT - 2}}", style="bold")
    line.append_text(Text(f"{format_verdict(finding.verdict).plain:<15}", style=format_verdict(finding.verdict).style))
    margin = format_number(finding.draws.mean_margin if finding.draws else finding.margin, 3)
    line.append(f"margin {margin} {finding.unit}", style="none")
    if finding.draws:
        worst = format_number(finding.draws.worst_margin, 3)
        line.append(f" (worst {worst}), held {finding.draws.held}/{finding.draws.draws}", style="none")
    return line


def _build_claim_table(findings: list[ClaimFinding]) -> Table:
    repeated = any(finding.draws for finding in findings)
    table = Table(title="Claims", box=box.SIMPLE_HEAD, title_justify="left", padding=(0, 1))
    table.add_column("", style="bold", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("margin", justify="right", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    if repeated:
        table.add_column("held", justify="right", no_wrap=True)
    table.add_column("claim, and what was measured", ratio=1)
    for finding in findings:
        table.add_row(
            finding.id, format_verdict(finding.verdict), *_format_margins(finding, repeated), _format_claim(finding)
        )
    return table


def _format_margins(finding: ClaimFinding, repeated: bool) -> list[str]:
    many = finding.draws
    if many is None:
        return [format_number(finding.margin, 3), finding.unit, *([""] if repeated else [])]
    return [
        f"{format_number(many.mean_margin, 3)}\nworst {format_number(many.worst_margin, 3)}",
        finding.unit,
        f"{many.held}/{many.draws}",
    ]


def _format_claim(finding: ClaimFinding) -> Text:
    """The claim, under what it holds, and the measurement: one line each where they fit."""
    text = Text(finding.statement)
    if finding.conditions:
        text.append(f"\nholds under: {'; '.join(finding.conditions)}", style="yellow")
    return text.append(f"\n{finding.words}", style="dim")


def _show_formula_certificates(screen: Console, found: FormulaCertificates) -> None:
    title = "Certificates of the formula, in real numbers (first draw)"
    screen.print(_build_certificate_table(found.orderings, wide=screen.width >= WIDE_SCREEN, title=title))
    on, off = (found.rounding[name] for name in ("V_on", "V_off"))
    gates = f"; {found.exact_gates} gates were decided in rational numbers" if found.exact_gates else ""
    screen.print(
        f"V as computed is within {on:.0e} (V_on) and {off:.0e} (V_off) of the formula, in norm{gates}", style="dim"
    )
    screen.print()


def _build_certificate_table(
    proofs: dict[str, Ordering], wide: bool, title: str = "Certificates (first draw, rounding errors included)"
) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", padding=(0, 1) if wide else (0, 1, 0, 0))
    digits = 10 if wide else 8
    for name in ("ordering", "proof", "larger side", "smaller side", "margin"):
        table.add_column(name, no_wrap=True)
    for name, proof in proofs.items():
        sides = (
            f"{(side.low + side.high) / 2:.{digits}g} ± {(side.high - side.low) / 2:.0e}"
            for side in (proof.left, proof.right)
        )
        table.add_row(name, format_verdict(proof.verdict), *sides, format_number(proof.margin))
    return table


def _show_mixture(screen: Console, mixture: MixtureResults) -> None:
    """The best share w by the error on samples left out, beside that by λ_min."""
    rows = mixture.list_rows()
    if rows:
        title = "How much to share: error on samples left out, for w V_on + (1-w) V_off"
        table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
        table.add_column("targets have" if mixture.shows_expected else "client")
        for name in ("best w", "its error", "w = 0", "w = 1/2", "w = 1"):
            table.add_column(name, justify="right", no_wrap=True)
        hidden = max(0, len(rows) - MAX_SHARING_ROWS)
        for name, one in (*rows[: len(rows) - 1 - hidden], rows[-1]):
            values = (one.best, one.singleset, one.fedco2, one.fedbn)
            table.add_row(name, f"{one.best_w:.3f}", *(format_number(value) for value in values))
        screen.print(table)
        if hidden:
            screen.print(f"and {hidden} more clients: report.json has them all", style="dim")
    for sentence in mixture.describe():
        screen.print(sentence)
    screen.print()


def show_sweep(screen: Console, result: SweepResult, folder: Path) -> None:
    """One line for each combination."""
    names, rows = result.table.swept, result.table.rows
    title = "λ_min of V_on (FedBN), V_off (SingleSet) and V (Fed-CO2) as settings vary"
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    for name in (*names, "V_on", "V_off", "V", "V / V_on"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("held", justify="right")
    for row in rows:
        short = [f"{name} {count}/{row.draws}" for name, count in row.held.items() if count < row.draws]
        values = (format_number(value) for value in (row.V_on, row.V_off, row.V, row.gain))
        held = ", ".join(short) or f"all {len(row.held)}"
        table.add_row(*(f"{row.chosen[name]:g}" for name in names), *values, held)
    screen.print(table)
    screen.print(f"Figure: {result.figure}", soft_wrap=True)
    screen.print(f"Numbers: {folder / 'sweep.json'}", soft_wrap=True)
