"""The report as one self-contained page: no network access, no script, no other file."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from theory.report import html_format
from theory.report.figure_messages import build_messages
from theory.results import VerificationResults

VERDICT_KINDS = {
    "holds": ("✓", "holds", "as stated, on everything that was measured"),
    "under": ("◐", "holds under a condition", "not as printed, but if read as stated beside it"),
    "fails": ("✗", "fails", "not under any reading that was tried"),
    "undecided": ("?", "undecided", "what could be computed is too rough to tell"),
}
"""Kind of verdict -> its symbol, its name, what it means."""
PROOF_BADGES = {"certified": ("holds", "✓"), "refuted": ("fails", "✗"), "not certifiable": ("under", "?")}
DRAWS_CAPTION = (
    "The theory wants the circle (FedBN) lowest, the square (Fed-CO2) above it and the triangle (SingleSet) highest on "
    "every stalk."
)
CAPTIONS = {
    "spectra": "Eigenvalues of the three kernels V at t = 0, greatest first, on a logarithmic axis. Look at the right "
    "end: the least eigenvalue sets the guaranteed rate, and the theory puts Fed-CO2's between the others'.",
    "residuals": "Measured residuals of real networks under full-batch descent, for four readings of Theorem 4.3. "
    "Where the square lies below the circle, Fed-CO2 is ahead. Dashed: what C2 guarantees, to be compared with the "
    "curve of the same colour.",
    "width": "How far the kernel of a finite network is from its exact limit. On these axes a power law is a straight "
    "line; the claim is a slope of −1/2.",
    "clients": "The same networks on more and more clients. With one client the three kernels are one; "
    "look how far FedBN's λ_min falls behind the others' as clients join.",
    "tracking": "The least eigenvalue of Λ(t) while both networks train, at three widths. It should stay above the "
    "dashed line of its colour, and move less the wider the network is.",
    "mixture": "Two criteria for the share w of the online network in the kernel w V_on + (1−w) V_off. Left: λ_min, "
    "which is largest without any sharing (O5); dashed: with the shared part divided by N, as averaging does, where w "
    "also changes the step. Right: the error on samples that are left out, relative to predicting 0; the dot is the "
    "best w, which the left side cannot see.",
}
HALF_WIDTH_FIGURES = ("width", "clients")
"""Figures shown side by side where the page is wide enough."""
SETTING_LABELS = {
    "clients": "Clients N", "samples": "Samples per client M", "dim": "Input dimension d", "width": "Hidden width m",
    "alpha": "Scale α", "covariance": "Covariance of the clients", "heterogeneity": "Heterogeneity",
    "seed": "Seed", "draws": "Draws checked", "steps": "Steps of descent", "projection": "Projection",
    "dtype": "Precision", "device": "Device", "ridge": "Ridge",
}  # fmt: skip
SYNTHETIC_ONLY_KEYS, USER_DATA_ONLY_KEYS = {"covariance", "heterogeneity"}, {"ridge"}


@dataclass(frozen=True)
class FigureView:
    """A figure as a data URL, with its texts, and its size so that the page does not jump while it loads."""

    name: str
    source: str
    message: str
    caption: str
    half: bool
    width: int
    height: int


def write_page(results: VerificationResults, figures: dict[str, Path], path: Path) -> None:
    """Write ``report.html``: everything that was found, with the figures inside."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "number": html_format.format_number,
        "scalar": html_format.format_scalar,
        "sequence": html_format.format_sequence,
        "bound": html_format.format_bound,
        "maths": html_format.format_maths,
        "name": html_format.format_name,
        "grid": html_format.build_grid,
    }
    template = environment.from_string(files("theory.report").joinpath("page.html.j2").read_text(encoding="utf-8"))
    page = template.render(
        style=load_stylesheet(),
        results=results,
        setting=build_setting_rows(results),
        drawn=any(finding.draws for finding in results.findings),
        figures=[build_figure_view(results, name, file) for name, file in figures.items()],
        made=build_provenance_rows(results),
        kinds=VERDICT_KINDS,
        proofs=PROOF_BADGES,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")


def load_stylesheet() -> Markup:
    """The style sheet shared by all HTML pages."""
    return Markup(files("theory.report").joinpath("page.css").read_text(encoding="utf-8"))


def build_setting_rows(results: VerificationResults) -> list[tuple[str, Any]]:
    """The settings of the run with their labels; those that do not apply are left out."""
    rows: list[tuple[str, Any]] = [("Inputs", results.inputs)]
    if results.data:
        rows.append(("File", results.data.source))
    found = {"clients": results.clients, "samples": _format_samples(results.sizes), "dim": results.dim}
    unused = SYNTHETIC_ONLY_KEYS if results.data else USER_DATA_ONLY_KEYS
    for key, label in SETTING_LABELS.items():
        if key not in unused:
            rows.append((label, found[key] if key in found else getattr(results.setting, key)))
    return rows


def _format_samples(sizes: list[int]) -> str | list[int]:
    return f"{sizes[0]} each" if len(sizes) > 1 and len(set(sizes)) == 1 else sizes


def build_figure_view(results: VerificationResults, name: str, file: Path) -> FigureView:
    """Read a figure for the page."""
    data = file.read_bytes()
    return FigureView(
        name=name,
        source="data:image/png;base64," + base64.b64encode(data).decode("ascii"),
        message=build_messages(results.curves, results.mixture).get(name, name),
        caption=describe_draws(results) if name == "draws" else CAPTIONS.get(name, ""),
        half=name in HALF_WIDTH_FIGURES,
        width=int.from_bytes(data[16:20], "big"),
        height=int.from_bytes(data[20:24], "big"),
    )


def describe_draws(results: VerificationResults) -> str:
    """The caption of the figure of draws, which shows more draws than the claims were checked on."""
    shown, checked = len(results.curves.draws), results.setting.draws
    what = "networks on your data" if results.data else "clients and networks"
    if shown <= checked:
        return f"One stalk for each of the {shown} draws of {what} that the claims were checked on. {DRAWS_CAPTION}"
    seeds = f"seeds {results.curves.draws[0].seed} to {results.curves.draws[-1].seed}"
    first = "the first draw" if checked == 1 else f"the first {checked} draws"
    return (
        f"One stalk for each of {shown} draws of {what} ({seeds}). The claims were checked on {first}; "
        f"the other {shown - checked} were drawn for this figure alone. {DRAWS_CAPTION}"
    )


def build_provenance_rows(results: VerificationResults) -> list[tuple[str, Any]]:
    """The command if it is known, the time, and the versions."""
    command = [("Command", results.command)] if results.command else []
    time_taken = [("Time taken", f"{results.seconds:.4g} s")] if results.seconds else []
    return [*command, *time_taken, *results.versions.items()]
