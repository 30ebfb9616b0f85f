"""How ``fedco2 reproduce`` shows what there is, what it does and what came of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console

from cli.word_table import Column, print_word_table
from fedtrain.data.datasets import DATASETS
from fedtrain.reproduction.item_summary import ItemSummary
from fedtrain.reproduction.outcome import FailedRun, ItemResult
from fedtrain.reproduction.reproduce import ReproductionPlan
from fedtrain.reproduction.table_formats import format_lines, list_notes
from fedtrain.utils.terminal import get_table_width, keep_together, print_paragraph
from fedtrain.utils.terminal_table import Grid, GridRow, print_grid
from fedtrain.utils.text import format_duration

ROOMY_WIDTH = 120
"""From here on data sets are shown by their titles, not by the shorter names that commands use."""


def show_list(screen: Console, items: Sequence[ItemSummary], as_json: bool) -> None:
    """A line for each table and figure."""
    if as_json:
        screen.file.write(json.dumps([asdict(item) for item in items], ensure_ascii=False) + "\n")
        return
    width = get_table_width(screen)
    roomy = width is None or width >= ROOMY_WIDTH
    columns = [Column("", whole=True), Column("what"), Column("data"), Column("rounds")]
    columns += [Column(name, numeric=True) for name in ("seeds", "runs", "time")]
    rows = [
        [
            item.name,
            item.title.partition(": ")[2],
            ", ".join(format_dataset(name, state, roomy) for name, state in item.data.items()),
            format_ours_of_paper(item.rounds, item.paper_rounds),
            format_ours_of_paper([item.seeds], [item.paper_seeds]),
            item.runs,
            format_duration(item.estimated_seconds),
        ]
        for item in items
    ]
    print_word_table(screen, columns, rows)
    if any(state != "here" for item in items for state in item.data.values()):
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


def show_commands(screen: Console, planned: ReproductionPlan, as_json: bool) -> None:
    """The command of every run, or that it is finished; and how long the others will take, each alone."""
    seconds, commands = planned.estimate_seconds(), planned.list_commands()
    if as_json:
        report = [
            {"folder": str(job.folder), "finished": job.finished, "command": command, "estimated_seconds": seconds[job]}
            for job, command in zip(seconds, commands, strict=True)
        ]
        screen.file.write(json.dumps(report, ensure_ascii=False) + "\n")
        return
    for job, command in zip(seconds, commands, strict=True):
        screen.print(f"# finished: {job.folder}" if job.finished else command, soft_wrap=True)
    left = [cost for job, cost in seconds.items() if not job.finished]
    time = f", roughly {format_duration(sum(left))} one after the other" if left else ""
    end = f"# dry run: {len(left)} of {len(seconds)} runs to be made or finished{time}; nothing was run"
    print_paragraph(screen, end, indent=2)


def show_failures(screen: Console, failed: Sequence[FailedRun]) -> None:
    """Which, why, and where to read more."""
    for one in failed:
        print_paragraph(screen, f"failed: {one.folder}: {one.why}", "bold red", indent=2)
        print_paragraph(screen, f"  its log: {one.log}")


def show_item(screen: Console, item: ItemResult) -> None:
    """Every table, and where it was written."""
    for grid in item.tables:
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
    print_paragraph(screen, f"Written to {item.folder}: {', '.join(item.files)}")
    screen.print()
