"""Tables as Markdown, CSV, JSON and LaTeX."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from fedtrain.reproduction.results import ComparedNumber, ComparisonTable

LineKind = Literal["ours", "paper", "difference"]
DIFFERENCE_MARK = "*"
DASH = "-"
MARK_EXPLANATION = (
    "* the difference exceeds the two spreads together; where the paper's is not known ours is taken for it"
)
NO_MARKS_EXPLANATION = "reduced, so nothing is marked as agreeing with the paper or not"
LATEX_ESCAPES = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "^": r"\^{}",
    "~": r"\~{}",
    "&": r"\&",
    "%": r"\%",
    "_": r"\_",
    "#": r"\#",
    "$": r"\$",
    "±": r"$\pm$",
    "α": r"$\alpha$",
    "σ": r"$\sigma$",
}


def format_lines(grid: ComparisonTable) -> Iterator[tuple[str, LineKind, list[str]]]:
    """Ours, the paper's and the difference of each row, as they are written."""
    digits = _count_printed_digits(grid)
    for name, entries in grid.rows.items():
        yield name, "ours", [format_ours(grid, entry) for entry in entries]
        if any(entry.paper for entry in entries):
            yield "paper", "paper", [format_paper(entry, digits) for entry in entries]
        if any(entry.difference is not None for entry in entries):
            apart = (entry.difference for entry in entries)
            yield "difference", "difference", [DASH if value is None else f"{value:+.1f}" for value in apart]


def format_ours(grid: ComparisonTable, entry: ComparedNumber) -> str:
    """The mean, its spread if there is one, a mark if it disagrees."""
    if entry.ours is None:
        return DASH
    std = "" if entry.ours.std is None else f" ± {entry.ours.std:.1f}"
    return f"{entry.ours.mean:.1f}{std}{DIFFERENCE_MARK * grid.is_marked(entry)}"


def format_paper(entry: ComparedNumber, digits: int) -> str:
    """The paper's number, as printed."""
    if entry.paper is None:
        return DASH
    return _format_number(entry.paper.value, digits) + (
        "" if entry.paper.std is None else f" ± {_format_number(entry.paper.std, digits)}"
    )


def _format_number(value: float, digits: int) -> str:
    """So many digits after the point; a second one that is not 0 is shown in any case."""
    return f"{value:.1f}" if digits == 1 and _has_one_digit(value) else f"{value:.2f}"


def _count_printed_digits(grid: ComparisonTable) -> int:
    """After the point: a table that prints two has few numbers that end in 0, one that prints one has hardly others."""
    held = [entry.paper.value for entries in grid.rows.values() for entry in entries if entry.paper]
    return 1 if 2 * sum(map(_has_one_digit, held)) >= len(held) else 2


def _has_one_digit(value: float) -> bool:
    return f"{value:.2f}".endswith("0")


def list_notes(grid: ComparisonTable) -> list[str]:
    """All that stands under a table."""
    compared = any(entry.difference is not None for entries in grid.rows.values() for entry in entries)
    return [
        grid.std_description,
        *([NO_MARKS_EXPLANATION if grid.deviations else MARK_EXPLANATION] if compared else []),
        *grid.notes,
    ]


def to_markdown(grids: Sequence[ComparisonTable]) -> str:
    """One table after the other."""
    parts = []
    for grid in grids:
        rows = [
            [_escape_markdown(name) if kind == "ours" else f"*{name}*", *map(_escape_markdown, texts)]
            for name, kind, texts in format_lines(grid)
        ]
        heads = [["", *map(_escape_markdown, grid.columns.values())], ["---", *["---:"] * len(grid.columns)]]
        table = "\n".join(f"| {' | '.join(row)} |" for row in (*heads, *rows))
        parts.append(
            f"**{_escape_markdown(grid.title)}**\n\n{table}\n\n"
            + "\n".join(f"- {_escape_markdown(note)}" for note in list_notes(grid))
        )
    return "\n\n".join(parts) + "\n"


def _escape_markdown(text: str) -> str:
    return text.replace("|", r"\|").replace("*", r"\*")


def to_latex(grids: Sequence[ComparisonTable]) -> str:
    """Plain tabulars; the caption is the title, the notes stand below."""
    parts = []
    for grid in grids:
        rows = [
            [r"\quad " * (kind != "ours") + _escape_latex(name), *map(_escape_latex, texts)]
            for name, kind, texts in format_lines(grid)
        ]
        heads = ["", *map(_escape_latex, grid.columns.values())]
        head, *body = (" & ".join(row) + r" \\" for row in (heads, *rows))
        columns = "l" + "r" * len(grid.columns)
        table = ["\\begin{tabular}{" + columns + "}", r"\hline", head, r"\hline", *body, r"\hline", r"\end{tabular}"]
        under = " ".join(f"{_escape_latex(note.rstrip('.'))}." for note in list_notes(grid))
        caption = "\\caption{" + _escape_latex(grid.title) + "}"
        parts.append("\n".join([r"\begin{table}", caption, *table, "", under, r"\end{table}"]))
    return "\n\n".join(parts) + "\n"


def _escape_latex(text: str) -> str:
    return "".join(LATEX_ESCAPES.get(letter, letter) for letter in text)


def to_csv(name: str, grids: Sequence[ComparisonTable]) -> str:
    """A line for each number."""
    file = io.StringIO()
    heads = ("experiment", "panel", "row", "column", "ours", "ours_std", "seeds", "paper", "paper_std", "source")
    writer = csv.DictWriter(file, (*heads, "difference", "outside", "reduced"), lineterminator="\n")
    writer.writeheader()
    for grid in grids:
        for row, entries in grid.rows.items():
            for column, entry in zip(grid.columns, entries, strict=True):
                place = {"experiment": name, "panel": grid.name, "row": row, "column": column}
                writer.writerow(place | _compared_number_to_dict(grid, entry) | {"reduced": "; ".join(grid.deviations)})
    return file.getvalue()


def _compared_number_to_dict(grid: ComparisonTable, entry: ComparedNumber) -> dict[str, Any]:
    """Of an entry; None where there is nothing to say."""
    mine, paper = entry.ours, entry.paper
    return {
        "ours": mine and mine.mean,
        "ours_std": mine and mine.std,
        "seeds": entry.seeds,
        "paper": paper and paper.value,
        "paper_std": paper and paper.std,
        "source": paper and paper.source,
        "difference": entry.difference,
        "outside": None if grid.deviations else entry.exceeds_spread,
    }


def to_dict(name: str, grids: Sequence[ComparisonTable]) -> dict[str, Any]:
    """All of it, as JSON can hold it; numbers are in %."""
    return {
        "experiment": name,
        "panels": [
            {
                "name": grid.name,
                "title": grid.title,
                "reduced": grid.deviations,
                "ddof": 0 if "ddof 0" in grid.std_description else 1,
                "spread": grid.std_description,
                "columns": grid.columns,
                "rows": [
                    {
                        "label": row,
                        "columns": dict(
                            zip(grid.columns, (_compared_number_to_dict(grid, e) for e in entries), strict=True)
                        ),
                    }
                    for row, entries in grid.rows.items()
                ],
                "notes": list_notes(grid),
            }
            for grid in grids
        ],
    }


def to_json(name: str, grids: Sequence[ComparisonTable]) -> str:
    """As text."""
    return json.dumps(to_dict(name, grids), indent=1, ensure_ascii=False) + "\n"
