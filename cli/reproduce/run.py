"""What ``fedco2 reproduce`` does once its options are read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from cli.console import make_console
from cli.reproduce.execute import count_cores, estimate_job_seconds, run_unfinished_jobs
from cli.reproduce.view import show_commands, show_comparison_tables, show_failures, show_impossible, show_list
from fedtrain.config.options import nest_options
from fedtrain.report.records import RunRecord, read_record
from fedtrain.reproduce.data_match import find_impossible_runs, make_clients_preview
from fedtrain.reproduce.estimate import estimate_total_seconds
from fedtrain.reproduce.jobs import Job, StoredRun, build_jobs, load_adopted_runs
from fedtrain.reproduce.owned_files import check_owned, write_owned
from fedtrain.reproduce.paper_item import PAPER_ITEM_NAMES, load_paper_item
from fedtrain.reproduce.paper_numbers import PaperNumbers, load_paper_numbers, load_user_numbers
from fedtrain.reproduce.plan import Plan, build_plan, make_dataset_finder
from fedtrain.reproduce.request import Request
from fedtrain.reproduce.results import ComparisonTable, build_comparison_tables
from fedtrain.reproduce.runner import read_last_log_line
from fedtrain.reproduce.table_formats import to_csv, to_dict, to_json, to_latex, to_markdown
from fedtrain.reproduce.table_layout import build_panels, get_plan_panels
from fedtrain.utils.terminal import print_paragraph

TABLE_FILES = ("table.md", "table.csv", "table.json", "table.tex")
FIGURE_FILE = "figure.png"


def run_reproduce(options: dict[str, Any]) -> bool:
    """List, or plan, run and show; whether all runs are finished."""
    names = list(dict.fromkeys(name.upper() for name in options["names"])) or list(PAPER_ITEM_NAMES)
    request = build_request(options)
    look = make_dataset_finder(request)
    plans = [build_plan(name, request, look) for name in names]
    if options["listing"]:
        show_list(make_console(), [describe_plan(one) for one in plans], options["as_json"])
        return True
    papers = collect_paper_numbers(plans, options["paper"])
    out: Path = options["out"]
    ahead = make_clients_preview(plans)
    todo = build_jobs(plans, out / "runs", adopt := load_adopted_runs(options["adopt"]), ahead)
    show_impossible(
        make_console(stderr=True), find_impossible_runs((job.spec for job in todo.values() if not job.finished), ahead)
    )
    threads = max(1, count_cores() // options["jobs"])
    extra = ["--data-dir", str(request.data_dir)] if request.data_dir else []
    if options["dry_run"]:
        show_commands(
            make_console(), estimate_job_seconds(plans, list(todo.values())), threads, extra, options["as_json"]
        )
        return True
    for one in plans:
        check_owned(out / one.paper_item.name, list_output_files(one))
    warn_unused_runs(adopt, todo)
    outcomes = run_unfinished_jobs(
        plans, [job for job in todo.values() if not job.finished], threads, extra, options["jobs"]
    )
    failed = [outcome for outcome in outcomes if outcome.code]
    results, written = {}, {}
    for one in plans:
        results[one.paper_item.name], written[one.paper_item.name] = write_results(
            one, todo, papers[one.paper_item.name], out
        )
    if options["as_json"]:
        failures = [
            {"folder": str(f.job.folder), "log": str(f.job.log), "why": read_last_log_line(f.job)} for f in failed
        ]
        all_of_them = [to_dict(name, grids) for name, grids in results.items()]
        click.echo(json.dumps({"out": str(out), "experiments": all_of_them, "failed": failures}, ensure_ascii=False))
    else:
        for name, found in results.items():
            show_comparison_tables(make_console(), found, out / name, written[name])
    show_failures(make_console(stderr=True), failed)
    return not failed


def build_request(options: dict[str, Any]) -> Request:
    """The request that the options make."""
    methods = tuple(word.strip().lower() for word in (options["methods"] or "").split(",") if word.strip())
    keys = ("seeds", "rounds", "source", "dataset", "eval_every", "rule", "legacy", "data_dir")
    return Request(methods=methods, sets=nest_options({}, options["sets"]), **{key: options[key] for key in keys})


def describe_plan(one: Plan) -> dict[str, Any]:
    """What a table or figure needs, and takes here and now."""
    runs = {cell.identity for cell in one.run_specs.values()}
    rounds = [cell.config.server.rounds for cell in one.run_specs.values()]
    return {
        "name": one.paper_item.name,
        "title": one.paper_item.title,
        "data": {name: "stand-in" if found.standin else "here" for name, found in one.sources.items()},
        "rounds": sorted(set(rounds)),
        "paper_rounds": sorted({config.server.rounds for config in one.paper_configs}),
        "seeds": len(one.seeds),
        "paper_seeds": len(one.paper_item.seeds),
        "runs": len(runs),
        "estimated_seconds": estimate_total_seconds(one.run_specs.values(), one.sources),
    }


def collect_paper_numbers(plans: Sequence[Plan], path: Path | None) -> dict[str, PaperNumbers]:
    """Ours, and the user's above them."""
    more = (
        load_user_numbers(path, {name: _list_known_numbers(name, plans) for name in PAPER_ITEM_NAMES}) if path else {}
    )
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


def list_output_files(one: Plan) -> list[str]:
    """What is written for a table or figure."""
    return [*TABLE_FILES, *[FIGURE_FILE] * bool(one.paper_item.figure)]


def warn_unused_runs(adopt: Sequence[StoredRun], todo: dict[str, Job]) -> None:
    """A run that was to be used and is none of the cells is worth a word."""
    used = {job.folder for job in todo.values()}
    for run in adopt:
        if run.path not in used:
            why = "none of the runs wanted"
            if run.identity in todo:
                why = "evaluated too seldom, made with other data, or there already"
            print_paragraph(make_console(stderr=True), f"note: {run.path} is not used: {why}", indent=len("note: "))


def write_results(
    one: Plan, todo: dict[str, Job], paper: PaperNumbers, out: Path
) -> tuple[list[ComparisonTable], list[str]]:
    """Read the finished runs, write the tables and the figure; the tables, and the names of the files."""
    identities = {cell.identity for cell in one.run_specs.values()}
    records: dict[str, RunRecord] = {i: read_record(todo[i].folder) for i in identities if todo[i].finished}
    found, name = build_comparison_tables(one, records, paper), one.paper_item.name
    for file, text in zip(
        TABLE_FILES, (to_markdown(found), to_csv(name, found), to_json(name, found), to_latex(found)), strict=True
    ):
        write_owned(out / name, file, text)
    if not one.paper_item.figure or not records:
        return found, [*TABLE_FILES]
    from fedtrain.reproduce.paper_figures import draw_paper_figure

    write_owned(out / name, FIGURE_FILE, draw_paper_figure(one, records, found))
    return found, [*TABLE_FILES, FIGURE_FILE]
