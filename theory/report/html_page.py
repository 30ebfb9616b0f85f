"""The report as one self-contained page: no network access, no script, no other file."""

from __future__ import annotations

import base64
import shlex
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from theory.claims.base import parse_conditions
from theory.report import html_format
from theory.report.figure_messages import build_messages

Report = dict[str, Any]
VERDICT_KINDS = {
    "holds": ("✓", "holds", "as stated, on everything that was measured"),
    "under": ("◐", "holds under a condition", "not as printed, but if read as stated beside it"),
    "fails": ("✗", "fails", "not under any reading that was tried"),
    "undecided": ("?", "undecided", "what could be computed is too rough to tell"),
}
"""Kind of verdict -> its symbol, its name, what it means."""
PROOF_BADGES = {"certified": ("holds", "✓"), "refuted": ("fails", "✗"), "not certifiable": ("under", "?")}
CAPTIONS = {
    "spectra": "Eigenvalues of the three kernels V at t = 0, greatest first, on a logarithmic axis. Look at the right "
    "end: the least eigenvalue sets the guaranteed rate, and the theory puts Fed-CO2's between the others'.",
    "draws": "One stalk for each draw of clients and networks. The theory wants the circle (FedBN) lowest, "
    "the square (Fed-CO2) above it and the triangle (SingleSet) highest on every stalk.",
    "residuals": "Measured residuals of real networks under full-batch descent, for four readings of Theorem 4.4. "
    "Where the square lies below the circle, Fed-CO2 is ahead. Dashed: what C2 guarantees, to be compared with the "
    "curve of the same colour.",
    "width": "How far the kernel of a finite network is from its exact limit. On these axes a power law is a straight "
    "line; the claim is a slope of −1/2.",
    "clients": "The same networks on more and more clients. With one client the three kernels are one; "
    "look how far FedBN's λ_min falls behind the others' as clients join.",
    "tracking": "The least eigenvalue of Λ(t) while both networks train, at three widths. It should stay above the "
    "dashed line of its colour, and move less the wider the network is.",
}
HALF_WIDTH_FIGURES = ("width", "clients")
"""Figures shown side by side where the page is wide enough."""
SETTING_LABELS = {
    "clients": "Clients N", "samples": "Samples per client M", "dim": "Input dimension d", "width": "Hidden width m",
    "alpha": "Scale α", "covariance": "Covariance of the clients", "heterogeneity": "Heterogeneity",
    "seed": "Seed", "draws": "Draws", "steps": "Steps of descent", "projection": "Projection", "dtype": "Precision",
    "device": "Device", "ridge": "Ridge",
}  # fmt: skip
SYNTHETIC_ONLY_KEYS, USER_DATA_ONLY_KEYS = {"covariance", "heterogeneity"}, {"ridge"}


def write_page(report: Report, figures: dict[str, Path], path: Path) -> None:
    """Write ``report.html``: everything the report holds, with the figures inside."""
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
    empty: Report = {"summary": [], "setting": {}, "claims": [], "certificates": {}, "eigenvalues": {}}
    report = empty | report
    page = template.render(
        style=load_stylesheet(),
        report=report,
        setting=build_setting_rows(report["setting"]),
        broken=report["setting"].get("assumptions_broken", []),
        claims=[build_claim_view(row) for row in report["claims"]],
        drawn=any("draws" in row for row in report["claims"]),
        figures=[build_figure_view(report, name, file) for name, file in figures.items()],
        made=build_provenance_rows(report),
        kinds=VERDICT_KINDS,
        proofs=PROOF_BADGES,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")


def load_stylesheet() -> Markup:
    """The style sheet shared by all HTML pages."""
    return Markup(files("theory.report").joinpath("page.css").read_text(encoding="utf-8"))


def build_setting_rows(setting: Report) -> list[tuple[str, Any]]:
    """The settings of the run with their labels; those that do not apply are left out."""
    has_user_data = bool(setting.get("data"))
    rows: list[tuple[str, Any]] = [("Inputs", setting.get("inputs", "not said"))]
    if has_user_data:
        rows.append(("File", str(setting["data"])))
    for key, label in SETTING_LABELS.items():
        if key in setting and key not in (SYNTHETIC_ONLY_KEYS if has_user_data else USER_DATA_ONLY_KEYS):
            rows.append((label, _format_samples(setting[key]) if key == "samples" else setting[key]))
    return rows


def _format_samples(sizes: Any) -> Any:
    if isinstance(sizes, list) and len(sizes) > 1 and len(set(sizes)) == 1:
        return f"{sizes[0]} each"
    return sizes


def build_claim_view(row: Report) -> Report:
    """A claim with its verdict split into kind and conditions."""
    verdict = str(row["verdict"])
    conditions = parse_conditions(verdict)
    kind = "under" if conditions else verdict if verdict in VERDICT_KINDS else "fails"
    return {"draws": None, "evidence": {}} | row | {"kind": kind, "conditions": conditions}


def build_figure_view(report: Report, name: str, file: Path) -> Report:
    """A figure as a data URL, with its texts, and its size so that the page does not jump while it loads."""
    data = file.read_bytes()
    message = build_messages(report).get(name, name)
    return {
        "name": name,
        "source": "data:image/png;base64," + base64.b64encode(data).decode("ascii"),
        "message": message,
        "caption": CAPTIONS.get(name, ""),
        "half": name in HALF_WIDTH_FIGURES,
        "width": int.from_bytes(data[16:20], "big"),
        "height": int.from_bytes(data[20:24], "big"),
    }


def build_provenance_rows(report: Report) -> list[tuple[str, Any]]:
    """The command if it is known, the time, and the versions."""
    command = report.get("command")
    rows: list[tuple[str, Any]] = []
    if command:
        rows.append(("Command", shlex.join(map(str, command)) if isinstance(command, list | tuple) else str(command)))
    if "seconds" in report:
        rows.append(("Time taken", f"{report['seconds']:.4g} s"))
    return rows + list(report["setting"].get("versions", {}).items())
