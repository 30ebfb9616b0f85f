"""From runs to the numbers of a table and a figure: spreads, marks, and the formats they are written in."""

from __future__ import annotations

import csv
import io
import json
import tomllib
from importlib.resources import files
from statistics import fmean, stdev

import pytest
from fake_reproduction import STANDIN_REQUEST, build_fake_results, make_plan, write_fake_run

from fedtrain.report.records import read_record
from fedtrain.reproduction import paper_numbers
from fedtrain.reproduction.jobs import build_jobs
from fedtrain.reproduction.paper_figures import FIGURE_KINDS, draw_paper_figure
from fedtrain.reproduction.paper_item import PAPER_ITEM_NAMES, load_paper_item
from fedtrain.reproduction.plan import build_plan, make_dataset_finder
from fedtrain.reproduction.request import Request
from fedtrain.reproduction.results import build_comparison_tables
from fedtrain.reproduction.table_formats import format_lines, list_notes, to_csv, to_json, to_latex, to_markdown


def test_a_whole_table_is_marked_where_it_disagrees(tmp_path):
    one = make_plan("T7", methods=("fedavg", "fedco2"))
    near = {
        ("", "FedAvg", "mnist"): paper_numbers.PaperNumber(80.0, 5.0, "here"),
        ("", "FedAvg", "svhn"): paper_numbers.PaperNumber(10.0, None, "x"),
    }
    records, (grid,) = build_fake_results(one, tmp_path, numbers=near)
    mine = [
        records[one.run_specs[0, 0, seed].identity].rules["last"]["clients"]["mnist"]["fused"] for seed in one.seeds
    ]
    entry = grid.rows["FedAvg"][0]
    assert entry.seeds == 5
    assert entry.ours.mean == pytest.approx(100 * fmean(mine))
    assert entry.ours.std == pytest.approx(100 * stdev(mine))
    assert entry.difference == pytest.approx(entry.ours.mean - 80)
    assert (entry.exceeds_spread, grid.rows["FedAvg"][1].exceeds_spread, grid.rows["FedAvg"][2].exceeds_spread) == (
        False,
        True,
        None,
    )
    assert grid.deviations == []
    assert "reduced" not in grid.title
    first, compared, *_ = format_lines(grid)
    assert [text.endswith("*") for text in first[2]] == [False, True, *[False] * 4]
    assert compared[2] == ["80.0 ± 5.0", "10.0", *["-"] * 4]
    assert "± std over 5 seeds (ddof 1)" in list_notes(grid)
    assert any("exceeds the two spreads" in note for note in list_notes(grid))


@pytest.mark.parametrize("name", [name for name in PAPER_ITEM_NAMES if name.startswith("T")])
def test_the_papers_numbers_are_written_as_printed(name):
    """With the digits that the file of the paper's numbers has, which are those in print: 82.00, but 14.6."""
    text = (files("fedtrain.reproduction") / "paper" / f"{name}.toml").read_text(encoding="utf-8")
    printed = sorted(
        f"{value} ± {entry['std'][column]}"
        for entry in tomllib.loads(text, parse_float=str)[name]
        for column, value in entry["values"].items()
    )
    grids = build_comparison_tables(make_plan(name), {}, paper_numbers.load_paper_numbers(name))
    shown = [words for grid in grids for _, kind, texts in format_lines(grid) if kind == "paper" for words in texts]
    assert sorted(words for words in shown if words != "-") == printed


def test_a_reduced_table_says_so_and_marks_nothing(tmp_path):
    one = make_plan("T7", methods=("fedco2",), rounds=3, seeds="2")
    _, (grid,) = build_fake_results(one, tmp_path)
    assert grid.title.endswith("(reduced: 3 of 300 rounds; 2 of 5 seeds)")
    assert grid.rows["Fed-CO2"][0].exceeds_spread  # it would be marked
    assert "*" not in "".join(text for _, _, texts in format_lines(grid) for text in texts)
    assert all(row["outside"] == "" for row in csv.DictReader(io.StringIO(to_csv("T7", [grid]))))
    columns = [
        cell for row in json.loads(to_json("T7", [grid]))["panels"][0]["rows"] for cell in row["columns"].values()
    ]
    assert {cell["outside"] for cell in columns} == {None}
    assert grid.rows["Fed-CO2"][0].paper.value == 97.66


def test_with_runs_missing_nothing_is_marked_either(tmp_path):
    one = make_plan("T7", methods=("fedavg", "fedco2"))
    _, (grid,) = build_fake_results(one, tmp_path, leave=("fedavg",))
    assert grid.deviations == ["5 of 10 runs"]
    assert grid.rows["FedAvg"][0].ours is None
    assert next(iter(format_lines(grid)))[2] == ["-"] * 6


def test_the_spread_is_of_the_seeds_that_there_are(tmp_path):
    one = make_plan("T7", methods=("fedavg", "fedbn"), rounds=2, seeds="3")
    for k, job in enumerate(build_jobs([one], tmp_path).values()):
        if k:  # the first seed of the first method is missing
            write_fake_run(job)
    records = {
        identity: read_record(job.folder) for identity, job in build_jobs([one], tmp_path).items() if job.finished
    }
    (grid,) = build_comparison_tables(one, records, {})
    assert grid.std_description == "± std over 2 to 3 seeds (ddof 1)"


