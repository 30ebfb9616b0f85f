"""The figures and the page of a report, drawn and opened for real."""

import copy
import math
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from theory import build_user_data
from theory.certify import Enclosure, Ordering
from theory.claims import CLAIMS, select_claims
from theory.collect_results import collect_results
from theory.config import TheoryConfig
from theory.report.figure_messages import build_messages
from theory.report.figures import draw_figures, plot_figures
from theory.report.html_format import (
    build_grid,
    format_maths,
    format_name,
    format_number,
    format_scalar,
    format_sequence,
)
from theory.report.html_page import write_page
from theory.report.sweep_figure import draw_sweep
from theory.results import ClientsPoint, Curves, DrawPoint, DrawStatistics, EigenvalueRange
from theory.results import VerificationResults as Report
from theory.sweep_table import SweepRow, SweepTable
from theory.user_data import UserData

NAMES = ["spectra", "draws", "residuals", "width", "clients", "tracking", "mixture"]
HOSTILE = '</td><script>alert("1")</script><img src=http://example.invalid/x onerror=alert(1)>'


@pytest.fixture(scope="module")
def tiny() -> Report:
    setting = TheoryConfig(clients=2, samples=4, dim=4, width=64, steps=5)
    return collect_results(setting, select_claims(None), certify=True)


@pytest.fixture
def report(tiny: Report) -> Report:
    return copy.deepcopy(tiny)


