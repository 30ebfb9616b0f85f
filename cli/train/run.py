"""What ``fedco2 train`` does once its options are read."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from cli.console import make_console
from cli.data.progress import show_progress
from cli.interrupt import handle_interrupts
from cli.train.resume import describe_resume
from cli.train.view import show_plan, show_summary
from fedtrain.backends.distributed.launch import launch_ranks
from fedtrain.backends.distributed.process_group import Rank
from fedtrain.config.options import SETTING_FOR_OPTION
from fedtrain.config.toml import parse_settings
from fedtrain.data.found.find_dataset import ARCHIVE_SUFFIXES
from fedtrain.data.progress import follow_progress
from fedtrain.report.progress_view import ProgressView
from fedtrain.runs.callbacks import Callback, build_callbacks
from fedtrain.runs.distributed import check_rank_count
from fedtrain.trackers import build_trackers
from fedtrain.training import TrainingPlan, plan, run_plan
from theory.errors import InputError

PLACES = ("preset", "config", "data_dir", "out", "resume")
"""Options that are no settings: where settings, data and results are."""


def run_train(options: dict[str, Any]) -> None:
    """Plan, then show the plan, or train and show the summary."""
    if options["backend"] == "distributed":
        silence_other_ranks()
    nproc, dry_run = options["nproc"], options["dry_run"]
    has_ranks = Rank.from_environment() is not None
    with show_progress(quiet=options["as_json"] or not is_folder(options["dataset"])) as show, follow_progress(show):
        training = plan(**get_keywords(options), load_images=not dry_run and (has_ranks or not nproc))
    check_processes(training, options, has_ranks)
    if dry_run:
        show_plan(make_console(), training, as_json=options["as_json"], show_config=options["show_config"])
    elif nproc and not has_ranks:
        command = [sys.executable, "-P", "-m", "cli", *sys.argv[1:]]
        raise click.exceptions.Exit(launch_ranks(command, nproc, options["threads"]))
    else:
        train_and_show(training, options)


def is_folder(dataset: str | None) -> bool:
    """Whether many files may have to be looked through."""
    return dataset is not None and (Path(dataset).is_dir() or dataset.lower().endswith(ARCHIVE_SUFFIXES))


def train_and_show(training: TrainingPlan, options: dict[str, Any]) -> None:
    """Train, show it, and show the summary."""
    as_json, folder = options["as_json"], training.folder
    view: Callback = NotesView() if as_json else ProgressView(make_console())
    watchers = build_watchers(options)
    command = shlex.join(["fedco2", *sys.argv[1:]])
    with handle_interrupts(lambda: describe_resume(folder, options["data_dir"], code=options)):
        run = run_plan(training, [view, *watchers], command=command)
    if (rank := Rank.from_environment()) is not None and rank.rank:
        return
    if as_json:
        click.echo(json.dumps({**run.summary, "out": str(run.path)}, ensure_ascii=False))
    else:
        show_summary(make_console(), run)


def build_watchers(options: Mapping[str, Any]) -> list[Callback]:
    """What the user wants to look on."""
    return [*build_trackers(options["track"]), *build_callbacks(options["callbacks"])]


class NotesView(Callback):
    """Says on stderr what must be known, and nothing else."""

    def on_note(self, text: str) -> None:
        """Say it."""
        make_console(stderr=True).print(f"note: {text}", soft_wrap=True)


def get_keywords(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as keywords of `fedtrain.train`."""
    named = {name: options[name] for name in (*SETTING_FOR_OPTION, *PLACES) if options.get(name) is not None}
    return named | {"settings": parse_settings(options["sets"])}


def check_processes(training: TrainingPlan, options: Mapping[str, Any], has_ranks: bool) -> None:
    """Refuse processes without a backend for them, and the other way round."""
    nproc = options["nproc"]
    if training.config.machine.backend != "distributed":
        if nproc:
            raise InputError("--nproc is for --backend distributed; add that or leave it out")
        return
    if not has_ranks and not nproc and not options["dry_run"]:
        raise InputError("--backend distributed needs its processes: start this with torchrun, or add --nproc 2")
    check_rank_count(training.experiment, nproc or 1)


def silence_other_ranks() -> None:
    """Let rank 0 speak for all, of errors too."""
    rank = Rank.from_environment()
    if rank is not None and rank.rank:
        sys.stderr = sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - to the end of the process