def test_no_spread_of_one_seed(tmp_path):
    _, (grid,) = build_fake_results(make_plan("T7", methods=("fedco2",), seeds="1"), tmp_path)
    assert grid.rows["Fed-CO2"][0].ours.std is None
    assert "one seed, so no ±" in list_notes(grid)
    assert "±" not in next(iter(format_lines(grid)))[2][0]


def test_the_papers_numbers_do_not_stand_beside_other_data(tmp_path):
    _, (grid,) = build_fake_results(make_plan("T5", dataset="digits", rounds=2, seeds="1"), tmp_path / "a")
    assert all(entry.paper is None for entries in grid.rows.values() for entry in entries)
    one = build_plan(
        "T7", Request(source="standin", methods=("fedco2",), rounds=2, seeds="1"), make_dataset_finder(STANDIN_REQUEST)
    )
    _, (grid,) = build_fake_results(one, tmp_path / "b")
    assert all(entry.paper is None for entries in grid.rows.values() for entry in entries)
    assert "Digits stand-in images" in grid.title


def test_label_skew_has_the_spread_over_the_window(tmp_path):
    one = make_plan("T13", methods=("fedavg",), rounds=60)
    records, (grid,) = build_fake_results(one, tmp_path)
    rules = records[one.run_specs[1, 0, 0].identity].rules["window"]
    entry = grid.rows["FedAvg"][1]
    assert entry.ours.mean == pytest.approx(100 * rules["micro"]["fused"])
    assert entry.ours.std == pytest.approx(100 * rules["micro_std_over_rounds"]["fused"])
    assert entry.paper.value == 52.85
    assert "ddof 0" in grid.std_description


def test_figure_2_shows_rounds_and_branches(tmp_path):
    one = make_plan("F2", rounds=60)
    records, found = build_fake_results(one, tmp_path)
    assert [list(grid.columns) for grid in found] == [["10", "50", "60"]] * 2
    record = records[one.run_specs[1, 6, 1].identity]
    online = found[1].rows["- online"][1]
    assert online.ours.mean == pytest.approx(100 * record.curves["test", "svhn", "online"][50])
    assert online.paper.value == 75.7


def test_other_images_under_the_same_name_are_noticed(tmp_path):
    one = make_plan("T7", methods=("fedavg",), rounds=2, seeds="2")
    for k, job in enumerate(build_jobs([one], tmp_path).values()):
        write_fake_run(job, sums=f"sum {k}")
    _, (grid,) = build_fake_results(one, tmp_path)
    assert any("checksums" in note for note in grid.notes)


# --- formats


@pytest.fixture(scope="module")
def f7(tmp_path_factory):
    one = make_plan("F7", rounds=2, seeds="2", legacy=True)
    return one, *build_fake_results(one, tmp_path_factory.mktemp("f7"))


def test_csv_and_json_read_back(f7):
    _, _, found = f7
    rows = list(csv.DictReader(io.StringIO(to_csv("F7", found))))
    told = json.loads(to_json("F7", found))
    assert len(rows) == 3 * (7 + 5 + 6)
    by_place = {(r["panel"], r["row"], r["column"]): r for r in rows}
    for panel, grid in zip(told["panels"], found, strict=True):
        for row in panel["rows"]:
            for (column, cell), entry in zip(row["columns"].items(), grid.rows[row["label"]], strict=True):
                line = by_place[panel["name"], row["label"], column]
                assert float(line["ours"]) == cell["ours"] == entry.ours.mean
                assert float(line["paper"]) == cell["paper"] == entry.paper.value
                assert line["source"] == cell["source"]
    assert told["panels"][0]["ddof"] == 1


def test_markdown_and_latex_have_a_cell_for_every_number(f7):
    _, _, found = f7
    tables = to_markdown(found).split("**Figure 7")[1:]
    assert len(tables) == 3
    for text, grid in zip(tables, found, strict=True):
        rows = [line for line in text.splitlines() if line.startswith("|")]
        assert len(rows) == 2 + 3 * len(grid.rows)
        assert {row.count("|") for row in rows} == {len(grid.columns) + 2}
        assert "reduced: 2 of 300 rounds; 2 of 5 seeds" in text
        assert "quirks of the published code" in text
    text = to_latex(found)
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 3
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len(body) == sum(1 + 3 * len(grid.rows) for grid in found)
    assert "±" not in text
    assert r"5 \% of" not in text


@pytest.mark.parametrize("name", [name for name in PAPER_ITEM_NAMES if load_paper_item(name).figure])
def test_figures_say_what_is_reduced(name, tmp_path):
    one = make_plan(name, rounds=4, seeds="1", methods=("fedco2",))
    records, found = build_fake_results(one, tmp_path)
    title = FIGURE_KINDS[one.paper_item.figure](one, records, found).figure.get_suptitle()
    assert title.startswith(load_paper_item(name).title)
    assert "reduced: 4 of" in title
    assert draw_paper_figure(one, records, found).startswith(b"\x89PNG")
