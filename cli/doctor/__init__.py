"""``fedco2 doctor``: is this machine ready, and if not, what mends it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

import click

from cli.console import CHECK_FAILED, make_console
from cli.doctor.checks import CheckResult, run_checks

STATE_WIDTH, NAME_WIDTH = 9, 14


def format_line(finding: CheckResult) -> str:
    """One line a finding."""
    return f"{'ok' if finding.ok else 'PROBLEM':<{STATE_WIDTH}}{finding.name:<{NAME_WIDTH}}{finding.value}"


def print_findings(findings: Sequence[CheckResult]) -> None:
    """A line for each; on a terminal long ones are broken between words, and problems are red."""
    from fedtrain.utils.terminal import print_paragraph

    screen = make_console()
    for finding in findings:
        print_paragraph(screen, format_line(finding), "" if finding.ok else "red", indent=STATE_WIDTH + NAME_WIDTH)


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
            print_findings(findings)
        except ImportError:  # rich itself may be what is missing
            for finding in findings:
                click.echo(format_line(finding))
        for problem in problems:
            click.echo(f"\n{problem.name}: {problem.value}\n  to mend it: {problem.mend}")
        if not problems:
            click.echo("nothing is wrong")
    if problems:
        ctx.exit(CHECK_FAILED)
