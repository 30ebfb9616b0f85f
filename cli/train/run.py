"""What ``fedco2 train`` does once its options are read."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import click
import torch

from cli.console import make_console
from cli.interrupt import handle_interrupts
from cli.output_folder import choose_new_folder
from cli.train.ranks import launch_ranks
from cli.train.resume import describe_resume
from cli.train.view import TrainingView, show_plan, show_summary
from fedtrain.backends.distributed.process_group import Rank
from fedtrain.backends.distributed.ranks import check_rank_count, open_distributed_backend, serve_rank
from fedtrain.config.data import SETTINGS_OF_SKEW
from fedtrain.config.old_names import upgrade_tables
from fedtrain.config.presets import load_preset_chain
from fedtrain.config.schema import Config, load_toml
from fedtrain.config.toml import TomlTable, merge_tables, parse_override
from fedtrain.data.datasets import get_dataset_info
from fedtrain.data.source import LoadedDataset, load_dataset
from fedtrain.runs.experiment import build_experiment, plan_experiment
from fedtrain.runs.folder import RunFolder
from fedtrain.runs.loop import run_rounds as run_rounds
from fedtrain.runs.manifest import build_manifest, describe_data
from fedtrain.runs.resume import prepare_resume, resolve_original_data, resume_config
from fedtrain.utils.memory import keep_freed_memory
from theory.errors import InputError


def run_train(given: Mapping[str, Any], options: dict[str, Any]) -> None:
    """Plan, show, train, show."""
    if given.get("machine.backend") == "distributed":
        silence_other_ranks()
    tables = nest_settings(given, options["sets"])
    if options["resume"] is not None:
        folder = RunFolder(options["resume"])
        if not folder.has_run:
            raise InputError(f"{folder.path}: no run is here to go on with; name the folder that a run has written")
        config = resume_config(folder, tables)
        found = load_dataset(resolve_original_data(folder, config), options["data_dir"])
    else:
        config, found = plan_run(tables, options)
        folder = RunFolder(options["out"] or choose_new_folder(f"{config.data.dataset}-{config.method_name}"))
    place = find_own_rank(config, options)
    if options["nproc"] and place is None and not options["dry_run"]:
        raise click.exceptions.Exit(launch_ranks(options["nproc"], config.machine.threads))
    work = build_experiment(set_threads(config), found.without_images() if options["dry_run"] else found)
    if options["dry_run"]:
        check_rank_count(work, options["nproc"] or 1)
        show_plan(make_console(), work, as_json=options["as_json"])
        return
    keep_freed_memory()
    if place is not None and place.rank:
        serve_rank(work, place)
        return
    with folder.exclusive_lock():
        told = build_manifest(work.config, describe_data(work.federation), shlex.join(["fedco2", *sys.argv[1:]]))
        if folder.has_run:
            for note in prepare_resume(folder, work.config, told):
                make_console(stderr=True).print(f"note: {note}", soft_wrap=True)
        else:
            folder.begin(work.config, told)
        with handle_interrupts(lambda: describe_resume(folder, options["data_dir"])):
            view = TrainingView(make_console(stderr=options["as_json"]), work, folder, quiet=options["as_json"])
            with view, open_distributed_backend(work, place, folder) if place else nullcontext() as fleet:
                summary = run_rounds(work, folder, view, fleet)
    if options["as_json"]:
        click.echo(json.dumps({**summary, "out": str(folder.path)}, ensure_ascii=False))
    else:
        show_summary(make_console(), summary, folder.path)


def find_own_rank(config: Config, options: dict[str, Any]) -> Rank | None:
    """Which of several processes this is; rank 0 speaks for all. None if there is but one, or they are not started."""
    if config.machine.backend != "distributed":
        if options["nproc"]:
            raise InputError("--nproc is for --backend distributed; add that or leave it out")
        return None
    place = Rank.from_environment()
    if place is None and not options["nproc"] and not options["dry_run"]:
        raise InputError("--backend distributed needs its processes: start this with torchrun, or add --nproc 2")
    silence_other_ranks()
    return place


def silence_other_ranks() -> None:
    """Let rank 0 speak for all, of errors too."""
    place = Rank.from_environment()
    if place is not None and place.rank:
        sys.stderr = sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - to the end of the process


def nest_settings(given: Mapping[str, Any], sets: tuple[str, ...]) -> TomlTable:
    """Options and --set as the tables of a configuration; --set wins."""
    tables: TomlTable = {}
    pairs = [(*path.partition(".")[::2], value) for path, value in given.items()]
    for section, key, value in (*pairs, *(parse_override(text) for text in sets)):
        tables = merge_tables(tables, {section: {key: value}} if key else {section: value})
    return tables


def choose_preset(tables: TomlTable, options: dict[str, Any]) -> tuple[str, TomlTable]:
    """The preset of a new run, and what file and options say beside it."""
    own = merge_tables(upgrade_tables(load_toml(options["config"])) if options["config"] else {}, tables)
    data = own.get("data")
    wanted = str(data["dataset"]) if isinstance(data, Mapping) and "dataset" in data else None
    preset = options["preset"] or (get_dataset_info(wanted).name if wanted is not None else "digits")
    meant = merge_tables(*load_preset_chain(preset))["data"]["dataset"]
    if wanted not in (None, meant):
        raise InputError(f"preset {preset!r} is for {meant}, not for {wanted}; leave --preset or --dataset out")
    return preset, own


def plan_run(tables: TomlTable, options: dict[str, Any]) -> tuple[Config, LoadedDataset]:
    """What a new run is to be, from preset, file and options, and its data."""
    config, found = plan_experiment(*choose_preset(tables, options), options["data_dir"])
    check_alpha_is_used(config, options)
    return config, found


def check_alpha_is_used(config: Config, options: dict[str, Any]) -> None:
    """A concentration is said for a skew that has one."""
    if options["alpha"] is not None and "alpha" not in SETTINGS_OF_SKEW[config.data.skew]:
        raise InputError(f"--alpha means nothing to skew {config.data.skew!r}; leave it out or choose another --skew")


def set_threads(config: Config) -> Config:
    """Use the threads that are asked for, and write down how many there are."""
    if config.machine.threads is not None:
        torch.set_num_threads(config.machine.threads)
    return replace(config, machine=replace(config.machine, threads=torch.get_num_threads()))
