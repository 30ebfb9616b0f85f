"""Accuracy against bytes, as a picture and as a table, from the records of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from fedtrain.runs.folder import SUMMARY_FILE, RunFolder
from few_bytes_lib.points import POINTS, REFERENCE

MEGABYTE = 1e6
GOAL_POINTS, GOAL_SHARE = 0.5, 20
"""Within half a point of the reference, at a twentieth of its bytes."""


@dataclass(frozen=True)
class Result:
    """What a run came to."""

    title: str
    up: float
    down: float
    """Megabytes that all clients sent and received, over all rounds."""
    accuracy: float
    """In %: the mean over clients after the last round."""
    seconds: float
    last: bool = False
    """Whether the last layer alone was published."""

    @property
    def total(self) -> float:
        """Megabytes both ways."""
        return self.up + self.down


def load_results(folder: Path) -> dict[str, Result]:
    """The runs of a folder that are points of the curve, by their names."""
    return {name: load_result(folder / name, name) for name in POINTS if (folder / name / SUMMARY_FILE).exists()}


def load_result(run: Path, name: str) -> Result:
    """What the run of a point came to."""
    summary, point = RunFolder(run).read_json(SUMMARY_FILE), POINTS[name]
    up, down = (summary["bytes"][way]["total"] / MEGABYTE for way in ("up", "down"))
    accuracy = 100 * summary["rules"]["last"]["mean"]["fused"]
    return Result(point.title, up, down, accuracy, summary["seconds"], point.last)


def format_table(results: Mapping[str, Result]) -> str:
    """The rows of the page, the dearest first."""
    whole = results[REFERENCE]
    lines = [
        "| run | MB up | MB down | of the reference | accuracy, % | beside the reference |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for one in sort_by_bytes(results):
        share = "1" if one is whole else f"1/{whole.total / one.total:.1f}"
        beside = "" if one is whole else f"{one.accuracy - whole.accuracy:+.1f}"
        lines.append(f"| {one.title} | {one.up:.1f} | {one.down:.1f} | {share} | {one.accuracy:.1f} | {beside} |")
    return "\n".join(lines)


def sort_by_bytes(results: Mapping[str, Result]) -> Sequence[Result]:
    """The dearest first."""
    return sorted(results.values(), key=lambda one: -one.total)


def draw_curve(results: Mapping[str, Result], path: Path) -> None:
    """One point for each run, numbered as in the legend; the corner that is the goal is shaded."""
    whole, runs = results[REFERENCE], sort_by_bytes(results)
    figure = Figure(figsize=(9.2, 4.6), layout="constrained")
    axes = figure.subplots()
    cheapest, top = min(one.total for one in runs), max(one.accuracy for one in runs) + 2
    goal = whole.accuracy - GOAL_POINTS
    axes.fill_betweenx([goal, top], cheapest / 2, whole.total / GOAL_SHARE, color="#E3F0E3", zorder=0)
    axes.annotate("the goal", (cheapest / 1.5, goal), (4, 4), textcoords="offset points", color="#2E7D32", fontsize=9)
    axes.axhline(whole.accuracy, color="#7a7a7a", linestyle="--", linewidth=1)
    for number, one in enumerate(runs, 1):
        colour = "#000000" if one is whole else "#D55E00" if one.last else "#0072B2"
        axes.plot(one.total, one.accuracy, "o", color=colour, markersize=15, label=f"{number}  {one.title}")
        axes.annotate(str(number), (one.total, one.accuracy), color="white", ha="center", va="center", fontsize=9)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("MB that all clients sent and received in 20 rounds")
    axes.set_ylabel("mean test accuracy, %")
    low = min(one.accuracy for one in runs)
    axes.set_ylim(low - 2, top)
    axes.set_xlim(cheapest / 1.6, whole.total * 1.6)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), markerscale=0.5, frameon=False, fontsize=9)
    figure.savefig(path, dpi=110)
