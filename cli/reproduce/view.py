"""How ``fedco2 reproduce`` shows what there is, what it does and what came of it."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from cli.word_table import Column, print_word_table
from fedtrain.data.datasets import DATASETS
from fedtrain.reproduce.jobs import Job
from fedtrain.reproduce.results import ComparisonTable
from fedtrain.reproduce.runner import JobOutcome, RunningJob, read_last_log_line, read_rounds_done
from fedtrain.reproduce.table_formats import format_lines, list_notes
from fedtrain.utils.grid import Grid, GridRow, print_grid
from fedtrain.utils.terminal import get_table_width, keep_together, print_paragraph
from fedtrain.utils.text import format_duration

ROOMY_WIDTH = 120
"""From here on data sets are shown by their titles, not by the shorter names that commands use."""


def show_list(screen: Console, items: Sequence[dict[str, Any]], as_json: bool) -> None:
    """A line for each table and figure."""
    if as_json:
        screen.file.write(json.dumps(items, ensure_ascii=False) + "\n")
        return
    width = get_table_width(screen)
    roomy = width is None or width >= ROOMY_WIDTH
    columns = [Column("", whole=True), Column("what"), Column("data"), Column("rounds")]
    columns += [Column(name, numeric=True) for name in ("seeds", "runs", "time")]
    rows = [
        [
            item["name"],
            item["title"].partition(": ")[2],
            ", ".join(format_dataset(name, state, roomy) for name, state in item["data"].items()),
            format_ours_of_paper(item["rounds"], item["paper_rounds"]),
            format_ours_of_paper([item["seeds"]], [item["paper_seeds"]]),
            item["runs"],
            format_duration(item["estimated_seconds"]),
        ]
        for item in items
    ]
    print_word_table(screen, columns, rows)
    if any(state != "here" for item in items for state in item["data"].values()):
        print_paragraph(screen, "* stand-in images, drawn by fedco2, because the real data are not here", indent=2)
    print_paragraph(
        screen,
        "time: an estimate for this machine, each alone, from counted operations and a short measurement; right within "
        "a factor of two or three. Runs that several have in common are made once. Real data may be a subset or "
        "another split than the paper's, stand-in images get fewer rounds: each title says so.",
    )


def format_dataset(name: str, state: str, roomy: bool) -> str:
    """A data set, marked if it is a stand-in."""
    return keep_together(DATASETS[name].title if roomy else name) + "*" * (state != "here")


def format_ours_of_paper(ours: Sequence[int], paper: Sequence[int]) -> str:
    """Ours, and the paper's if they are others."""
    some, full = (", ".join(map(str, numbers)) for numbers in (ours, paper))
    return some if some == full else f"{some} of {full}"


def show_commands(
    screen: Console, todo: Mapping[Job, float], threads: int, extra: Sequence[str], as_json: bool
) -> None:
    """The command of every cell, or that it is finished; and how long the others will take, each alone."""
    commands = [shlex.join(["fedco2", *job.build_arguments(threads), *extra]) for job in todo]
    if as_json:
        report = [
            {"folder": str(job.folder), "finished": job.finished, "command": command, "estimated_seconds": todo[job]}
            for job, command in zip(todo, commands, strict=True)
        ]
        screen.file.write(json.dumps(report, ensure_ascii=False) + "\n")
        return
    for job, command in zip(todo, commands, strict=True):
        screen.print(f"# finished: {job.folder}" if job.finished else command, soft_wrap=True)
    left = [cost for job, cost in todo.items() if not job.finished]
    time = f", roughly {format_duration(sum(left))} one after the other" if left else ""
    end = f"# dry run: {len(left)} of {len(todo)} runs to be made or finished{time}; nothing was run"
    print_paragraph(screen, end, indent=2)


class JobsProgress:
    """Looks on while cells run."""

    def __init__(self, screen: Console, weights: Mapping[Job, float]) -> None:
        self.screen, self.weights, self.start = screen, weights, time.monotonic()
        self.reported_count, self.first = 0, {job: read_rounds_done(job) for job in weights}
        self.live = Live(console=screen, transient=True, auto_refresh=False) if screen.is_terminal else None

    def __enter__(self) -> JobsProgress:
        self.screen.print(f"{len(self.weights)} runs to make; Ctrl-C is safe, the same command goes on")
        if self.live:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live:
            self.live.stop()

    def __call__(self, running: Sequence[RunningJob], done: Sequence[JobOutcome], waiting: int) -> None:
        """A line for each run that ended, and on a terminal what is at work."""
        for outcome in done[self.reported_count :]:
            end = "finished" if not outcome.code else f"FAILED ({read_last_log_line(outcome.job)})"
            self.reported_count += 1
            self.screen.print(
                f"[{self.reported_count}/{len(self.weights)}] {outcome.job.folder.name} {end}, "
                f"{format_duration(outcome.seconds)}",
                style="" if not outcome.code else "bold red",
                soft_wrap=True,
            )
        if self.live:
            self.live.update(Text("\n".join(self.format_state(running, done, waiting))), refresh=True)

    def format_state(self, running: Sequence[RunningJob], done: Sequence[JobOutcome], waiting: int) -> list[str]:
        """What is at work, how much waits, when it will be over."""
        lines, worked = [], sum(self.weights[outcome.job] for outcome in done)
        left = sum(self.weights.values()) - worked
        for one in running:
            rounds, made = one.job.spec.config.server.rounds, read_rounds_done(one.job)
            worked += self.weights[one.job] * max(0, made - self.first[one.job]) / rounds
            left -= self.weights[one.job] * made / rounds
            where = "" if one.process else "  (another program is at work on it)"
            lines.append(f"  {one.job.folder.name}  round {made}/{rounds}{where}")
        spent = time.monotonic() - self.start
        eta = left * spent / worked if worked else left
        head = f"{len(done)} of {len(self.weights)} runs ended, {len(running)} at work, {waiting} wait"
        return [f"{head}; roughly {format_duration(max(eta, 0))} left", *lines]


def show_impossible(screen: Console, why: Mapping[str, int]) -> None:
    """Before hours are spent on the others."""
    for reason, count in why.items():
        print_paragraph(screen, f"note: {count} runs will fail: {reason}", "yellow", indent=len("note: "))


def show_failures(screen: Console, failed: Sequence[JobOutcome]) -> None:
    """Which, why, and where to read more."""
    for outcome in failed:
        print_paragraph(
            screen, f"failed: {outcome.job.folder}: {read_last_log_line(outcome.job)}", "bold red", indent=2
        )
        print_paragraph(screen, f"  its log: {outcome.job.log}")


def show_comparison_tables(
    screen: Console, grids: Sequence[ComparisonTable], folder: Path, files: Sequence[str]
) -> None:
    """Every table, and where it was written."""
    for grid in grids:
        print_paragraph(screen, grid.title, "bold")
        rows = [
            GridRow(
                name if kind == "ours" else f"  {name}",
                [text.replace(" ± ", "±") for text in texts],
                "" if kind == "ours" else "dim",
            )
            for name, kind, texts in format_lines(grid)
        ]
        print_grid(screen, Grid("", list(grid.columns.values()), rows))
        for note in list_notes(grid):
            print_paragraph(screen, f"- {note}", indent=2)
        screen.print()
    print_paragraph(screen, f"Written to {folder}: {', '.join(files)}")
    screen.print()
