"""Draw how steady WebCam's accuracy is in our records of Office, beside what the authors' curves read.

``python docs/tools/plot_webcam.py`` writes docs/figures/office-webcam.png.
"""

from __future__ import annotations

from pathlib import Path

from fedtrain.report.plot_style import METHOD_STYLES, create_figure
from fedtrain.report.png import replace_png
from fedtrain.report.records import RunRecord, read_record
from fedtrain.reproduction.paper_numbers import load_paper_numbers
from theory.report.plot_style import use_plot_style

DOCS = Path(__file__).parents[1]
METHODS = ("fedavg", "fedper", "fedrod", "moon")
TITLE = "WebCam from round to round, %: our validation accuracy (lines), the authors' test accuracy (diamonds)"


def load_runs() -> dict[str, RunRecord]:
    """The records of Office, by method."""
    folder = DOCS / "results" / "records" / "office"
    return {run.settings["method"]["name"]: run for run in map(read_record, sorted(folder.iterdir()))}


def draw(path: Path) -> None:
    """A panel for each method: our validation accuracy in every round, the authors' test accuracy in three."""
    runs, authors = load_runs(), load_paper_numbers("F2")
    with use_plot_style():
        body = create_figure(TITLE, narrow=False, height=3.2)
        for axes, name in zip(body.subplots(1, len(METHODS), sharey=True), METHODS, strict=True):
            run, look = runs[name], METHOD_STYLES[name]
            curve = run.curves["val", "webcam", "fused"]
            axes.plot(list(curve), [100 * value for value in curve.values()], color=look.colour, linewidth=1.3)
            read = {int(k): n.value for (panel, row, k), n in authors.items() if (panel, row) == ("WebCam", run.title)}
            rounds = sorted(k for k in read if k <= run.rounds)
            axes.plot(rounds, [read[k] for k in rounds], "D", color="black", markersize=5, clip_on=False, zorder=5)
            axes.set_title(run.title + ("" if run.settings["model"]["norm"] else ", no dense batch norm"), fontsize=10)
            axes.set(xlim=(0, run.rounds), ylim=(0, 100), xlabel="round")
        replace_png(body.figure, path)


if __name__ == "__main__":
    draw(DOCS / "figures" / "office-webcam.png")
