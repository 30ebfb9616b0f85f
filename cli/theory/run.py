"""What ``fedco2 theory`` does once its options are read."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import torch

from cli.console import make_console
from cli.theory import view
from fedtrain.utils.new_folder import choose_new_folder
from fedtrain.utils.text import format_duration
from theory.claims import CLAIMS, Claim, select_claims
from theory.config import TheoryConfig
from theory.cost import get_available_memory, predict_cost, refuse_if_too_large
from theory.errors import InputError
from theory.report.folder import make_json_safe, release_folder, reserve_folder, write_report, write_sweep
from theory.study import ProgressCallback
from theory.sweep import expand_sweeps, parse_sweep, run_sweep
from theory.verify import describe_parallel_effect, verify_claims

SWEEP_CLAIMS = "O1,O2,O3,O4"
SINGLE_THREAD_LIMIT = 2**21
"""Samples times hidden units below which one thread is the fastest."""
REPORT_SECONDS = 4
"""Figures and page, whatever the setting."""


def run(options: dict[str, Any]) -> bool:
    """Examine, show, write; whether every ordering held."""
    fields = {name: options[name] for name in TheoryConfig.__dataclass_fields__ if name != "data"}
    setting = TheoryConfig(**fields, data=None if options["dataset"] is None else str(options["dataset"]))
    sweeps = [parse_sweep(text) for text in options["sweeps"]]
    named = options["claim_ids"]
    claims = select_claims(SWEEP_CLAIMS if named is None and sweeps else named)
    settings = expand_sweeps(setting, sweeps) if sweeps else [({}, setting)]
    _choose_threads([one for _, one in settings])
    _check_cost([one for _, one in settings], claims, figures=not sweeps, quiet=options["as_json"])
    if not options["allow_parallel"]:
        for _, one in settings:
            _refuse_parallel(one)
    folder = reserve_folder(options["out"] or choose_new_folder("sweep" if sweeps else "theory"))
    try:
        if sweeps:
            return _run_sweep(settings, [name for name, _ in sweeps], claims, folder, options["as_json"])
        return _run_verification(setting, claims, options["certify"], folder, options["as_json"])
    finally:
        release_folder(folder)


def _run_verification(setting: TheoryConfig, claims: list[Claim], certify: bool, folder: Path, as_json: bool) -> bool:
    with _show_progress(as_json) as progress:
        report, study = verify_claims(setting, claims, certify, progress)
        report["command"] = shlex.join(["fedco2", *sys.argv[1:]])
        progress("figures and page", 0, 1)
        write_report(folder, report, study)
    if as_json:
        click.echo(json.dumps(make_json_safe({**report, "out": str(folder)}), ensure_ascii=False))
    else:
        view.show_report(make_console(), report, folder)
    return all(row["verdict"] == "holds" for row in report["claims"] if row["ordering"])


def _run_sweep(
    settings: list[tuple[dict[str, Any], TheoryConfig]],
    names: list[str],
    claims: list[Claim],
    folder: Path,
    as_json: bool,
) -> bool:
    with _show_progress(as_json) as progress:
        rows = run_sweep(settings, claims, progress)
        table = {"swept": names, "claims": [claim.id for claim in claims], "rows": rows}
        figure = write_sweep(folder, table)
    if as_json:
        click.echo(json.dumps(make_json_safe({**table, "out": str(folder)}), ensure_ascii=False))
    else:
        view.show_sweep(make_console(), rows, names, figure, folder)
    orderings = [claim.id for claim in claims if CLAIMS[claim.id].ordering]
    return all(row["held"][name] == row["draws"] for row in rows for name in orderings)


def _choose_threads(settings: list[TheoryConfig]) -> None:
    """One thread for small problems: waking others for each of many short products takes longer than the work."""
    largest = max(one.size.n * one.width for one in settings)
    if largest < SINGLE_THREAD_LIMIT and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)


def _check_cost(settings: list[TheoryConfig], claims: list[Claim], figures: bool, quiet: bool) -> None:
    """Say what it will take; refuse what cannot fit."""
    costs = [predict_cost(one, {claim.id for claim in claims}, figures) for one in settings]
    largest = max(costs, key=lambda cost: cost.bytes)
    available = get_available_memory()
    refuse_if_too_large(largest.bytes, available, largest.remedy)
    if not quiet:
        seconds = REPORT_SECONDS + sum(cost.seconds for cost in costs)
        make_console(stderr=True).print(
            f"needs about {max(largest.bytes / 2**20, 1):.0f} MiB of {available / 2**30:.0f} GiB and "
            f"roughly {format_duration(seconds)}"
        )


def _refuse_parallel(setting: TheoryConfig) -> None:
    """Opposite samples pass: no gate is open to both, so V is zero there, and such a pair does not make it singular."""
    problem, data = setting.build_problem(), setting.load_data()
    pairs = [pair for pair in problem.find_parallel_samples() if pair[2] > 0]
    if pairs:
        said = describe_parallel_effect(problem, pairs[0], data.describe_sample if data else str)
        more = f" (and {len(pairs) - 1} more pairs)" if len(pairs) > 1 else ""
        cure = "raise --dim" if problem.dim == 1 else "drop one of them"
        raise InputError(f"{said}{more}; {cure}, or go on with --allow-parallel")


@contextmanager
def _show_progress(quiet: bool) -> Iterator[ProgressCallback]:
    """A bar on stderr while there is a terminal to see it."""
    screen = make_console(stderr=True)
    if quiet or not screen.is_terminal:
        yield lambda what, done, total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=screen, transient=True) as bar:
        task = bar.add_task("preparing", total=1)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)
