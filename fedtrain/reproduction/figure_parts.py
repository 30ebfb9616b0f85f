"""What the figures of the paper have in common: the title that says what is reduced, panels, looks."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING

from fedtrain.report.curves import get_branch_style
from fedtrain.report.plot_style import METHOD_STYLES, escape_mathtext
from fedtrain.report.records import FUSED, RunRecord
from fedtrain.reproduction.deviations import list_deviations
from fedtrain.reproduction.paper_item import MethodVariant
from fedtrain.reproduction.plan import Plan
from fedtrain.reproduction.results import LEGACY_NOTE, ComparisonTable, RecordsByIdentity
from theory.report.plot_style import FULL_WIDTH, MUTED_COLOUR, LineStyle, create_canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure


def create_paper_figure(
    plan: Plan, records: RecordsByIdentity, grids: Sequence[ComparisonTable], height: float, bars: bool = False
) -> SubFigure:
    """What lies under the title, which says what is reduced, and above the words on the spread."""
    missing = {cell.identity for cell in plan.run_specs.values()} - set(records)
    words = list_deviations(plan, len(missing))
    title = plan.paper_item.title + f", {LEGACY_NOTE}" * plan.request.legacy
    lines = [title, *([fill(f"reduced: {'; '.join(words)}", 94)] if words else [])]
    body = create_canvas(
        escape_mathtext("\n".join(lines)), FULL_WIDTH, height + 0.2 * sum(line.count("\n") + 1 for line in lines[1:])
    )
    seeds = len(plan.seeds)
    under = grids[0].std_description if bars else "one seed" if seeds == 1 else f"mean of {seeds} seeds"
    body.supxlabel(f"our own runs; {under}", x=0.01, ha="left", fontsize=8, color=MUTED_COLOUR)
    return body


def get_row_style(row: MethodVariant) -> LineStyle:
    """As in every report."""
    return METHOD_STYLES[row.method] if row.branch == FUSED else get_branch_style(row.branch)


def create_named_panels(body: SubFigure, lines: int, columns: int, names: Sequence[str]) -> list[Axes]:
    """Named panels, with the unit at the left."""
    grid = body.subplots(lines, columns, squeeze=False).ravel()
    for axes, name in zip(grid, names, strict=False):
        axes.set_title(escape_mathtext(name))
    for axes in grid[len(names) :]:
        axes.set_visible(False)
    for axes in grid[::columns]:
        axes.set_ylabel("test accuracy, %")
    return list(grid)


def get_row_records(plan: Plan, records: RecordsByIdentity, block: int, r: int) -> list[RunRecord]:
    """The finished runs of a row, one for each seed."""
    return [records[i] for seed in plan.seeds if (i := plan.run_specs[block, r, seed].identity) in records]
