"""Choose the folder of each run: one that holds this very run, whatever its name, or a new one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import gcd
from pathlib import Path
from typing import Any

from fedtrain.config.references import SETTINGS, get_setting, lengthen_references
from fedtrain.config.toml import TomlTable, flatten_tables, merge_tables
from fedtrain.extensions.references import is_reference
from fedtrain.report.records import build_damaged_run_error, fill_default_settings, list_run_folders
from fedtrain.reproduction.data_match import (
    ClientsPreview,
    make_clients_preview,
    matches_current_data,
    summarise_clients,
)
from fedtrain.reproduction.plan import Plan
from fedtrain.reproduction.run_spec import RunSpec, get_sources, hash_settings
from fedtrain.runs.folder import RunFolder
from theory.errors import InputError


@dataclass(frozen=True)
class StoredRun:
    """A folder that holds a run."""

    path: Path
    identity: str
    eval_every: int
    has_test_curve: bool
    """Whether it was tested whenever it was evaluated, so that it has a curve."""
    data: str
    """What it says of its clients."""
    finished: bool


@dataclass(frozen=True, eq=False)
class Job:
    """A cell and its folder."""

    spec: RunSpec
    folder: Path

    @property
    def begun(self) -> bool:
        """Whether there is a run to go on with."""
        return RunFolder(self.folder).has_run

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to do."""
        return self.begun and RunFolder(self.folder).is_finished

    @property
    def log(self) -> Path:
        """What the run prints."""
        return self.folder.with_name(f"{self.folder.name}.log")

    def build_arguments(self, threads: int) -> list[str]:
        """Of ``fedco2``: begin the run, or go on with it."""
        how = [*self.spec.build_arguments(), "--out", str(self.folder)]
        if self.begun:
            code = [word for kind, name in self._list_code().items() for word in (f"--{kind}", name)]
            how = ["--resume", str(self.folder), *code]
        return ["train", *how, "--threads", str(threads)]

    def _list_code(self) -> dict[str, str]:
        """References by kind, which must be named again when a run goes on: its folder makes nobody load code."""
        tables = lengthen_references(self.spec.overrides)
        named = {kind: get_setting(tables, kind) or "" for kind in SETTINGS}
        return {kind: name for kind, name in named.items() if is_reference(name)}

    def build_keywords(self, threads: int) -> dict[str, Any]:
        """Of `fedtrain.train`, to the same end."""
        if self.begun:
            return {"resume": str(self.folder), "threads": threads, **self._list_code()}
        settings = flatten_tables(lengthen_references(self.spec.overrides))
        return {"preset": self.spec.preset, "settings": settings, "out": str(self.folder), "threads": threads}


def read_stored_run(path: Path) -> StoredRun:
    """What a folder holds, by its settings and its data."""
    folder = RunFolder(path)
    tables, about = folder.load_tables(), folder.read_manifest()
    try:
        tables, data = fill_default_settings(tables), about["data"]
        sources, evaluation = get_sources(about.get("extensions", [])), tables["evaluation"]
        identity = hash_settings(tables, standin=bool(data["standin"]), sources=sources)
        always = evaluation["test"] == "always"
        return StoredRun(path, identity, int(evaluation["every"]), always, summarise_clients(data), folder.is_finished)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise build_damaged_run_error(path, error) from None


def find_stored_runs(place: Path) -> list[StoredRun]:
    """All that lie in a folder; what cannot be read is not known."""
    found = []
    for path in list_run_folders(place):
        try:
            found.append(read_stored_run(path))
        except InputError:
            continue
    return found


def load_adopted_runs(paths: Iterable[Path]) -> list[StoredRun]:
    """Runs made elsewhere, or all in a folder of such; only finished ones, as nobody asked to go on with them."""
    found: list[StoredRun] = []
    for path in paths:
        if not RunFolder(path).has_run and (several := find_stored_runs(path)):
            found += [run for run in several if run.finished]
            continue
        found.append(run := read_stored_run(path))
        if not run.finished:
            raise InputError(
                f"{run.path} cannot be adopted, it is not finished; go on with it: fedco2 train --resume {run.path}",
                options=("adopt",),
            )
    return found


def build_jobs(
    plans: Sequence[Plan], folder: Path, adopted_runs: Sequence[StoredRun] = (), preview: ClientsPreview | None = None
) -> dict[str, Job]:
    """A folder for every cell, by identity: cells of the same one share it, evaluated as often as each of them wants.

    A run that was evaluated more often will do; where only the result is wanted, less often will do too. One that had
    other clients than the data that are here would make will not do.
    """
    preview = preview or make_clients_preview(plans)
    wanted: dict[str, RunSpec] = {}
    for cell in (cell for plan in plans for cell in plan.run_specs.values()):
        same = wanted.setdefault(cell.identity, cell)
        wanted[cell.identity] = _with_evaluation(
            same, gcd(same.eval_every, cell.eval_every), same.needs_curve or cell.needs_curve
        )
    runs = sorted((*adopted_runs, *find_stored_runs(folder)), key=lambda run: not run.finished)
    return {
        identity: Job(cell, _choose_folder(cell, identity, runs, folder, preview)) for identity, cell in wanted.items()
    }


def _choose_folder(cell: RunSpec, identity: str, runs: Sequence[StoredRun], place: Path, ahead: ClientsPreview) -> Path:
    def fits(run: StoredRun) -> bool:
        curve = run.has_test_curve and cell.eval_every % run.eval_every == 0
        return (
            run.identity == identity
            and (curve or not cell.needs_curve)
            and matches_current_data(run.data, cell.config.data, ahead)
        )

    if found := next(filter(fits, runs), None):
        return found.path
    new = place / cell.name
    if RunFolder(new).has_run:
        raise InputError(
            f"{new} holds another run, or one that was made with other data than are here now; choose another folder, "
            "or name the folder of those data",
            options=("out", "data_dir"),
        )
    return new


def _with_evaluation(cell: RunSpec, every: int, curve: bool) -> RunSpec:
    evaluation = cell.config.evaluation
    wanted: TomlTable = {"every": every, "test": "always" if curve else evaluation.test}
    changed = {key: value for key, value in wanted.items() if getattr(evaluation, key) != value}
    given = merge_tables(cell.overrides, {"evaluation": changed}) if changed else cell.overrides
    config = replace(cell.config, evaluation=replace(evaluation, **changed))
    return replace(cell, overrides=given, config=config, needs_curve=curve)
