"""The page of a report: what it says, and that a real browser shows it."""

import base64
import re
import xml.etree.ElementTree as ET

import pytest

from fedtrain.report import plot_style
from fedtrain.report.compare import compare_runs
from fedtrain.report.curves import draw_mean_curves
from fedtrain.report.page import render_page, write_page
from fedtrain.report.records import read_record
from fedtrain.report.svg import draw_svg_figures
from fedtrain.report.tables import build_result_tables
from theory.errors import InputError

HOSTILE = '</td><script>alert("1")</script><img src=http://example.invalid/x onerror=alert(1)> $\\frac{1}$ '


@pytest.fixture(scope="module")
def made(fake_run, tmp_path_factory):
    """Two sets of data: three methods with two seeds and one unfinished on stand-in images; many clients on others."""
    place = tmp_path_factory.mktemp("runs")
    toy = {"title": "Toy (stand-in)", "standin": True}
    methods = {"singleset": 0.6, "fedbn": 0.7, "fedco2": 0.8}
    runs = [fake_run(place / f"{m}-{s}", m, s, level, **toy) for m, level in methods.items() for s in (1, 2)]
    runs.append(fake_run(place / "moon", "moon", 1, reached=6, **toy))
    runs.append(fake_run(place / "many", "fedrod", clients=tuple(f"client {k}" for k in range(14)), title="Crowd"))
    records = [read_record(path) for path in runs]
    return render_page(build_result_tables(records), compare_runs(records[2:4], records[4:6]), "fedco2 report ...")


@pytest.fixture(scope="module")
def small(fake_run, tmp_path_factory):
    """A single run on few rounds."""
    return read_record(fake_run(tmp_path_factory.mktemp("small") / "run", "fedbn", rounds=2))


def headings(text):
    return [re.sub(r"<[^>]*>", "", found) for found in re.findall(r"<h[1-4][^>]*>(.*?)</h[1-4]>", text, re.S)]


def test_it_needs_nothing_but_itself(made):
    assert "<script" not in made
    sources = re.findall(r'(?:src|srcset|href)="([^"]*)"', made)
    assert all(source.startswith(("data:", "#")) for source in sources)
    assert "http" not in re.sub(r'"data:[^"]*"', "", made).replace("http-equiv", "")
    assert "default-src 'none'" in made


def test_every_link_leads_somewhere(made):
    targets = re.findall(r'href="#([^"]*)"', made)
    assert targets
    assert set(targets) <= set(re.findall(r'id="([^"]*)"', made))


def test_every_heading_and_figure_calls_stand_in_data_stand_in(made):
    part = made[made.index('id="data-1"') : made.index('id="data-2"')]
    told = [heading for heading in headings(part) if heading]
    assert len(told) >= 5
    assert all("stand-in" in heading.lower() for heading in told)
    alts = re.findall(r'alt="([^"]*)"', part)
    assert len(alts) == 7
    assert all("Toy (stand-in)" in alt for alt in alts)
    assert "stand-in" in headings(made)[0]
    assert "stand-in" not in made[made.index('id="data-2"') : made.index('id="settings"')]


def test_figures_say_stand_in_themselves(fake_run, tmp_path, monkeypatch):
    told, canvas = [], plot_style.create_canvas
    monkeypatch.setattr("fedtrain.report.svg._render_svg", lambda figure: "not drawn")
    monkeypatch.setattr(plot_style, "create_canvas", lambda title, *size: told.append(title) or canvas(title, *size))
    draw_svg_figures(build_result_tables([read_record(fake_run(tmp_path / "run", rounds=2, standin=True))])[0])
    assert len(told) == 10  # five figures, wide and narrow; no branches here
    assert all("(stand-in)" in title for title in told)


def test_it_says_what_must_be_said(made):
    for words in (
        "MOON, unfinished: round 6 of 10",
        "± is the std over the seeds of a row (ddof 1)",
        "std over clients (ddof 0)",
        "tested on 2 different sets of data",
        "Rule: <code>last</code>",
        "paired t test",
        "among the finished rows",
        "fedco2 train --seed 2",
    ):
        assert words in made, words
    assert re.search(r"The \d\d settings that all share", made)
    assert "Fed-CO2 against FedBN, Toy (stand-in)" in headings(made)


