"""What ``fedco2 forecast`` does once its options are read: call the library, show what it found."""

from __future__ import annotations

import json
from typing import Any

import click

from cli.console import make_console
from cli.forecast.view import show_forecast
from fedtrain.forecasting import forecast
from theory.errors import InputError


def run_forecast(keywords: dict[str, Any], as_json: bool) -> None:
    """Foretell, and show it."""
    keywords["shared"] = parse_shared(keywords.get("shared", ()))
    report = forecast(**keywords)
    if as_json:
        click.echo(json.dumps(report.to_dict(), ensure_ascii=False))
    else:
        show_forecast(make_console(), report)


def parse_shared(texts: tuple[str, ...]) -> dict[str, list[str]]:
    """``NAME=ENTRY,ENTRY`` of the command line, as names and their entries."""
    found: dict[str, list[str]] = {}
    for text in texts:
        title, _, patterns = text.partition("=")
        if not (title and patterns) or title in found:
            raise InputError(f"--shared {text}: write a new name and what it shares, as in 'last layer=head.*'")
        found[title] = patterns.split(",")
    return found
