"""What ``fedco2 theory --run`` does: call the library, show what it found."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import click
from rich import box
from rich.table import Table

from cli.console import make_console
from cli.options import CODE_NAMES
from cli.theory.run import name_flags
from cli.theory.view import format_number, format_verdict
from fedtrain.run import load_run
from fedtrain.utils.new_folder import choose_new_folder

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from theory.networks.network_study import NetworkStudy

ALLOWED = {
    "run_folder", "real_round", "data_dir", *CODE_NAMES, "samples", "seed", "dtype", "device", "threads", "out",
    "as_json", "strict",
}  # fmt: skip


def refuse_other_options(ctx: click.Context, given: Collection[str]) -> None:
    """What describes two-layer networks says nothing about the networks of a run."""
    flags = {one.name: one.opts[0] for one in ctx.command.params}
    if other := [flags[name] for name in given if name not in ALLOWED]:
        raise click.UsageError(f"{other[0]} is for two-layer networks; with --run leave it out")


def run_networks(options: Mapping[str, Any], given: Collection[str]) -> bool:
    """Examine, show, and tell whether no ordering fails at the start."""
    if options["threads"]:
        import torch

        torch.set_num_threads(options["threads"])
    folder = options["out"] or choose_new_folder("theory")
    with name_flags():
        run = load_run(
            options["run_folder"],
            device=options["device"] if "device" in given else None,
            **{name: options[name] for name in CODE_NAMES},
        )
        study = run.theory(
            samples=options["samples"] if "samples" in given else None,
            dtype=options["dtype"],
            seed=options["seed"],
            real_round=options["real_round"],
            data_dir=options["data_dir"],
            out=folder,
        )
    if options["as_json"]:
        click.echo(json.dumps({**study.to_dict(), "out": str(folder)}, ensure_ascii=False))
    else:
        show_study(make_console(), study, folder)
    return study.holds


def show_study(screen: Console, study: NetworkStudy, folder: Path) -> None:
    """Setting, a table of models, a table of verdicts, notes, and where to look."""
    about = study.about
    screen.print(f"The kernels of {about['run']}: {about['method_title']} on {about['title']}", style="bold")
    screen.print(
        f"{len(study.clients)} clients, {sum(study.samples)} samples, {study.outputs} outputs, {study.dtype}. "
        f"{study.reading}."
    )
    screen.print(build_model_table(study))
    screen.print(build_verdict_table(study))
    if study.checkpoints[-1].sharing is not None:
        screen.print(build_sharing_table(study))
    for note in study.notes:
        screen.print(f"- {note}")
    screen.print()
    screen.print(f"Page: {folder / 'report.html'}, numbers: {folder / 'report.json'}", soft_wrap=True)


def build_model_table(study: NetworkStudy) -> Table:
    """One row for each model at each checkpoint, within 80 columns."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    has_real = any(model.real_round for one in study.checkpoints for model in one.models.values())
    heads = ["round", "model", "λ_min", "λ_max", "cond.", "rank", "aligned", "moved", "tiny", "own"]
    for head in [*heads, "real"] if has_real else heads:
        table.add_column(head, justify="left" if head == "model" else "right")
    for one in study.checkpoints:
        for name, model in one.models.items():
            found = model.spectrum
            rounds = [model.tiny_round, model.own_round, *([model.real_round] if has_real else [])]
            errors = [None if made is None else made.error for made in rounds]
            low = "~0" if found.condition is None else format_short(found.lambda_min)
            numbers = (found.lambda_max, found.condition, found.effective_rank, found.alignment, model.drift, *errors)
            table.add_row(str(one.round), name, low, *map(format_short, numbers))
    table.caption = (
        "~0: rounding; cond.: λ_max/λ_min; rank: effective rank; aligned: with the labels; moved: change of the kernel "
        "since the start; tiny, own, real: error of the kernel's prediction of a round, of a tiny step, of the run's "
        "own steps on these samples, and with --real-round of its real next round"
    )
    return table


def format_short(value: float | None) -> str:
    """Two digits, and an exponent without zeros: 1.1e4."""
    return re.sub(r"e([+-])0*", lambda found: "e" + found[1].strip("+"), format_number(value, 2))


def build_sharing_table(study: NetworkStudy) -> Table:
    """The best share of the online model at the last checkpoint, a row for each client."""
    last = study.checkpoints[-1]
    assert last.sharing is not None
    table = Table(box=box.SIMPLE_HEAD, title=f"Best share w of the online model, round {last.round} (paper: 0.5)")
    table.title_justify = "left"
    for head in ("client", "by λ_min", "by samples left out", f"by {last.sharing.split or 'held-out'} data"):
        table.add_column(head, justify="left" if head == "client" else "right")
    for client in study.clients:
        best = (
            last.sharing.by_lambda_min,
            *((one or {}).get(client) for one in (last.sharing.left_out, last.sharing.held_out)),
        )
        table.add_row(client, *(format_number(value, 2) for value in best))
    return table


def build_verdict_table(study: NetworkStudy) -> Table:
    """One row for each checkpoint, a column for each ordering."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("round", justify="right")
    names = list(study.checkpoints[0].orderings)
    for name in names:
        table.add_column(name)
    for one in study.checkpoints:
        table.add_row(str(one.round), *(format_verdict(one.orderings[name].verdict) for name in names))
    return table
