"""What ``fedco2 theory`` does once its options are read: call the library, show what it found."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli.console import make_console
from cli.theory import view
from fedtrain.utils.new_folder import choose_new_folder
from theory.claims import select_claims
from theory.errors import InputError
from theory.sweep import run_sweep
from theory.sweep_table import SWEEP_CLAIMS, parse_sweep
from theory.verification import VerifyOptions, build_config, run_verification

if TYPE_CHECKING:
    from rich.console import Console

SETTINGS = ("clients", *VerifyOptions.__annotations__)


def run(options: Mapping[str, Any], given: Collection[str]) -> bool:
    """Verify or sweep, show, and tell whether every ordering held; ``given`` are the options that were named."""
    screen = None if options["as_json"] else make_console(stderr=True)
    with name_flags():
        return _sweep(options, given, screen) if options["sweeps"] else _verify(options, given, screen)


def _verify(options: Mapping[str, Any], given: Collection[str], screen: Console | None) -> bool:
    setting = build_config({name: options[name] for name in SETTINGS if name in given}, options["dataset"])
    claims = select_claims(options["claim_ids"])
    folder = options["out"] or choose_new_folder("theory")
    report = run_verification(
        setting,
        claims,
        certify=options["certify"],
        allow_parallel=options["allow_parallel"],
        threads=options["threads"],
        out=folder,
        screen=screen,
        command=shlex.join(["fedco2", *sys.argv[1:]]),
    )
    if options["as_json"]:
        _print_json(report.to_dict(), folder)
    else:
        view.show_report(make_console(), report, folder)
    return report.holds


def _sweep(options: Mapping[str, Any], given: Collection[str], screen: Console | None) -> bool:
    sweeps = [parse_sweep(text) for text in options["sweeps"]]
    setting = build_config({name: options[name] for name in SETTINGS if name in given}, options["dataset"])
    folder = options["out"] or choose_new_folder("sweep")
    result = run_sweep(
        setting,
        sweeps,
        select_claims(options["claim_ids"] if "claim_ids" in given else SWEEP_CLAIMS),
        folder,
        allow_parallel=options["allow_parallel"],
        threads=options["threads"],
        screen=screen,
    )
    if options["as_json"]:
        _print_json(result.table.to_dict(), folder)
    else:
        view.show_sweep(make_console(), result, folder)
    return result.table.holds


def _print_json(content: Mapping[str, object], folder: Path) -> None:
    click.echo(json.dumps({**content, "out": str(folder)}, ensure_ascii=False))


@contextmanager
def name_flags() -> Iterator[None]:
    """Let errors of the library advise flags of this command: "lower samples" becomes "lower --samples"."""
    try:
        yield
    except InputError as error:
        raise InputError(use_flags(str(error), error.options)) from error


def use_flags(message: str, options: Collection[str]) -> str:
    """Replace the last mention of each option, which is the advice; a path before it may hold the same word."""
    for name in options:
        if mentions := list(re.finditer(rf"(?<![\w-]){name}(?!\w)", message)):
            start, end = mentions[-1].span()
            message = f"{message[:start]}--{name.replace('_', '-')}{message[end:]}"
    return message
