"""What ``fedco2 report`` does once its options are read."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from cli.console import make_console, show_status_line
from cli.report.view import show_comparison, show_result_tables
from fedtrain.report.compare import ComparisonResult, compare_runs
from fedtrain.report.grouping import find_setting_differences
from fedtrain.report.page import check_new_page, write_page
from fedtrain.report.records import NotEvaluatedError, RunRecord, find_runs, read_record
from fedtrain.report.score_rows import compute_run_intervals, list_scores, score_rows_to_dict
from fedtrain.report.tables import ResultTable, build_result_tables, table_to_dict
from fedtrain.utils.new_folder import choose_new_folder
from fedtrain.utils.terminal import print_paragraph
from theory.errors import InputError


def run_report(
    runs: Sequence[Path], sides: tuple[str, str] | None, out: Path | None, rule: str | None, as_json: bool
) -> None:
    """Read, compare if asked to, write the page, show."""
    if out is not None:
        check_new_page(out)
    a, b = (_parse_side(side) for side in sides) if sides else ([], [])
    named = [*a, *b, *(one for path in runs for one in find_runs(path))]
    known = {path.resolve(): path for path in named[::-1]}  # a folder that is named twice is one run
    compared = {path.resolve() for path in (*a, *b)}
    records, empty = _read_records(dict(reversed(known.items())), compared)
    comparison = compare_runs(_select_records(a, records), _select_records(b, records), rule) if sides else None
    found = build_result_tables(list(records.values()), rule)
    page = out if out or as_json or sides else _choose_default_page()
    if page is not None:
        _draw_and_write_page(found, page, comparison)
    if as_json:
        click.echo(
            json.dumps(_build_json_report(found, comparison, page) | {"left_out": list(empty)}, ensure_ascii=False)
        )
        return
    screen = make_console()
    if comparison is not None:
        show_comparison(screen, comparison)
        for other in (known[place] for place in records if place not in compared):
            print_paragraph(screen, f"note: {_explain_bystander(other, page)}", "yellow", indent=len("note: "))
    else:
        show_result_tables(screen, found)
    for why in empty.values():
        print_paragraph(screen, f"note: left out: {why}", "yellow", indent=len("note: "))
    if page is not None:
        print_paragraph(screen, f"Written to {page}: open it in a browser")


def _read_records(places: dict[Path, Path], compared: set[Path]) -> tuple[dict[Path, RunRecord], dict[str, str]]:
    """The runs, and why some have nothing to tell yet: among others these are left out, not in a comparison."""
    records: dict[Path, RunRecord] = {}
    empty: dict[str, NotEvaluatedError] = {}
    for place, path in places.items():
        try:
            records[place] = read_record(path)
        except NotEvaluatedError as error:
            if place in compared:
                raise
            empty[str(path)] = error
    if empty and not records:
        raise next(iter(empty.values()))
    return records, {path: str(error) for path, error in empty.items()}


def _parse_side(side: str) -> list[Path]:
    """The folders of one side; a comma separates them, unless it is part of a folder's name."""
    names = [side] if Path(side).exists() else [name.strip() for name in side.split(",") if name.strip()]
    if not names:
        raise InputError("--compare: a side is empty; name a run folder, or several separated by commas")
    return [one for name in names for one in find_runs(Path(name))]


def _select_records(paths: Sequence[Path], records: dict[Path, RunRecord]) -> list[RunRecord]:
    return [records[place] for place in dict.fromkeys(path.resolve() for path in paths)]


def _explain_bystander(path: Path, page: Path | None) -> str:
    """What becomes of a run that is named beside the two sides of a comparison."""
    shown = "it is in the tables of the page" if page else "name a page with --out to see it beside the two"
    return f"{path} takes no part in the comparison, which has two sides (A1,A2 B1,B2 are seeds of each); {shown}"


def _choose_default_page() -> Path:
    folder = choose_new_folder("report")
    folder.parent.mkdir(exist_ok=True)
    return folder.with_suffix(".html")


def _draw_and_write_page(found: Sequence[ResultTable], page: Path, comparison: ComparisonResult | None) -> None:
    with show_status_line("drawing the figures"):
        write_page(found, page, comparison, shlex.join(["fedco2", *sys.argv[1:]]))


def _build_score_report(table: ResultTable) -> dict[str, object]:
    """Further scores by row, and intervals of the runs that saved their predictions; nothing where none is."""
    scores = {row.label: score_rows_to_dict(row, table.clients) for row in table.rows if list_scores(row)}
    runs = [run for row in table.rows for run in row.runs]
    intervals = {str(run.path): found for run in runs if (found := compute_run_intervals(run))}
    return ({"scores": scores} if scores else {}) | ({"intervals": intervals} if intervals else {})


def _build_json_report(
    found: Sequence[ResultTable], comparison: ComparisonResult | None, page: Path | None
) -> dict[str, object]:
    apart, common = find_setting_differences([row.runs for table in found for row in table.rows])
    labels = [row.label for table in found for row in table.rows]
    return {
        "tables": [{**table_to_dict(table), **_build_score_report(table)} for table in found],
        "compare": comparison,
        "settings": {"rows": labels, "differ": apart, "same": common},
        "out": None if page is None else str(page),
    }
