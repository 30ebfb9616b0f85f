"""What ``fedco2 adapt`` does once its options are read."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console

from cli.console import make_console
from cli.evaluate.run import RunDescription, describe_run, show_heading
from fedtrain.config.schema import parse_metrics
from fedtrain.inference.adapt import PASSES, AdaptedClient, adapt_client
from fedtrain.inference.evaluate import load_held_out_data
from fedtrain.inference.newcomer_data import read_newcomer
from fedtrain.inference.personal_file import save_personal
from fedtrain.inference.trained_run import load_trained_run
from fedtrain.report.formatting import format_percent
from fedtrain.utils.atomic_files import check_new_file
from fedtrain.utils.terminal import print_paragraph
from fedtrain.utils.terminal_table import Grid, GridRow, print_grid


def run_adapt(
    folder: Path,
    data: Path | None,
    client: str | None,
    *,
    shots: int,
    passes: int | None,
    lr: float | None,
    seed: int,
    metrics: str | None,
    out: Path | None,
    data_dir: Path | None,
    device: str | None,
    as_json: bool,
) -> None:
    """Open, read, adapt, show; the personal part is written last."""
    if out is not None:
        check_new_file(out, ".safetensors", "a personal part is a file of tensors")
    run = load_trained_run(folder, device)
    wanted = None if metrics is None else parse_metrics(metrics, len(run.federation.classes))
    newcomer = load_held_out_data(run, data_dir) if data is None else read_newcomer(run, data, client)
    found = adapt_client(run, newcomer, shots, passes=passes or PASSES, lr=lr, seed=seed, metrics=wanted)
    if out is not None:
        save_personal(out, run, found, newcomer)
    about = describe_run(run)
    about["notes"] += found.notes
    if as_json:
        click.echo(json.dumps({**about, **found.to_dict(), "notes": about["notes"]}, ensure_ascii=False))
    else:
        show_adaptation(make_console(), about, found, out)


def show_adaptation(screen: Console, about: RunDescription, found: AdaptedClient, out: Path | None) -> None:
    """A row before, a row after."""
    way = f"{found.shots} shots, {found.passes} passes" if found.shots else "no labels"
    show_heading(screen, about, f"for {found.client} ({found.after.n} test samples)")
    rows = [
        GridRow(when, [branch, format_percent(score.accuracy), f"{score.loss:.4g}"])
        for when, branch, score in (
            ("before", found.branch_before, found.before),
            (f"after: {way}", found.branch_after, found.after),
        )
    ]
    screen.print()
    print_grid(screen, Grid("", ["branch", "%", "loss"], rows))
    for name, after in found.after.metrics.items():
        values = (found.before.metrics.get(name), after)
        print_paragraph(screen, f"{name}: {' to '.join('-' if one is None else f'{one:.3f}' for one in values)}")
    if out is not None:
        print_paragraph(screen, f"Written to {out}; next: fedco2 predict {about['run']} --newcomer {out} FILE")
