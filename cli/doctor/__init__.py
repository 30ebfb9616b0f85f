"""``fedco2 doctor``: is this machine ready, and if not, what mends it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

import click

from cli.console import CHECK_FAILED, make_console
from cli.doctor.checks import CheckResult, run_checks


def print_lines(findings: Sequence[CheckResult]) -> None:
    """One line a finding, for pipes and logs."""
    for finding in findings:
        click.echo(f"{'ok' if finding.ok else 'PROBLEM':<8} {finding.name:<11} {finding.value}")


def print_table(findings: Sequence[CheckResult]) -> None:
    """The same for a terminal."""
    from rich.table import Table

    grid = Table("", "what", "found")
    for finding in findings:
        grid.add_row("ok" if finding.ok else "PROBLEM", finding.name, finding.value, style="" if finding.ok else "red")
    make_console().print(grid)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Is this machine ready? If not, what mends it?

    Looks at versions, device, threads, memory, folders, and whether another package hides one of ours.
    Exit code 0 if nothing is wrong, else 1.
    """
    findings = list(run_checks())
    problems = [finding for finding in findings if not finding.ok]
    if as_json:
        click.echo(json.dumps({"ok": not problems, "findings": [asdict(f) | {"ok": f.ok} for f in findings]}, indent=2))
    else:
        try:
            (print_table if make_console().is_terminal else print_lines)(findings)
        except ImportError:  # rich itself may be what is missing
            print_lines(findings)
        for problem in problems:
            click.echo(f"\n{problem.name}: {problem.value}\n  to mend it: {problem.mend}")
        if not problems:
            click.echo("nothing is wrong")
    if problems:
        ctx.exit(CHECK_FAILED)
