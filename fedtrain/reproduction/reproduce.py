"""``fedtrain.reproduce``: from names of tables and figures to our numbers beside the paper's.

names -> plans of cells -> a run folder for each cell -> runs, some at a time -> tables, figures and their files
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

from fedtrain.config.options import nest_settings
from fedtrain.config.references import load_references
from fedtrain.config.schema import SelectionRule
from fedtrain.extensions.references import is_reference
from fedtrain.reproduction.data_match import ClientsPreview, find_impossible_runs, make_clients_preview
from fedtrain.reproduction.estimate import estimate_run_seconds
from fedtrain.reproduction.item_summary import ItemSummary, summarise_item
from fedtrain.reproduction.jobs import Job, StoredRun, build_jobs, load_adopted_runs
from fedtrain.reproduction.jobs_progress import JobsProgress, show_notes
from fedtrain.reproduction.outcome import FailedRun, Reproduction, check_output_files, write_results
from fedtrain.reproduction.paper_item import PAPER_ITEM_NAMES, load_paper_item
from fedtrain.reproduction.paper_numbers import PaperNumbers, load_paper_numbers, load_user_numbers
from fedtrain.reproduction.plan import Plan, build_plan, make_dataset_finder
from fedtrain.reproduction.request import Request
from fedtrain.reproduction.runner import JobOutcome, read_last_log_line, run_jobs
from fedtrain.reproduction.table_layout import build_panels, get_plan_panels
from theory.errors import InputError
from theory.text import suggest_name

OF_NO_USE = "evaluated too seldom, made with other data, or there already"


class ReproduceOptions(TypedDict, total=False):
    """What ``fedco2 reproduce --help`` lists, as keywords of `reproduce`; by default all is as in the paper."""

    seeds: int | str | Sequence[int] | None
    """How many, or which: ``3``, ``[1, 2, 5]``."""
    rounds: int | None
    """For all runs."""
    methods: str | Sequence[str] | None
    """Only the rows of these methods."""
    dataset: str | None
    """Only this data set's part; or this one instead of the paper's."""
    eval_every: int | None
    """Evaluate every so many rounds."""
    rule: SelectionRule | None
    """Which accuracy: last, best-by-validation or window."""
    data: Literal["auto", "real", "standin"]
    """Real data if they are there, else the built-in stand-in; only real data; only the stand-in."""
    legacy: bool
    """With the quirks of the published code."""
    settings: Mapping[str, Any] | None
    """Any other setting by its path, for all runs."""
    data_dir: Path | str | None
    """The folder of the data sets, if not the usual one."""
    out: Path | str
    """The folder of runs and tables (default: reproduce)."""
    adopt: Path | str | Iterable[Path | str]
    """Finished runs, or folders of such, to use where they are what a cell asks for."""
    paper: Path | str | None
    """A TOML file of more numbers of the paper."""
    jobs: int
    """Runs at the same time (default: 1)."""
    only_finished: bool
    """Lay out what is finished already, and run nothing."""


def reproduce(*names: str, quiet: bool = False, **options: Unpack[ReproduceOptions]) -> Reproduction:
    """Run or resume all that tables and figures of the paper take, and lay it out beside the paper's numbers.

    Each cell is a run in a folder of its own below ``out``; the same call goes on after an interruption.

    Args:
        names: Tables and figures, such as ``"T7"``; without any, all.
        quiet: Print nothing.
        options: See `fedtrain.reproduction.reproduce.ReproduceOptions`.
    """
    return plan_reproduction(*names, **options).run(quiet=quiet)


def plan_reproduction(*names: str, **options: Unpack[ReproduceOptions]) -> ReproductionPlan:
    """Decide all that `reproduce` would do with these arguments, and run and write nothing."""
    if unknown := next((name for name in options if name not in ReproduceOptions.__annotations__), None):
        raise InputError(f"unknown option {unknown!r}; {suggest_name(unknown, ReproduceOptions.__annotations__)}")
    jobs = options.get("jobs", 1)
    if jobs < 1:
        raise InputError(f"jobs is {jobs}; it must be at least 1", ["jobs"])
    request = _build_request(options)
    find_dataset = make_dataset_finder(request)
    wanted = list(dict.fromkeys(name.upper() for name in names)) or PAPER_ITEM_NAMES
    plans = [build_plan(name, request, find_dataset) for name in wanted]
    adopt = options.get("adopt", ())
    return ReproductionPlan(
        plans,
        Path(options.get("out", "reproduce")),
        jobs,
        tuple(Path(path) for path in ([adopt] if isinstance(adopt, str | Path) else adopt)),
        _collect_paper_numbers(plans, options.get("paper")),
        options.get("only_finished", False),
    )


@dataclass(frozen=True, eq=False, repr=False)
class ReproductionPlan:
    """What a call of `reproduce` would do; nothing has been run or written."""

    plans: list[Plan]
    """The cells of each table and figure."""
    out: Path
    """The folder of runs and tables."""
    at_once: int
    """Runs at the same time."""
    adopt: tuple[Path, ...]
    """Runs made elsewhere."""
    paper: dict[str, PaperNumbers]
    """The paper's numbers, by table and figure."""
    only_finished: bool = False
    """Run nothing, lay out what is there."""

    @cached_property
    def items(self) -> list[ItemSummary]:
        """What each table and figure needs: data, rounds, seeds, runs and time."""
        return [summarise_item(one) for one in self.plans]

    @cached_property
    def jobs(self) -> dict[str, Job]:
        """A run folder for every cell; tables and figures share those that they have in common."""
        return build_jobs(self.plans, self.out / "runs", self.adopted, self._preview)

    @property
    def unfinished(self) -> list[Job]:
        """Runs that are still to be made, or to go on with."""
        return [job for job in self.jobs.values() if not job.finished]

    @cached_property
    def adopted(self) -> list[StoredRun]:
        """The finished runs among those made elsewhere."""
        return load_adopted_runs(self.adopt)

    @property
    def notes(self) -> list[str]:
        """What to know before hours are spent: runs that will fail, and adopted runs that are of no use."""
        todo = [] if self.only_finished else self.unfinished
        impossible = find_impossible_runs((job.spec for job in todo), self._preview)
        used = {job.folder for job in self.jobs.values()}
        unused = [(run, run.identity in self.jobs) for run in self.adopted if run.path not in used]
        return [
            *(f"{count} runs will fail: {reason}" for reason, count in impossible.items()),
            *(f"{run.path} is not used: {OF_NO_USE if meant else 'none of the runs wanted'}" for run, meant in unused),
        ]

    @cached_property
    def _preview(self) -> ClientsPreview:
        return make_clients_preview(self.plans)

    @property
    def threads(self) -> int:
        """The cores of each run."""
        return max(1, count_cores() // self.at_once)

    def list_commands(self) -> list[str]:
        """The command of every run, to begin it or go on with it by hand."""
        return [shlex.join(["fedco2", *self._build_arguments(job)]) for job in self.jobs.values()]

    def _build_arguments(self, job: Job) -> list[str]:
        data_dir = self.plans[0].request.data_dir
        return [*job.build_arguments(self.threads), *(["--data-dir", str(data_dir)] if data_dir else [])]

    def estimate_seconds(self) -> dict[Job, float]:
        """Seconds that each run will take from its first round to its last, roughly; none if it is finished."""
        found = {name: data for one in self.plans for name, data in one.sources.items()}
        return {
            job: 0.0 if job.finished else estimate_run_seconds(job.spec, found[job.spec.config.data.dataset])
            for job in self.jobs.values()
        }

    def run(self, *, quiet: bool = False) -> Reproduction:
        """Make the runs that are not finished, unless only finished ones count; write every table and figure."""
        for one in self.plans:
            check_output_files(one, self.out)
        if not quiet:
            show_notes(self.notes)
        outcomes = [] if self.only_finished else self._run_unfinished(quiet)
        return Reproduction(
            {
                one.paper_item.name: write_results(one, self.jobs, self.paper[one.paper_item.name], self.out)
                for one in self.plans
            },
            [FailedRun(end.job.folder, end.job.log, read_last_log_line(end.job)) for end in outcomes if end.code],
            self.out,
        )

    def _run_unfinished(self, quiet: bool) -> list[JobOutcome]:
        todo = self.unfinished
        if not todo:
            return []
        weights = self.estimate_seconds()
        longest_first = sorted(todo, key=lambda job: -weights[job])  # or it would be the last one, alone
        view = JobsProgress({job: weights[job] for job in todo})
        if quiet:
            return run_jobs(longest_first, self._build_child_command, self.at_once, lambda *_: None)
        with view:
            return run_jobs(longest_first, self._build_child_command, self.at_once, view)

    def _build_child_command(self, job: Job) -> list[str]:
        keywords = job.build_keywords(self.threads) | {"data_dir": self.plans[0].request.data_dir}
        shown = shlex.join(["fedco2", *self._build_arguments(job)])
        module = ["-m", "fedtrain.reproduction.child_process"]
        return [sys.executable, "-P", *module, str(os.getpid()), json.dumps(keywords, default=str), shown]

    def __repr__(self) -> str:
        names = ", ".join(one.paper_item.name for one in self.plans)
        return f"<ReproductionPlan {self.out}: {names}, {len(self.unfinished)} of {len(self.jobs)} runs to make>"


def count_cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _build_request(options: ReproduceOptions) -> Request:
    seeds, methods = options.get("seeds"), options.get("methods") or ()
    data_dir = options.get("data_dir")
    which = seeds if seeds is None or isinstance(seeds, int | str) else "".join(f"{seed}," for seed in seeds)
    names = methods.split(",") if isinstance(methods, str) else methods
    return Request(
        seeds=None if which is None else str(which),
        rounds=options.get("rounds"),
        methods=tuple(load_method_name(name.strip()) for name in names if name.strip()),
        source=options.get("data", "auto"),
        dataset=options.get("dataset"),
        eval_every=options.get("eval_every"),
        rule=options.get("rule"),
        legacy=options.get("legacy", False),
        sets=nest_settings(options.get("settings") or {}),
        data_dir=None if data_dir is None else Path(data_dir),
    )


def load_method_name(text: str) -> str:
    """What configurations call a method; code of the user's own is loaded."""
    return str(load_references({"method": {"name": text if is_reference(text) else text.lower()}})["method"]["name"])


def _collect_paper_numbers(plans: Sequence[Plan], path: Path | str | None) -> dict[str, PaperNumbers]:
    """Ours, and the user's above them."""
    known = {name: _list_known_numbers(name, plans) for name in PAPER_ITEM_NAMES} if path else {}
    more = load_user_numbers(Path(path), known) if path else {}
    return {name: load_paper_numbers(name) | more.get(name, {}) for name in (one.paper_item.name for one in plans)}


def _list_known_numbers(name: str, plans: Sequence[Plan]) -> dict[str, tuple[set[str], set[str]]]:
    """Rows and columns of each panel, as in the paper and as asked for: one file may hold more than is shown."""
    whole = load_paper_item(name)
    rows = {row.name for row in whole.rows}
    frames = [build_panels(whole, [max(whole.rounds, default=0)] * len(whole.blocks))]
    frames += [get_plan_panels(one) for one in plans if one.paper_item.name == name]
    found: dict[str, tuple[set[str], set[str]]] = {}
    for panel, columns in (item for each in frames for item in each.items()):
        found.setdefault(panel, (rows, set()))[1].update(columns)
    return found