@pytest.fixture(scope="module")
def figures(tiny: Report, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return draw_figures(tiny, tmp_path_factory.mktemp("figures"))


def change_curves(report: Report, **changes: Any) -> Report:
    return replace(report, curves=replace(report.curves, **changes))


def change_claim(report: Report, number: int, **changes: Any) -> Report:
    findings = list(report.findings)
    findings[number] = replace(findings[number], **changes)
    return replace(report, findings=findings)


def draw_own_data(sizes: list[int], source: str) -> UserData:
    rng, total = np.random.default_rng(0), sum(sizes)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    return build_user_data(rng.normal(size=(total, 3)), rng.normal(size=total), owner, source=source)


def render_page(report: Report, folder: Path, figures: dict[str, Path] | None = None) -> str:
    write_page(report, figures or {}, folder / "report.html")
    return (folder / "report.html").read_text(encoding="utf-8")


def assert_drawn(file: Path) -> None:
    assert file.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    pixels = imread(file)
    assert min(pixels.shape[:2]) > 400
    assert np.ptp(pixels[..., :3]) > 0.5
    assert 0.001 < (pixels[..., :3].min(-1) < 0.9).mean() < 0.6, "blank, or all ink"


class PageParser(HTMLParser):
    """Tags, their attributes and all text; complains about what is not closed in order."""

    VOID = frozenset({"meta", "link", "img", "br"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: dict[str, list[str]] = {}
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.setdefault(self.open[-1] if self.open else "", []).append(data)


# --- figures


def test_every_figure_is_drawn(figures: dict[str, Path]) -> None:
    assert list(figures) == NAMES
    for figure in figures.values():
        assert_drawn(figure)


def test_figures_are_the_same_each_time(report: Report, figures: dict[str, Path], tmp_path: Path) -> None:
    again = draw_figures(report, tmp_path)
    assert all(again[figure].read_bytes() == figures[figure].read_bytes() for figure in NAMES)


def test_drawing_leaves_the_global_style_alone(report: Report, tmp_path: Path) -> None:
    import matplotlib

    with matplotlib.rc_context({"axes.titlesize": 31, "axes.grid": False}):
        before = dict(matplotlib.rcParams)
        draw_figures(replace(report, curves=Curves(clients=report.curves.clients)), tmp_path)
        assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("missing", ["residuals", "bounds", "widths", "tracks", "spectra", "draws", "clients"])
def test_a_figure_without_its_numbers_is_left_out(report: Report, missing: str) -> None:
    empty = getattr(Curves(), missing)
    lost = {"widths": "width", "tracks": "tracking"}.get(missing, missing)
    assert list(build_messages(replace(report.curves, **{missing: empty}), report.mixture)) == [
        figure for figure in NAMES if figure != lost
    ]


def test_few_claims_give_few_figures(report: Report, tmp_path: Path) -> None:
    few = replace(change_curves(report, residuals={}, bounds={}, widths=None, tracks=None), mixture=None)
    assert list(draw_figures(few, tmp_path)) == ["spectra", "draws", "clients"]


def test_residuals_need_neither_bounds_nor_d2(report: Report, tmp_path: Path) -> None:
    curves = {name: values for name, values in report.curves.residuals.items() if name.startswith("separate: ")}
    assert curves
    drawn = draw_figures(replace(report, curves=Curves(residuals=curves), mixture=None), tmp_path)
    assert list(drawn) == ["residuals"]
    assert_drawn(drawn["residuals"])


def test_divergence_and_singular_kernels_are_drawn(report: Report, tmp_path: Path) -> None:
    curves = report.curves
    assert curves.tracks is not None
    assert curves.gains is not None
    curves.residuals["joint: fused"] = [31.0, 1e6, 1e200, math.inf, math.nan, math.nan]
    width = next(iter(curves.tracks["lambda_min"]))
    curves.tracks["lambda_min"][width]["online"] = [math.nan] * len(curves.tracks["lambda_min"][width]["t"])
    curves.tracks["least_ratio"] = {"256": math.nan, "512": 0.9, "1024": 1.5}
    curves.tracks["mu"]["online"] = -1e-18
    curves.spectra["V"] = curves.spectra["V_off"] = [2.0**-k for k in range(40)]
    curves.spectra["V_on"] = [2.0**-k for k in range(37)] + [1e-18, 0.0, -1e-17]
    curves.gains["log10_gain"] |= {"joint": -math.inf, "joint, own step": 1.0, "separate": math.nan, "federated": 0.0}
    report = change_curves(
        report,
        draws=[DrawPoint(seed=7, V_on=-1e-17, V_off=0.2, V=0.1, room=1e-10)],
        clients=[ClientsPoint(clients=1, V_on=0.0, V_off=math.nan, V=math.inf, room=1e-10)],
        widths={"slope": 0.0, "slope_error": 0.0, "relative_error": {"8": 0.4}},
    )
    for figure in draw_figures(report, tmp_path).values():
        assert imread(figure).std() > 0.01
    messages = build_messages(report.curves)
    assert messages["draws"] == "λ_min rises from FedBN to Fed-CO2 in 1 of 1 draws"
    assert messages["clients"] == "With 1 client FedBN's λ_min is not above 0"
    assert messages["tracking"] == "λ_min(Λ(t)) sinks below its bound at m = 256, 512, stays above it at m = 1024"
    assert messages["residuals"] == (
        "After 5 steps Fed-CO2 is ahead of FedBN in 1 of 4 readings; not in: joint / separate / federated"
    )


def test_messages_come_from_the_numbers(report: Report) -> None:
    row = DrawPoint(seed=0, V_on=0.2, V_off=0.4, V=0.3, room=1e-9)
    assert report.curves.gains is not None
    report.curves.gains["compared_at_step"]["separate"] = 3
    spectra = {"V_on": [8.0, 2.0], "V_off": [4.0, 3.0], "V": [8.0, 1.0]}
    report = change_curves(report, draws=[row, replace(row, V=0.1)], spectra=spectra)
    messages = build_messages(report.curves)
    assert messages["draws"] == "λ_min rises from FedBN to Fed-CO2 in 1 of 2 draws, by a factor 1.00 in the median"
    assert messages["spectra"] == (
        "FedBN to Fed-CO2: the least eigenvalue falls from 2.00 to 1.00, the greatest stays at 8.00"
    )
    assert messages["residuals"].startswith("Within 5 steps Fed-CO2 is ahead")


def test_two_kernels_that_are_zero_have_no_slope(report: Report, tmp_path: Path) -> None:
    nothing: Any = {"slope": None, "slope_error": None, "relative_error": {"8": 1e-16, "16": 2e-16}}
    report = replace(report, curves=Curves(widths=nothing))
    message = "V(0) and V^inf are both zero: there is no distance to shrink"
    assert build_messages(report.curves) == {"width": message}
    assert_drawn(draw_figures(report, tmp_path)["width"])


def test_a_bound_of_zero_has_no_multiples(report: Report) -> None:
    tracks = report.curves.tracks
    assert tracks is not None
    tracks["least_ratio"] = dict.fromkeys(tracks["least_ratio"], math.inf)
    message = "During 5 steps λ_min(Λ(t)) never sinks below its bound, which is 0"
    assert build_messages(report.curves)["tracking"] == message


def test_the_residuals_tell_of_the_draw_that_they_show() -> None:
    """D2's finding may be another draw's."""
    setting = TheoryConfig(clients=2, samples=4, dim=4, width=64, steps=5, draws=3)
    results = collect_results(setting, select_claims("D2"))
    first = collect_results(replace(setting, draws=1), select_claims("D2"))
    assert results["D2"].draws is not None
    assert results["D2"].draws.shown != 1
    assert results.curves.gains == first["D2"].evidence != results["D2"].evidence
    assert build_messages(results.curves)["residuals"] == build_messages(first.curves)["residuals"]


def test_the_figure_of_draws_says_which_were_checked(report: Report, figures: dict[str, Path], tmp_path: Path) -> None:
    """It draws twenty where the setting has one."""
    page = render_page(report, tmp_path, figures)
    assert "One stalk for each of 20 draws of clients and networks (seeds 0 to 19)." in page
    assert "The claims were checked on the first draw; the other 19 were drawn for this figure alone." in page
    assert "<dt>Draws checked</dt><dd>1</dd>" in page
    label = plot_figures(report)["draws"].axes[0].get_xlabel()
    assert label.endswith("claims were checked on seed 0 only")
    several = replace(report, setting=replace(report.setting, draws=3))
    assert "checked on the first 3 draws; the other 17 were drawn" in render_page(several, tmp_path, figures)
    assert plot_figures(several)["draws"].axes[0].get_xlabel().endswith("claims were checked on seeds 0 to 2")
    every = replace(report, setting=replace(report.setting, draws=20))
    assert "each of the 20 draws of clients and networks that the claims were checked on" in (
        render_page(every, tmp_path, figures)
    )


def build_sweep_row(held: int = 4, **chosen: float) -> SweepRow:
    return SweepRow(chosen, 0.1, 0.3, 0.1 + 0.1 * chosen["alpha"], draws=4, held={"O1": held})


def test_sweeps_of_one_and_two_settings_are_drawn(tmp_path: Path) -> None:
    claims = select_claims("O1")
    one = [build_sweep_row(3 if a == 0.5 else 4, alpha=a) for a in (0.1, 0.5, 1.0)]
    assert one[1].share_held == 0.75
    assert_drawn(draw_sweep(SweepTable(["alpha"], claims, one), tmp_path / "one"))
    two = [build_sweep_row(alpha=a, clients=n) for a in (0.1, 0.5, 1.0) for n in (1, 2, 5, 10, 20, 50) if a * n < 30]
    two[0] = replace(two[0], V_on=0.0, held={"O1": 2})
    file = draw_sweep(SweepTable(["alpha", "clients"], claims, [*two, two[-1]]), tmp_path / "two")
    assert file.name == "sweep.png"
    assert imread(file).std() > 0.05


def test_a_sweep_of_one_singular_setting_is_drawn(tmp_path: Path) -> None:
    row = SweepRow({"alpha": 0.5, "clients": 1}, 0.0, 0.0, 0.0, draws=1, held={"O1": 0})
    for names in (["alpha"], ["alpha", "clients"]):
        assert draw_sweep(SweepTable(names, select_claims("O1"), [row]), tmp_path).stat().st_size > 10_000


# --- numbers and words


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (4096, "4096"),
        (0.0, "0"),
        (131.0, "131.00"),
        (-0.29853256, "−0.29853"),
        (99999.4, "99999"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
        (math.nan, "not a number"),
        (8.83894e-08, "8.8389\u00a0×\u00a010<sup>−8</sup>"),
        (-1.5e20, "−1.5000\u00a0×\u00a010<sup>20</sup>"),
    ],
)
def test_numbers(value: float, shown: str) -> None:
    assert format_number(value) == shown


def test_scalars_and_lists() -> None:
    assert [format_scalar(v) for v in (None, True, False, 0.5, "<b>")] == ["not set", "yes", "no", "0.5", "&lt;b&gt;"]
    assert format_sequence([]) == "none"
    assert format_sequence([1, 0.25]) == "1, 0.25"
    assert format_sequence(list(range(9))) == "0, 1, 2, …, 8 <span class='count'>(9 values)</span>"


def test_formulas_are_set_and_all_else_is_escaped() -> None:
    assert format_maths("λ_min(V_off) ≥ 1e-09") == "λ<sub>min</sub>(V<sub>off</sub>) ≥ 1\u00a0×\u00a010<sup>−9</sup>"
    assert format_maths("V^inf, m^(-1/2)") == "V<sup>∞</sup>, m<sup>−1/2</sup>"
    assert format_maths("|v|_{S_i}") == "|v|<sub>S<sub>i</sub></sub>"
    assert format_maths("<i>_on^(<b>)") == "&lt;i&gt;_on^(&lt;b&gt;)"
    assert format_name("V_on_inf") == "V<sub>on</sub><sup>∞</sup>"
    assert format_name("Lambda_off") == "Λ<sub>off</sub>"
    assert format_name("lambda_min_with_two_samples") == "λ<sub>min</sub> with two samples"
    assert format_name("relative_error") == "relative error"


def test_like_dicts_make_a_grid() -> None:
    table = build_grid({"a": {"x": 1, "y": 2}, "b": {"x": 3, "y": 4}})
    assert table == {"columns": ["x", "y"], "rows": [("a", [1, 2]), ("b", [3, 4])]}
    assert build_grid([{"x": 1}]) == {"columns": ["x"], "rows": [("0", [1])]}
    for other in ({}, [], [1], {"a": 1}, {"a": {"x": 1}, "b": {"y": 1}}, {"a": {"x": {"z": 1}}}, "text", None):
        assert build_grid(other) is None


# --- the page


def test_the_page_has_every_claim_and_verdict(report: Report, figures: dict[str, Path], tmp_path: Path) -> None:
    page = render_page(report, tmp_path, figures)
    parsed = PageParser(page)
    ids = {attributes.get("id") for _, attributes in parsed.tags}
    assert {f"claim-{claim}" for claim in CLAIMS} <= ids
    assert report.formula_certificates is not None
    proofs = [*(report.certificates or {}), *report.formula_certificates.orderings]
    assert len(re.findall(r'class="badge (?:holds|under|fails)"', page)) == len(CLAIMS) + len(proofs)
    for row in report.findings:
        rest = page[page.index(f'id="claim-{row.id}"') :]
        verdict = row.verdict
        kind = "under" if verdict.startswith("holds under") else verdict
        assert rest.index(f'class="badge {kind}"') < rest.index("</tr>")
        for condition in verdict.removeprefix("holds under: ").split("; ") if kind == "under" else []:
            assert format_maths(condition) in rest[: rest.index("</tr>")]
        assert format_maths(row.statement) in page
        assert format_maths(row.words) in page
    for sentence in report.summary:
        assert format_maths(sentence) in page
    assert "synthetic Gaussian clients" in page
    assert report.versions["torch"] in page
    assert f"<dt>fedco2</dt><dd>{report.versions['fedco2']}</dd>" in page


def test_every_image_is_inside_and_described(report: Report, figures: dict[str, Path], tmp_path: Path) -> None:
    images = [attributes for tag, attributes in PageParser(render_page(report, tmp_path, figures)).tags if tag == "img"]
    assert len(images) == len(NAMES)
    messages = build_messages(report.curves, report.mixture)
    for image, figure in zip(images, NAMES, strict=True):
        assert str(image["src"]).startswith("data:image/png;base64,")
        assert messages[figure] in str(image["alt"])


def test_the_page_needs_nothing_else(report: Report, figures: dict[str, Path], tmp_path: Path) -> None:
    page = render_page(report, tmp_path, figures)
    for tag, attributes in PageParser(page).tags:
        assert tag not in {"script", "iframe", "object", "embed", "base"}
        assert not any(key.startswith("on") for key in attributes)
        for key in ("src", "href"):
            assert str(attributes.get(key) or "#").startswith(("#", "data:"))
    assert "url(" not in page
    assert "@import" not in page
    assert not re.search(r"https?:", page)
    assert str(tmp_path) not in page


def test_links_lead_somewhere(report: Report, figures: dict[str, Path], tmp_path: Path) -> None:
    tags = PageParser(render_page(report, tmp_path, figures)).tags
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = {str(attributes["href"])[1:] for tag, attributes in tags if tag == "a"}
    assert links
    assert links <= set(ids)


def test_hostile_words_are_only_words(report: Report, tmp_path: Path) -> None:
    evidence = {HOSTILE: HOSTILE, "nested": {HOSTILE: {HOSTILE: [HOSTILE] * 20}}}
    report = change_claim(
        report, 0, words=HOSTILE, statement=HOSTILE, verdict=f"holds under: {HOSTILE}", evidence=evidence
    )
    report = replace(
        report,
        setting=replace(report.setting, dataset=draw_own_data([5, 5], HOSTILE)),
        violated_assumptions=[HOSTILE],
        notes=[HOSTILE],
        summary=[HOSTILE],
        command=f"fedco2 theory --dataset {HOSTILE}",
        certificates={HOSTILE: Ordering(Enclosure(0.0, 1.0), Enclosure(1.0, 2.0))},
        eigenvalues=report.eigenvalues | {HOSTILE: EigenvalueRange(1.0, 2.0, 2.0)},
        versions={HOSTILE: HOSTILE, "fedco2": HOSTILE},
    )
    parsed = PageParser(render_page(report, tmp_path))
    assert not {"script", "img"} & {tag for tag, _ in parsed.tags}
    assert HOSTILE in parsed.text["li"]
    assert HOSTILE in parsed.text["dd"]


def test_own_data_and_broken_assumptions_are_said(report: Report, tmp_path: Path) -> None:
    report = replace(
        report,
        setting=replace(report.setting, dataset=draw_own_data([5, 5], "clients_on.npz")),
        sizes=list(range(2, 22)),
        parallel_samples=["samples 3 and 7 are parallel (cosine +1)"],
    )
    page = render_page(report, tmp_path)
    assert "clients_on.npz" in page
    assert "the user&#39;s own data" in page
    assert "break the paper’s assumptions" in page
    assert "samples 3 and 7 are parallel (cosine +1)" in page
    assert "(20 values)" in page
    assert "<dt>Ridge</dt>" in page
    assert "<dt>Heterogeneity</dt>" not in page


def test_notes_are_not_called_broken_assumptions(report: Report, tmp_path: Path) -> None:
    assert "Notes on this setting" not in render_page(report, tmp_path)
    page = render_page(replace(report, notes=["inputs were centred for each client"]), tmp_path)
    assert "Notes on this setting" in page
    assert "inputs were centred for each client" in page
    assert "break the paper’s assumptions" not in page


def test_draws_are_shown_where_there_are_several(report: Report, tmp_path: Path) -> None:
    assert "Draws held" not in render_page(report, tmp_path)
    statistics = DrawStatistics(9, 7, {"fails": 2, "holds": 7}, 4, mean_margin=0.125, worst_margin=-math.inf)
    report = replace(report, findings=[replace(row, draws=statistics) for row in report.findings])
    page = render_page(report, tmp_path)
    assert page.count("7 of 9") == len(report.findings)
    assert page.count("fails (2), holds (7)") == len(report.findings)
    assert "This is draw 4." in page
    assert "0.12500" in page
    assert "−∞" in page


def test_what_is_undecided_is_not_said_to_fail(report: Report, tmp_path: Path) -> None:
    assert "too rough to tell" not in render_page(report, tmp_path)
    page = render_page(change_claim(report, 2, verdict="undecided"), tmp_path)
    assert "what could be computed is too rough to tell" in page
    assert '<span class="badge undecided"><span aria-hidden="true">?</span> undecided</span>' in page


def test_certificates_say_what_they_prove(report: Report, tmp_path: Path) -> None:
    low, high = Enclosure(-0.1, 0.1), Enclosure(0.123456789, 0.2)
    proofs = {"a": Ordering(high, low), "b": Ordering(low, high), "c": Ordering(high, Enclosure(0.15, 0.3))}
    page = render_page(replace(report, certificates=proofs), tmp_path)
    for kind, symbol, verdict in (
        ("holds", "✓", "certified"),
        ("fails", "✗", "refuted"),
        ("under", "?", "not certifiable"),
    ):
        assert f'<span class="badge {kind}"><span aria-hidden="true">{symbol}</span> {verdict}</span>' in page
    assert "0.123456789000 and 0.200000000000" in page


def test_missing_parts_and_odd_numbers_do_not_break_the_page(report: Report, tmp_path: Path) -> None:
    odd = {"a": [], "b": {}, "c": None, "d": [{"x": math.nan}]}
    report = change_claim(report, 0, margin=math.nan, lhs=math.inf, evidence={})
    report = change_claim(report, 1, margin=-math.inf, evidence=odd)
    eigenvalues = report.eigenvalues | {"G": EigenvalueRange(0.0, 1.0, math.inf)}
    report = replace(report, eigenvalues=eigenvalues, curves=Curves(), certificates=None, seconds=0.0)
    page = render_page(report, tmp_path)
    assert "not a number" in page
    assert "∞" in page
    assert 'id="figures"' not in page
    assert 'id="certificates"' not in page
    for text in ("nan", "inf", "undefined", "None"):
        assert not re.search(rf">\s*{text}\s*<", page)


def test_almost_nothing_makes_a_page(tmp_path: Path) -> None:
    nothing = Report(TheoryConfig(), [20], 10, [], {}, Curves(), [], {})
    PageParser(render_page(nothing, tmp_path / "not" / "there" / "yet"))


# --- in a browser


@pytest.mark.browser
@pytest.mark.parametrize("width", [1200, 390])
def test_a_browser_shows_the_page(
    probe: Callable[[str, int], dict[str, Any]], report: Report, figures: dict[str, Path], tmp_path: Path, width: int
) -> None:
    found = probe(render_page(report, tmp_path, figures).replace("<details>", "<details open>"), width)
    assert len(found["images"]) == len(NAMES)
    assert min(found["images"]) > 100
    assert found["errors"] == []
    assert found["requests"] == 0
    assert found["window"] == width
    assert found["content"] <= width


# How much to share


def test_the_page_says_how_much_to_share(report: Report, tmp_path: Path) -> None:
    assert report.mixture is not None
    page = render_page(report, tmp_path)
    assert 'id="sharing"' in page
    assert "nothing in common" in page
    assert 'id="sharing"' not in render_page(replace(report, mixture=None), tmp_path)


def test_targets_that_are_no_noise_are_shown_by_client(report: Report, tmp_path: Path) -> None:
    assert report.mixture is not None
    own = replace(report.mixture, noise=False, client_names=["one", HOSTILE])
    page = render_page(replace(report, mixture=own), tmp_path)
    for text in ('<th scope="row">one</th>', '<th scope="row">all samples</th>', "predicting 0"):
        assert text in page
    assert "<script>" not in page
    assert_drawn(draw_figures(replace(report, mixture=own, curves=Curves()), tmp_path)["mixture"])


def test_singular_kernels_leave_the_eigenvalues(report: Report, tmp_path: Path) -> None:
    assert report.mixture is not None
    bare = replace(report, mixture=replace(report.mixture, sharing=None, expected={}), curves=Curves())
    assert "its error" not in render_page(bare, tmp_path).lower()
    assert_drawn(draw_figures(bare, tmp_path)["mixture"])
