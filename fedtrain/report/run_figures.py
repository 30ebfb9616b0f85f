"""The figures of a run: accuracy over rounds for every client and branch, and who holds which classes."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from fedtrain.report.label_figure import draw_label_figure
from fedtrain.report.png import replace_png
from fedtrain.runs.callbacks import Callback
from fedtrain.runs.folder import RunFolder
from fedtrain.runs.json_types import MetricRow, RunSummary
from theory.report.plot_style import BRANCH_STYLES, FULL_WIDTH, MUTED_COLOUR, TEXT_COLOUR, create_canvas, use_plot_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

MAX_CLIENT_PANELS = 9
"""Up to so many clients have a panel each; of more, the spread is shown."""
BRANCH_COLOURS = {"generic": "#0072B2", "personal": "#009E73", "own": "#0072B2", "peers": "#009E73"}


class DrawFigures(Callback):
    """Draws the figures of a run when it is over."""

    def on_run_end(self, folder: RunFolder, summary: RunSummary) -> None:
        """Draw them, unless clients that never answered left every evaluation incomplete."""
        if summary["rules"]:
            draw_run_figures(folder, summary)


def draw_run_figures(folder: RunFolder, summary: RunSummary) -> list[Path]:
    """accuracy.png and labels.png in the folder's figures; a run that went on draws them anew."""
    data = folder.read_manifest()["data"]
    names = [client["name"] for client in data["clients"]]
    curves = folder.path / "figures" / "accuracy.png"
    replace_png(draw_accuracy_figure(folder, summary), curves)
    counts = np.array([client["train"] for client in data["clients"]])
    figure = draw_label_figure(counts, names, data["classes"], f"Training images of each class, {data['title']}")
    path = folder.path / "figures" / "labels.png"
    replace_png(figure, path)
    return [curves, path]


def draw_accuracy_figure(folder: RunFolder, summary: RunSummary | None = None) -> Figure:
    """Test accuracy over rounds, of every client and branch."""
    data = folder.read_manifest()["data"]
    test = [row for row in folder.load_rows() if row["split"] == "test"]
    title = f"{folder.load_config().method.title} on {data['title']}"
    names = [client["name"] for client in data["clients"]]
    with use_plot_style():
        body = _draw_accuracy(test, names, title if summary is None else f"{title}: {_describe_result(summary)}")
        if notes := "; ".join(data["notes"]):
            body.supxlabel(fill(notes, 150), x=0.01, ha="left", fontsize=8, color=MUTED_COLOUR)
    return body.figure


def _describe_result(summary: RunSummary) -> str:
    shown = summary["rules"].get("last") or summary["rules"][summary["report"]]
    when = f"after {shown['round']} rounds" if "round" in shown else f"over {len(shown['rounds'])} evaluations"
    return f"mean test accuracy {100 * shown['mean']['fused']:.1f} % {when}"


def _draw_accuracy(test: list[MetricRow], names: list[str], title: str) -> SubFigure:
    """A panel a client and one of their mean, or one panel of the mean if they are many."""
    from matplotlib.ticker import MaxNLocator

    mean = f"mean of {len(names)} clients"
    panels = (
        [*names, *([mean] if len(names) > 1 else [])]
        if len(names) <= MAX_CLIENT_PANELS
        else [f"{mean}; band: 10 % to 90 % of them"]
    )
    columns = min(len(panels), 3)
    lines = -(-len(panels) // columns)
    body = create_canvas(title, FULL_WIDTH, 1.2 + 2.5 * lines if len(panels) > 1 else 4.6)
    grid = body.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for axes, name in zip(grid, panels, strict=False):
        if name in names:
            _draw_client(axes, test, name)
        else:
            _draw_client_mean(axes, test, band=len(names) > MAX_CLIENT_PANELS)
        axes.set_title(name)
        axes.margins(x=0.02)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    for axes in grid[::columns]:
        axes.set_ylabel("test accuracy, %")
    for axes in grid[max(0, len(panels) - columns) : len(panels)]:
        axes.set_xlabel("round")
        axes.tick_params(labelbottom=True)
    handles, labels = grid[0].get_legend_handles_labels()
    if len(labels) > 1:
        body.legend(handles, labels, loc="outside upper right", ncols=len(labels))
    return body


def _list_branches(test: list[MetricRow]) -> list[str]:
    return list(dict.fromkeys(row["branch"] for row in test))[::-1]  # fused is drawn last, above the others


def _draw_client(axes: Axes, test: list[MetricRow], name: str) -> None:
    """A line for each branch of one client."""
    for branch in _list_branches(test):
        rows = [row for row in test if row["client"] == name and row["branch"] == branch]
        _draw_branch_line(axes, branch, [row["round"] for row in rows], [100 * row["accuracy"] for row in rows])


def _draw_client_mean(axes: Axes, test: list[MetricRow], band: bool) -> None:
    """The mean over clients of each branch; of the prediction a band from the 10th to the 90th percentile too."""
    for branch in _list_branches(test):
        rounds = sorted({row["round"] for row in test})
        values = [
            [100 * row["accuracy"] for row in test if row["round"] == round and row["branch"] == branch]
            for round in rounds
        ]
        if band and branch == "fused":
            low, high = (np.array([np.percentile(v, q) for v in values]) for q in (10, 90))
            axes.fill_between(rounds, low, high, color=MUTED_COLOUR, alpha=0.15, linewidth=0)
        _draw_branch_line(axes, branch, rounds, [float(np.mean(v)) for v in values])


def _draw_branch_line(axes: Axes, branch: str, rounds: list[int], values: list[float]) -> None:
    look = BRANCH_STYLES.get(branch)
    colour = look.colour if look else BRANCH_COLOURS.get(branch, TEXT_COLOUR)
    marker = "o" if len(rounds) <= 30 else ""
    heavy = 2.3 if branch == "fused" else 1.4
    axes.plot(rounds, values, color=colour, marker=marker, markersize=3.2, linewidth=heavy, label=branch)
