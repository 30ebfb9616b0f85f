"""What ``fedco2 train`` does once its options are read."""

from __future__ import annotations

import json
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import click
import torch

from cli.console import console
from cli.train_view import View, show_plan, show_summary
from fedtrain.config import Config, dump, from_tables, load, to_tables
from fedtrain.data.catalogue import dataset
from fedtrain.data.source import find
from fedtrain.experiment import Experiment, experiment, plan
from fedtrain.folder import CONFIG, MANIFEST, Folder, manifest
from fedtrain.presets import chain
from fedtrain.report.figures import draw_figures
from fedtrain.run import run as run_rounds
from fedtrain.tables import Table, merge, parse
from theory.errors import InputError

MAY_VARY = {"server.rounds", "evaluation.every", "machine.device", "machine.threads"}
"""What may change when a run goes on."""


class Interrupted(Exception):  # noqa: N818 - it is no error
    """The user stopped the run; the message says how to go on."""


def run(given: Mapping[str, Any], options: dict[str, Any]) -> None:
    """Plan, show, train, show."""
    tables = nested(given, options["sets"])
    if options["resume"] is not None:
        folder = Folder(options["resume"])
        if not folder.holds_a_run:
            raise InputError(f"{folder.path}: no run is here to go on with; name the folder that a run has written")
        config, root = continued(folder, tables), options["data_dir"]
        config, work = set_threads(config), experiment(config, find(config.data, root))
    else:
        config, work = planned(tables, options)
        folder = Folder(options["out"] or new_folder(config))
    if options["dry_run"]:
        show_plan(console(), work, as_json=options["as_json"])
        return
    if folder.holds_a_run:
        go_on(folder, work)
    else:
        folder.begin(work.config, manifest(work.config, work.federation, shlex.join(["fedco2", *sys.argv[1:]])))
    with stopping(folder, options["data_dir"]):
        view = View(console(stderr=options["as_json"]), work, folder, quiet=options["as_json"])
        with view:
            summary = run_rounds(work, folder, view)
    figures = draw_figures(folder)
    if options["as_json"]:
        click.echo(json.dumps({**summary, "out": str(folder.path)}, ensure_ascii=False))
    else:
        show_summary(console(), summary, folder.path, figures)


def nested(given: Mapping[str, Any], sets: tuple[str, ...]) -> Table:
    """Options and --set as the tables of a configuration; --set wins."""
    tables: Table = {}
    pairs = [(*path.partition(".")[::2], value) for path, value in given.items()]
    for section, key, value in (*pairs, *(parse(text) for text in sets)):
        tables = merge(tables, {section: {key: value}} if key else {section: value})
    return tables


def planned(tables: Table, options: dict[str, Any]) -> tuple[Config, Experiment]:
    """A new experiment from preset, file and options."""
    own = merge(load(options["config"]) if options["config"] else {}, tables)
    data = own.get("data")
    wanted = str(data["dataset"]) if isinstance(data, Mapping) and "dataset" in data else None
    preset = options["preset"] or (dataset(wanted).name if wanted is not None else "digits")
    meant = merge(*chain(preset))["data"]["dataset"]
    if wanted not in (None, meant):
        raise InputError(f"preset {preset!r} is for {meant}, not for {wanted}; leave --preset or --dataset out")
    config, found = plan(preset, own, options["data_dir"])
    config = set_threads(config)
    return config, experiment(config, found)


def set_threads(config: Config) -> Config:
    """Use the threads that are asked for, and write down how many there are."""
    if config.machine.threads is not None:
        torch.set_num_threads(config.machine.threads)
    return replace(config, machine=replace(config.machine, threads=torch.get_num_threads()))


def continued(folder: Folder, tables: Table) -> Config:
    """The configuration of a run that goes on, with the changes that are allowed."""
    begun = folder.config()
    name = merge({"name": begun.method_name}, tables.get("method", {}))["name"]
    if name != begun.method_name:  # before the parameters of one are read as those of the other
        raise InputError(f"{folder.path} holds a run of {begun.method_name}, not of {name}; leave --resume out")
    new = from_tables(merge(to_tables(begun), tables))
    refuse_if_other(folder, new)
    return new


def refuse_if_other(folder: Folder, new: Config) -> None:
    """Two configurations in one folder would be neither."""
    changed = differences(to_tables(folder.config()), to_tables(new))
    if other := {key: pair for key, pair in changed.items() if key not in MAY_VARY}:
        shown = ", ".join(f"{key} {old!r} -> {now!r}" for key, (old, now) in other.items())
        raise InputError(f"{folder.path} holds another run ({shown}); choose another --out")


def differences(old: Table, new: Table) -> dict[str, tuple[Any, Any]]:
    """Keys whose values differ, by their path."""
    found: dict[str, tuple[Any, Any]] = {}
    for section in old.keys() | new.keys():
        a, b = old.get(section), new.get(section)
        if isinstance(a, dict) and isinstance(b, dict):
            found |= {f"{section}.{key}": pair for key, pair in differences(a, b).items()}
        elif a != b:
            found[section] = a, b
    return dict(sorted(found.items()))


def go_on(folder: Folder, work: Experiment) -> None:
    """Make sure that the run in the folder is this one and has rounds to make."""
    refuse_if_other(folder, work.config)
    if folder.read_json(MANIFEST).get("data", {}).get("sha256") != work.federation.fingerprint:
        raise InputError(
            f"{folder.path} was begun with other data (their checksum differs); say where those are with --data-dir, "
            "or choose another --out"
        )
    done, rounds, before = folder.round_reached(), work.config.server.rounds, folder.config().server.rounds
    if folder.finished and done >= rounds:
        raise InputError(
            f"{folder.path} holds this run, finished after {done} rounds; raise --rounds to go on, "
            "or choose another --out"
        )
    if rounds != before and done >= rounds:
        raise InputError(f"{folder.path} has made {done} of its {before} rounds; to go on, ask for more than {done}")
    folder.write(CONFIG, dump(work.config))


def new_folder(config: Config) -> Path:
    """runs/DATASET-METHOD-DATE-TIME, numbered where that is taken."""
    stamp = f"{config.data.dataset}-{config.method_name}-{time.strftime('%Y%m%d-%H%M%S')}"
    numbered = (Path("runs") / (stamp if k == 1 else f"{stamp}-{k}") for k in range(1, 1000))
    return next(folder for folder in numbered if not folder.exists())


@contextmanager
def stopping(folder: Folder, data_dir: Path | None) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the run with a checkpoint, and with the command that goes on."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        rounds = folder.round_reached()
        when = f"after {rounds} rounds, which are saved" if rounds else "before the first round was over"
        data = ["--data-dir", str(data_dir)] if data_dir else []
        way = shlex.join(["fedco2", "train", "--resume", str(folder.path), *data])
        raise Interrupted(f"interrupted {when}; go on with: {way}") from None
    finally:
        signal.signal(signal.SIGTERM, before)
