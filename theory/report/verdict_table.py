"""The verdicts as a short table, in plain text and for a notebook."""

from __future__ import annotations

from html import escape

from theory.results import ClaimFinding, VerificationResults

VERDICT_SYMBOLS = {"holds": "✓", "under": "~", "fails": "✗", "undecided": "?"}
HEADS = ("claim", "verdict", "margin", "unit", "statement")


def format_text_table(results: VerificationResults) -> str:
    """Setting, a line for each claim, and the summary."""
    cells = [HEADS, *(_list_cells(finding) for finding in results.findings)]
    widths = [max(len(row[k]) for row in cells) for k in range(len(HEADS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([_format_title(results), *lines, *_list_remarks(results)])


def format_html_table(results: VerificationResults) -> str:
    """The same in HTML."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in HEADS)
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in _list_cells(finding))}</tr>"
        for finding in results.findings
    )
    remarks = "".join(f"<p>{escape(text)}</p>" for text in _list_remarks(results))
    return f"<table><caption>{escape(_format_title(results))}</caption><tr>{head}</tr>{rows}</table>{remarks}"


def _format_title(results: VerificationResults) -> str:
    sizes, setting = results.sizes, results.setting
    samples = str(sizes[0]) if len(set(sizes)) == 1 else f"{min(sizes)} to {max(sizes)}"
    return (
        f"Fed-CO2's theory on {results.inputs}: N = {results.clients}, M = {samples}, d = {results.dim}, "
        f"m = {setting.width}, α = {setting.alpha:g}, seed {setting.seed}"
    )


def _list_cells(finding: ClaimFinding) -> tuple[str, ...]:
    kind = "holds under" if finding.kind == "under" else finding.verdict
    held = f" in {finding.draws.held}/{finding.draws.draws}" if finding.draws and finding.holds else ""
    symbol = VERDICT_SYMBOLS[finding.kind]
    return finding.id, f"{symbol} {kind}{held}", f"{finding.margin:.3g}", finding.unit, finding.statement


def _list_remarks(results: VerificationResults) -> list[str]:
    broken = [f"Assumption 4.1 is broken: {text}" for text in results.assumptions_broken]
    return [*broken, *(f"Note: {text}" for text in results.notes), *results.summary]