def test_the_best_is_bold(made):
    table = made[made.index('id="data-1"') : made.index('id="rounds-1"')]
    bold = {row: "<strong>" in cells for row, cells in re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', table)}
    assert bold == {"SingleSet": False, "FedBN": False, "Fed-CO2": True, "MOON, unfinished": False}


def test_the_same_runs_make_the_same_figures(small, monkeypatch):
    monkeypatch.setattr("fedtrain.report.svg.FIGURES", {"mean": draw_mean_curves})
    (table,) = build_result_tables([small])
    assert draw_svg_figures(table) == draw_svg_figures(table)


def test_figures_are_sound_svg(made):
    images = re.findall(r'data:image/svg\+xml;base64,([^"]*)', made)
    assert len(images) == 2 * (6 + 6) + 2  # wide and narrow; who holds which classes only wide
    for image in images:
        assert ET.fromstring(base64.b64decode(image)).tag.endswith("svg")


def test_a_run_without_counts_gets_a_word_instead_of_a_figure(fake_run, tmp_path, monkeypatch):
    monkeypatch.setattr("fedtrain.report.page.draw_svg_figures", lambda table: {})
    text = render_page(
        build_result_tables([read_record(fake_run(tmp_path / "run", rounds=2, clients=("a",), classes=[]))])
    )
    assert "The runs do not say who holds how many images" in text


def test_hostile_words_stay_words(fake_run, tmp_path):
    hostile = {"title": HOSTILE, "notes": [HOSTILE], "classes": [HOSTILE, "y", "z"]}
    path = fake_run(tmp_path / "$a_{b", rounds=2, clients=(HOSTILE, "b"), **hostile)
    text = render_page(build_result_tables([read_record(path)]))
    assert "<script" not in text
    assert "<img src=http" not in text
    assert "&lt;script&gt;" in text


def test_nothing_is_overwritten_nor_half_written(small, tmp_path, monkeypatch):
    there = tmp_path / "page.html"
    there.write_text("mine")
    with pytest.raises(InputError, match="not overwritten"):
        write_page(build_result_tables([small]), there)
    with pytest.raises(InputError, match=r"end in \.html"):
        write_page(build_result_tables([small]), tmp_path / "page.pdf")
    with pytest.raises(InputError, match="make it first"):
        write_page(build_result_tables([small]), tmp_path / "no" / "page.html")
    monkeypatch.setattr("fedtrain.report.page.render_page", lambda *_: "\ud800")  # cannot be encoded
    with pytest.raises(UnicodeEncodeError):
        write_page(build_result_tables([small]), tmp_path / "new.html")
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]
    assert there.read_text() == "mine"


@pytest.mark.browser
@pytest.mark.parametrize("width", [1200, 390])
def test_a_browser_shows_the_page(probe, made, width):
    found = probe(made.replace("<details>", "<details open>"), width)
    assert len(found["images"]) == 7 + 7
    assert min(found["images"]) > 100
    assert min(found["sizes"]) > 10
    assert found["errors"] == []
    assert found["requests"] == 0
    assert (found["window"], found["content"] <= width) == (width, True)
    assert found["hidden"] == 0  # no column lies over another
    assert found["unruled"] == 0  # sticky names take their rule along


def test_curves_of_validation_are_called_so(fake_run, tmp_path):
    best = {"evaluation": {"report": "best-by-validation", "test": "chosen"}}
    runs = [
        read_record(fake_run(tmp_path / m, m, level=level, tested=(4, 10), sections=best))
        for m, level in (("fedavg", 0.5), ("fedbn", 0.7))
    ]
    (table,) = build_result_tables(runs)
    assert draw_mean_curves(table, narrow=False).figure.get_suptitle() == "Toy: mean validation accuracy of 3 clients"
    text = render_page([table])
    assert "On validation data" in text
    assert "Of 10 rounds, at the round of the best mean validation accuracy, with one seed each, FedBN has" in text
    (other,) = build_result_tables([read_record(fake_run(tmp_path / "always", "fedbn"))])
    assert "On validation data" not in render_page([other])
