"""The report page: runs as one file that needs no network, no script and no other file."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from fedtrain.report import formatting, page_tables
from fedtrain.report.compare import ComparisonResult
from fedtrain.report.grouping import find_setting_differences
from fedtrain.report.score_rows import format_interval_rows, format_score_rows
from fedtrain.report.svg import draw_label_figures, draw_svg_figures
from fedtrain.report.tables import RULE_DESCRIPTIONS, ResultTable, table_to_dict
from fedtrain.utils.atomic_files import check_new_file, replace_atomically
from fedtrain.utils.text import format_bytes, format_duration
from theory.report.html_page import load_stylesheet


def check_new_page(path: Path) -> None:
    """Refuse what cannot become the page."""
    check_new_file(path, ".html", "the report is a page")


def write_page(
    tables: Sequence[ResultTable], path: Path, comparison: ComparisonResult | None = None, command: str = ""
) -> None:
    """Write the page of all boards, and of the comparison if there is one."""
    check_new_page(path)
    text = render_page(tables, comparison, command)
    with replace_atomically(path) as part:
        part.write_text(text, encoding="utf-8")


def render_page(tables: Sequence[ResultTable], comparison: ComparisonResult | None = None, command: str = "") -> str:
    """The page as text."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "percent": formatting.format_percent,
        "spread": formatting.format_mean_std,
        "points": formatting.format_points,
        "chance": formatting.format_p_value,
        "amount": format_bytes,
        "duration": format_duration,
        "whole": formatting.keep_standin_tag_unbroken,
    }
    template = environment.from_string(files("fedtrain.report").joinpath("page.html.j2").read_text(encoding="utf-8"))
    rows = [row for table in tables for row in table.rows]
    apart, common = find_setting_differences([row.runs for row in rows])
    return template.render(
        style=load_stylesheet(),
        title=build_title(tables),
        count=sum(len(row.runs) for row in rows),
        tables=[_build_table_view(number, table) for number, table in enumerate(tables, 1)],
        compare=comparison,
        rows=rows,
        apart=apart,
        common=common,
        command=command,
        rules=RULE_DESCRIPTIONS,
    )


def build_title(tables: Sequence[ResultTable]) -> str:
    """What was trained on what."""
    names = list(dict.fromkeys(row.first.title for table in tables for row in table.rows))
    data = " and ".join(dict.fromkeys(table.title for table in tables))
    methods = f"{len(names)} methods" if len(names) > 3 else formatting.join_words(names)
    return f"{methods} on {data}"


def _build_table_view(number: int, table: ResultTable) -> dict[str, object]:
    return {
        "number": number,
        "table": table,
        "numbers": table_to_dict(table),
        "headline": page_tables.write_headline(table),
        "results": page_tables.format_results(table),
        "everyone": page_tables.format_all_clients(table)
        if len(table.clients) > page_tables.MAX_CLIENT_COLUMNS
        else None,
        "branches": page_tables.format_branches(table),
        "scores": format_score_rows(table),
        "intervals": format_interval_rows(table),
        "pictures": draw_svg_figures(table),
        "labels": draw_label_figures(table),
        "runs": page_tables.describe_runs(table),
    }
