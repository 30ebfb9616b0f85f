"""What ``fedco2 reproduce`` does once its options are read: call the library, show what came of it."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Any

import click

from cli.console import make_console
from cli.interrupt import handle_interrupts
from cli.reproduce.view import show_commands, show_failures, show_item, show_list
from fedtrain.config.toml import parse_settings
from fedtrain.reproduction.jobs_progress import show_notes
from fedtrain.reproduction.reproduce import ReproductionPlan, plan_reproduction

SWITCHES = ("names", "listing", "dry_run", "as_json", "sets")
"""What says which tables are meant and how they are shown; all else are keywords of `fedtrain.reproduce`."""


def run_reproduce(options: dict[str, Any]) -> bool:
    """List, or plan, or run and show; whether all runs are finished."""
    keywords = {name: value for name, value in options.items() if name not in SWITCHES and value is not None}
    planned = plan_reproduction(*options["names"], **keywords, settings=parse_settings(options["sets"]))
    if options["listing"]:
        show_list(make_console(), planned.items, options["as_json"])
        return True
    if options["dry_run"]:
        show_notes(planned.notes)
        show_commands(make_console(), planned, options["as_json"])
        return True
    with handle_interrupts(lambda: describe_resume(planned)):
        found = planned.run()
    if options["as_json"]:
        click.echo(json.dumps(found.to_dict(), ensure_ascii=False))
    else:
        for item in found.items.values():
            show_item(make_console(), item)
    show_failures(make_console(stderr=True), found.failed)
    return not found.failed


def describe_resume(planned: ReproductionPlan) -> str:
    """How far it came, and the command that goes on."""
    done, way = len(planned.jobs) - len(planned.unfinished), shlex.join(["fedco2", *sys.argv[1:]])
    return f"after {done} of {len(planned.jobs)} runs, the others are saved; go on with: {way}"
