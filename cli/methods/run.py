"""What ``fedco2 methods`` does once its options are read."""

from __future__ import annotations

import inspect
import json

import click

from cli.console import make_console
from cli.methods.view import MethodReport, MethodsReport, OptionReport, PartReport, show_all, show_one
from fedtrain.analysis.method_options import get_method_description, get_option_value, list_method_options
from fedtrain.analysis.method_summary import PRESET_FOR_MODEL, MethodSummary, summarise_method
from fedtrain.analysis.model_summary import EntrySummary
from fedtrain.config.method_tables import get_method_class
from fedtrain.config.references import load_references
from fedtrain.extensions.references import list_installed
from fedtrain.methods import METHODS


def run_methods(method: str | None, model: str, clients: int | None, as_json: bool) -> None:
    """Describe one method or all."""
    names = [*METHODS, *list_installed("method")] if method is None else [load_method_name(method)]
    found = {name: describe_method(name, summarise_method(name, model, clients)) for name in names}
    some = next(iter(found.values()))
    report: MethodsReport = {
        "model": model,
        "preset": PRESET_FOR_MODEL[model],
        "clients": some["clients"],
        "methods": list(found.values()),
    }
    if as_json:
        click.echo(json.dumps(report, ensure_ascii=False))
    elif method is None:
        show_all(make_console(), report)
    else:
        show_one(make_console(), report, some)


def load_method_name(text: str) -> str:
    """What configurations call a method that is named on the command line; a reference is loaded."""
    name = str(load_references({"method": {"name": text}})["method"]["name"])
    get_method_class(name)  # refuses what nobody knows
    return name


def describe_method(name: str, on: MethodSummary) -> MethodReport:
    """All there is to say of a method, for programs and for people."""
    kind = get_method_class(name)
    parts = on.model_summary
    return {
        "name": name,
        "title": kind.title,
        "about": get_method_description(kind),
        "how": (inspect.getdoc(kind) or "").partition("\n")[0],
        "clients": on.clients,
        "shared": _describe_part(on.entry_descriptions["shared"], parts.shared),
        "personal": _describe_part(on.entry_descriptions["personal"], parts.personal),
        "published": _describe_part(on.entry_descriptions["published"], parts.published),
        "names": on.shared_entries,
        "bytes": parts.traffic.to_dict(),
        "options": [
            OptionReport(
                name=option.name,
                default=option.default,
                choices=option.choices,
                meaning=option.meaning,
                preset=get_option_value(getattr(on.config.method, option.name)),
            )
            for option in list_method_options(kind)
        ],
    }


def _describe_part(what: str, entries: EntrySummary) -> PartReport:
    return PartReport(what=what, numbers=entries.numbers, in_norm=entries.in_norm, places=entries.places)
