"""``fedtrain.compare``: two configurations side by side, and whether the difference is more than chance."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from fedtrain.report.compare import ComparisonResult, compare_runs
from fedtrain.report.formatting import format_p_value, format_percent, format_points
from fedtrain.run import Run, as_run

Side = Run | Path | str | Sequence[Run | Path | str]
"""A run or its folder, or several that differ only in their seeds."""


class Comparison:
    """B minus A for every client, with a test; a table in a notebook."""

    def __init__(self, result: ComparisonResult) -> None:
        self.result = result

    @property
    def mean_difference(self) -> float:
        """Of the mean accuracy over clients, B - A."""
        return float(self.result["rows"][-1]["difference"])

    def _list_sample_tests(self) -> list[str]:
        """McNemar's test over all clients, a line for each pair of runs that saved predictions."""
        lines = []
        for test in self.result["samples"]:
            last = test["rows"][-1]
            lines.append(
                f"McNemar's test, seed {test['pair'][0]}: of {last['samples']:,} samples only A is right on "
                f"{last['only_a']:,}, only B on {last['only_b']:,}; p {format_p_value(last['p'])}"
            )
        return lines

    def _list_cells(self) -> list[list[str]]:
        heads = ["client", self.result["a"]["label"], self.result["b"]["label"], "B - A", "p"]
        return [heads] + [
            [
                row["name"], format_percent(row["a"]), format_percent(row["b"]), format_points(row["difference"]),
                format_p_value(row["p"]),
            ]
            for row in self.result["rows"]
        ]  # fmt: skip

    def __repr__(self) -> str:
        cells = self._list_cells()
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
        return "\n".join(
            [self.result["title"], *lines, self.result["test"], *self._list_sample_tests(), *self.result["notes"]]
        )

    def _repr_html_(self) -> str:
        heads, *rows = self._list_cells()
        head = "".join(f"<th>{escape(cell)}</th>" for cell in heads)
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
        table = f"<table><caption>{escape(self.result['title'])}</caption><tr>{head}</tr>{body}</table>"
        return f"{table}<p>{escape(self.result['test'])}</p>"


def compare(a: Side, b: Side, *, rule: str | None = None) -> Comparison:
    """Compare two configurations client by client.

    Args:
        a: A run, its folder, or several that differ only in their seeds.
        b: The same; runs are paired by their seeds.
        rule: last, best-by-validation or window; without it the rule that the runs report by.
    """
    return Comparison(compare_runs([one.record for one in _list_runs(a)], [one.record for one in _list_runs(b)], rule))


def _list_runs(side: Side) -> list[Run]:
    return [as_run(side)] if isinstance(side, Run | Path | str) else [as_run(one) for one in side]
