"""``fedco2 methods check``: a method put through the laws that every method keeps."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from cli.console import make_console, show_status_line
from cli.methods.run import load_method_name
from fedtrain.config.method_tables import get_method_class
from fedtrain.testing import check_method
from fedtrain.utils.terminal import print_paragraph


def run_check(name: str, as_json: bool) -> bool:
    """Load, check and show; whether every law holds."""
    kind = get_method_class(load_method_name(name))
    with show_status_line(f"checking {kind.title}"):
        report = check_method(kind)
    if as_json:
        click.echo(json.dumps(asdict(report), ensure_ascii=False))
        return not report.failures
    screen = make_console()
    print_paragraph(screen, f"{report.title} ({report.place})", "bold")
    for one in report.results:
        print_paragraph(screen, f"{'FAILS' if one.failure else 'holds'}  {one.law}: {one.meaning}", indent=7)
        if one.failure:
            print_paragraph(screen, f"       {one.failure}", "yellow", indent=7)
    return not report.failures
