"""A run seen through its kernels, as one self-contained page and as a folder."""

from __future__ import annotations

import base64
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from theory.networks.network_study import ORDERINGS, ModelFindings, NetworkStudy
from theory.report import html_format
from theory.report.folder import stage_output, write_json
from theory.report.html_page import VERDICT_KINDS, load_stylesheet
from theory.report.network_figures import PANELS, SHARING, draw_network_figures
from theory.report.sharing_figure import TITLE

CAPTIONS = {
    "eigenvalues": "Of the kernel over all clients' samples and outputs. The least eigenvalue bounds the rate at which "
    "training data are fitted; a value that is rounding is not shown.",
    "labels": "Effective rank: the exponential of the entropy of the eigenvalues. Alignment: the share of the kernel "
    "that is the labels' own, 1 at most.",
    "lazy": "First: |K - K of the first checkpoint| / |K of the first checkpoint|. Then how far the kernel is off on "
    "the outputs after a round, relative to how far they really move. A tiny step must be below the dashed line, 1 %. "
    "Own steps: the run's own step size and number of steps; 0 would be lazy training, and the dashed line, 1, is what "
    "predicting no change would give.",
    SHARING: "w is the share of the online model, 1/2 the paper's. Left: λ_min over w, dashed as averaging makes it. "
    "Right: the best w by λ_min, by the error of kernel regression on samples left out, and by the cross entropy of "
    "the fused outputs on data that nobody trained on; faint marks are clients, lines their mean.",
}
CELL_DIGITS = 4
SPECTRUM_LABELS = {
    "lambda_min": "λ_min", "lambda_max": "λ_max", "condition": "condition number",
    "effective_rank": "effective rank", "alignment": "alignment with labels",
}  # fmt: skip


def write_network_report(folder: Path, study: NetworkStudy) -> None:
    """Write report.html, figures and report.json into a folder that `reserve_folder` has made, all or nothing."""
    with stage_output(folder) as stage:
        figures = draw_network_figures(study, stage / "figures")
        (stage / "report.html").write_text(render_page(study, figures), encoding="utf-8")
        write_json(stage / "report.json", study.to_dict())


def render_page(study: NetworkStudy, figures: dict[str, Path]) -> str:
    """The page, with the figures inside."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"maths": html_format.format_maths, "scalar": _format_cell}
    template = environment.from_string(files("theory.report").joinpath("networks.html.j2").read_text(encoding="utf-8"))
    return template.render(
        style=load_stylesheet(),
        study=study,
        about=list_about(study),
        orderings=ORDERINGS,
        kinds=VERDICT_KINDS,
        predicts=list_rounds(study),
        real=any(one.real_round for _, _, one in list_rounds(study)),
        shares=[one for one in study.checkpoints if one.sharing is not None],
        spectrum=SPECTRUM_LABELS,
        figures=[
            (
                name,
                TITLE if name == SHARING else PANELS[name][0],
                CAPTIONS[name],
                base64.b64encode(path.read_bytes()).decode("ascii"),
            )
            for name, path in figures.items()
        ],
    )


def list_rounds(study: NetworkStudy) -> list[tuple[int, str, ModelFindings]]:
    """The models whose next round was predicted, with the round they are at."""
    rows = [(one.round, name, model) for one in study.checkpoints for name, model in one.models.items()]
    return [row for row in rows if row[2].tiny_round or row[2].real_round]


def list_about(study: NetworkStudy) -> list[tuple[str, Any]]:
    """The setting with its labels."""
    labels = {"run": "Run", "method_title": "Method", "title": "Data", "rounds": "Rounds of the run"}
    rows = [(label, study.about[key]) for key, label in labels.items() if key in study.about]
    sizes = study.samples
    each = f"{sizes[0]} each" if len(set(sizes)) == 1 else ", ".join(map(str, sizes))
    return [
        *rows,
        ("Clients", len(study.clients)),
        ("Samples", each),
        ("Outputs", study.outputs),
        ("Precision", study.dtype),
    ]


def _format_cell(value: Any) -> Any:
    """Four digits; the file report.json has all."""
    if isinstance(value, float):
        return html_format.format_number(value, CELL_DIGITS, fixed=False)
    return "-" if value is None else html_format.format_scalar(value)
