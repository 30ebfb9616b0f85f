"""The figures of the paper, drawn from our runs; the title says what is reduced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BytesIO
from statistics import fmean
from typing import TYPE_CHECKING

from fedtrain.report.plot_style import CurveEnd, label_curve_ends, plot_curve
from fedtrain.report.records import FUSED
from fedtrain.reproduction.client_figures import draw_client_dots, draw_domain_bars
from fedtrain.reproduction.figure_parts import create_named_panels, create_paper_figure, get_row_records, get_row_style
from fedtrain.reproduction.paper_item import MethodVariant
from fedtrain.reproduction.plan import Plan
from fedtrain.reproduction.results import ComparisonTable, RecordsByIdentity
from theory.report.plot_style import use_plot_style

if TYPE_CHECKING:
    from matplotlib.figure import SubFigure

CurveEnds = list[CurveEnd]


def draw_paper_figure(plan: Plan, records: RecordsByIdentity, grids: Sequence[ComparisonTable]) -> bytes:
    """As a PNG without date or program, so that equal figures are equal files."""
    with use_plot_style():
        body = FIGURE_KINDS[plan.paper_item.figure](plan, records, grids)
        file = BytesIO()
        body.figure.savefig(file, format="png", facecolor="white", metadata={"Software": None})
    return file.getvalue()


def draw_convergence_curves(plan: Plan, records: RecordsByIdentity, grids: Sequence[ComparisonTable]) -> SubFigure:
    """Above the methods, below Fed-CO2 and the models that it adds up; a column for each block."""
    blocks, rows = plan.paper_item.blocks, plan.paper_item.rows
    parts = [(r, row) for r, row in enumerate(rows) if row.branch != FUSED or row.method == "fedco2"]
    split = any(row.branch != FUSED for row in rows)
    above = [(r, row) for r, row in enumerate(rows) if row.branch == FUSED]
    body = create_paper_figure(plan, records, grids, 7.4 if split else 4.2)
    names = [block.name for block in blocks] + [f"{block.name}: Fed-CO2 and its models" for block in blocks] * split
    panels = create_named_panels(body, 1 + split, len(blocks), names)
    for number, axes in enumerate(panels):
        b = number % len(blocks)
        ends = []
        for r, row in above if number < len(blocks) else parts[::-1]:
            curve = _average_seed_curves(plan, records, b, r, row)
            if curve:
                plot_curve(axes, get_row_style(row), list(curve), list(curve.values()))
                ends.append(
                    CurveEnd(max(curve), curve[max(curve)], row.name.removeprefix("- "), get_row_style(row).colour)
                )
        axes.set_xlabel("round")
        axes.margins(x=0.03)
        label_curve_ends(axes, ends, 2.7)
    return body


def _average_seed_curves(
    plan: Plan, records: RecordsByIdentity, block: int, r: int, row: MethodVariant
) -> dict[int, float]:
    client = plan.paper_item.blocks[block].client
    runs = get_row_records(plan, records, block, r)
    each = [run.curves["test", client, row.branch] for run in runs]
    common = sorted(set.intersection(*(set(one) for one in each))) if each else []
    return {round: 100 * fmean(one[round] for one in each) for round in common}


def draw_setting_lines(plan: Plan, records: RecordsByIdentity, grids: Sequence[ComparisonTable]) -> SubFigure:
    """Accuracy over a setting, a panel for each value, a line for each method, bars of one std over seeds."""
    body = create_paper_figure(plan, records, grids, 4.4, bars=True)
    panels = create_named_panels(body, 1, len(grids), [grid.name for grid in grids])
    for axes, grid in zip(panels, grids, strict=True):
        x = [float(block.name) for block in plan.paper_item.blocks]
        ends: CurveEnds = []
        for row, entries in zip(plan.paper_item.rows, grid.rows.values(), strict=True):
            known = [(at, entry.ours) for at, entry in zip(x, entries, strict=True) if entry.ours is not None]
            if not known:
                continue
            look, heights = get_row_style(row), [ours.mean for _, ours in known]
            plot_curve(axes, look, [at for at, _ in known], heights)
            spread = [ours.std or 0 for _, ours in known]
            axes.errorbar([at for at, _ in known], heights, spread, fmt="none", ecolor=look.colour, elinewidth=0.9)
            ends.append(CurveEnd(known[-1][0], heights[-1], row.name, look.colour))
        axes.set_xticks(x, [block.name for block in plan.paper_item.blocks])
        axes.set_xlabel(plan.paper_item.axis)
        label_curve_ends(axes, ends, 3.0)
    return body


FIGURE_KINDS: dict[str, Callable[[Plan, RecordsByIdentity, Sequence[ComparisonTable]], SubFigure]] = {
    "curves": draw_convergence_curves,
    "lines": draw_setting_lines,
    "dots": draw_client_dots,
    "bars": draw_domain_bars,
}
