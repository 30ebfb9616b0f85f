"""Figures of single clients: Figure 4, every client under each model, and Figure 7, bars of each domain."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from fedtrain.report.plot_style import escape_mathtext
from fedtrain.reproduction.figure_parts import create_named_panels, create_paper_figure, get_row_records, get_row_style
from fedtrain.reproduction.plan import Plan
from fedtrain.reproduction.results import ComparisonTable, RecordsByIdentity

if TYPE_CHECKING:
    from matplotlib.figure import SubFigure

VARIANT_COLOURS = ("#D55E00", "#0072B2", "#009E73")
"""Of Okabe and Ito: the variants of Figure 7."""


def draw_client_dots(plan: Plan, records: RecordsByIdentity, grids: Sequence[ComparisonTable]) -> SubFigure:
    """Every client's accuracy under each model, clients in the order of the prediction's; a panel for each block."""
    blocks, rows = plan.paper_item.blocks, plan.paper_item.rows
    body = create_paper_figure(plan, records, grids, 3.1 * -(-len(blocks) // 2) + 0.3)
    panels = create_named_panels(body, -(-len(blocks) // 2), min(2, len(blocks)), [block.name for block in blocks])
    for b, (axes, block) in enumerate(zip(panels, blocks, strict=False)):
        found = [run.rules[plan.get_rule(b)]["clients"] for run in get_row_records(plan, records, b, 0)]
        if not found:
            continue
        each = {
            row.branch: {name: 100 * fmean(run[name][row.branch] for run in found) for name in found[0]} for row in rows
        }
        order = sorted(found[0], key=lambda name: -each[rows[0].branch][name])
        for row in rows[::-1]:
            look, values = get_row_style(row), [each[row.branch][name] for name in order]
            axes.axhline(fmean(values), color=look.colour, linewidth=1.1, linestyle=look.line, alpha=0.8)
            axes.plot(
                range(1, len(order) + 1), values, look.marker, color=look.colour, markersize=look.size,
                markeredgecolor="white", markeredgewidth=0.6, label=row.name.removeprefix("- "),
            )  # fmt: skip
        means = ", ".join(f"{row.name.removeprefix('- ')} {fmean(each[row.branch].values()):.1f}" for row in rows)
        axes.set_title(escape_mathtext(f"{block.name}: mean {means}"))
        axes.set_xticks([1, *range(5, len(order) + 1, 5)])
        axes.set_xlabel("client, by the accuracy of Fed-CO2")
    handles, labels = next((axes.get_legend_handles_labels() for axes in panels if axes.lines), ([], []))
    body.legend(handles[::-1], labels[::-1], loc="outside upper left", ncols=3, borderaxespad=0.2)
    return body


def draw_domain_bars(plan: Plan, records: RecordsByIdentity, grids: Sequence[ComparisonTable]) -> SubFigure:
    """A panel for each block, clients and their mean side by side, a bar for each variant."""
    body = create_paper_figure(plan, records, grids, 2.6 * len(grids) + 0.9, bars=True)
    panels = create_named_panels(body, len(grids), 1, [grid.name for grid in grids])
    for axes, grid in zip(panels, grids, strict=True):
        width = 0.8 / len(grid.rows)
        for k, (name, entries) in enumerate(grid.rows.items()):
            x = np.arange(len(entries)) + (k - (len(grid.rows) - 1) / 2) * width
            heights = [0.0 if entry.ours is None else entry.ours.mean for entry in entries]
            spread = [(entry.ours.std or 0.0) if entry.ours else 0.0 for entry in entries]
            colour: Any = VARIANT_COLOURS[k % len(VARIANT_COLOURS)]
            axes.bar(x, heights, width * 0.92, color=colour, label=name)
            if any(spread):
                axes.errorbar(x, heights, spread, fmt="none", ecolor="#222222", elinewidth=0.9)
            for at, height, std in zip(x, heights, spread, strict=True):
                axes.annotate(
                    f"{height:.1f}" if height else "–", (at, height + std), (0, 2), textcoords="offset points",
                    ha="center", fontsize=7, color="#444444",
                )  # fmt: skip
        axes.set_xticks(range(len(grid.columns)), list(grid.columns.values()))
        axes.grid(visible=False, axis="x")
        axes.set_ylim(0, 108)
    handles, labels = panels[0].get_legend_handles_labels()
    body.legend(handles, labels, loc="outside upper left", ncols=len(labels), borderaxespad=0.2)
    return body
