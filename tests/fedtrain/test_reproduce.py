"""Tables and figures of the paper: their cells, what is shared, what is said, and the numbers beside the paper's."""

from __future__ import annotations

import csv
import io
import json
import random
import tomllib
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import pytest

from fedtrain.config import to_tables
from fedtrain.data.catalogue import DATASETS
from fedtrain.data.clients import Pool
from fedtrain.data.federation import assemble
from fedtrain.data.shares import check
from fedtrain.data.source import Found
from fedtrain.folder import SUMMARY, Folder
from fedtrain.manifest import outlined
from fedtrain.report.records import read_record
from fedtrain.reproduce import paper
from fedtrain.reproduce.cells import digest
from fedtrain.reproduce.estimate import total
from fedtrain.reproduce.exhibits import NAMES, exhibit
from fedtrain.reproduce.figures import KINDS, draw
from fedtrain.reproduce.layout import frame
from fedtrain.reproduce.lookahead import impossible, lookahead
from fedtrain.reproduce.outputs import check_ours, put
from fedtrain.reproduce.plan import finder, plan
from fedtrain.reproduce.reduced import TESTED, reduced
from fedtrain.reproduce.request import Request, chosen_seeds
from fedtrain.reproduce.results import grids
from fedtrain.reproduce.runs import adopted, jobs, known_runs
from fedtrain.reproduce.tables import as_csv, as_json, latex, lines, markdown, notes
from theory.errors import InputError

STANDIN = Request(source="standin")
BRANCHES = {"fedco2": ("online", "offline"), "fedrod": ("generic", "personal"), "copa": ("own", "peers")}
RUNS = {
    "T1": 45, "T2": 45, "T3": 32, "T4": 45, "T5": 20, "T7": 45, "T8": 40, "T9": 40, "T10": 20, "T11": 20, "T12": 20,
    "T13": 35, "F2": 14, "F3": 225, "F4": 4, "F5": 40, "F6": 225, "F7": 45,
}  # fmt: skip


def as_published(name):
    """Data of the published sizes, without an image."""
    data = DATASETS[name]
    sizes = TESTED.get(name) or data.test_sizes
    train = np.arange(50_000) % len(data.classes)
    test = {domain: np.arange(sizes[domain]) % len(data.classes) for domain in data.domains}
    pools = [Pool(domain, title, train, test[domain], lambda *_: None, 28) for domain, title in data.domains.items()]
    return Found(pools, data.title, False, ())


def planned(name, look=as_published, **request):
    return plan(name, Request(**request), look) if request or look is not as_published else whole(name)


@cache
def whole(name):
    return plan(name, Request(), as_published)


@cache
def clients_of(settings, look):
    return outlined(assemble(settings, look(settings.dataset).without_images()))


def fake(job, level=0.8, sums="same", look=as_published):
    """The folder of a finished run with made-up accuracies."""
    config = job.cell.config
    rounds, chance, about = config.server.rounds, random.Random(job.cell.identity), clients_of(config.data, look)
    folder = Folder(job.folder)
    folder.begin(config, {"data": about | {"sha256": sums}})
    rows = []
    for k, client in enumerate(one["name"] for one in about["clients"]):
        top = level - 0.02 * (k % 5) + chance.gauss(0, 0.01)
        for j, branch in enumerate(("fused", *BRANCHES.get(config.method_name, ()))):
            for round in (r for r in range(1, rounds + 1) if config.evaluation.due(r, rounds)):
                for split in ("val", "test") if config.data.val_size else ("test",):
                    accuracy = (top - 0.02 * j) * round / (round + 1)
                    place = {"round": round, "client": client, "split": split, "branch": branch}
                    rows.append(place | {"accuracy": accuracy, "loss": 1.0, "n": 100})
    folder.append(rows)
    cost = {"bytes": {"up": {"total": 1}, "down": {"total": 1}}, "seconds": 1.0}
    folder.write_json(SUMMARY, {"finished": True, "rounds": rounds, **cost})


def results(one, place, level=0.8, numbers=None, leave=()):
    """Fake all runs but some, and read them."""
    found = {}
    for identity, job in jobs([one], place).items():
        if job.cell.config.method_name not in leave:
            if not job.finished:
                fake(job, level, look=one.found.__getitem__)
            found[identity] = read_record(job.folder)
    return found, grids(one, found, paper.held(one.exhibit.name) if numbers is None else numbers)


# --- cells


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_every_cell_is_a_configuration(name, legacy):
    one = planned(name, legacy=legacy)
    assert len({cell.identity for cell in one.cells.values()}) == RUNS[name]
    for cell in one.cells.values():
        check(cell.config.data)
        assert cell.config.data.source == "real"
    assert reduced(one) == []
    assert len(frame(one)) * len(one.exhibit.rows) > 0


@pytest.mark.parametrize("name", NAMES)
def test_seeds_and_rounds_are_the_papers(name):
    one = planned(name)
    label_skew = one.exhibit.blocks[0].dataset.startswith("cifar")
    few = (0,) if label_skew else (1,) if name == "F2" else (1, 2, 3, 4, 5)
    assert one.seeds == few
    rounds = {cell.config.server.rounds for cell in one.cells.values()}
    assert rounds == ({500} if name == "F5" else {1500} if label_skew else {300})


def identities(name, **request):
    return {cell.identity for cell in planned(name, **request).cells.values()}


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [("T7", "F2", 7), ("T7", "F6", 45), ("T1", "F2", 7), ("T2", "T10", 15), ("T5", "T11", 10), ("T5", "T12", 10),
     ("T11", "T12", 5), ("T4", "F3", 45), ("T3", "T13", 6), ("F7", "T1", 5), ("F7", "T2", 5), ("F7", "T7", 5),
     ("T7", "T4", 0), ("T1", "T9", 0)],
)  # fmt: skip
def test_experiments_share_the_runs_that_they_have_in_common(one, other, shared):
    assert len(identities(one) & identities(other)) == shared


def test_a_shared_run_is_evaluated_as_often_as_the_most_demanding_wants(tmp_path):
    both = jobs([planned("T7", methods=("fedavg",), seeds="1"), planned("F2", methods=("fedavg",))], tmp_path)
    digits = [job for job in both.values() if job.cell.config.data.dataset == "digits"]
    assert len(both) == 2
    assert [(job.cell.every, job.cell.config.evaluation.every) for job in digits] == [(1, 1)]
    assert "--eval-every 1" in " ".join(digits[0].arguments(1))


def test_test_data_wait_for_a_round_that_may_be_reported_unless_a_curve_is_wanted(tmp_path):
    table, curve = planned("T1", methods=("fedbn",), seeds="1"), planned("F2", methods=("fedbn",), dataset="office")
    ((identity, one),), ((same, other),) = (jobs([plan], tmp_path).items() for plan in (table, curve))
    assert identity == same
    assert one.folder != other.folder
    assert "evaluation.test=chosen" in one.arguments(1)
    assert "evaluation.test=chosen" not in other.arguments(1)
    ((_, both),) = jobs([table, curve], tmp_path).items()
    assert both.cell.config.evaluation.test == "always"
    fake(one)
    assert jobs([table], tmp_path)[identity].finished
    assert not jobs([curve], tmp_path)[identity].begun  # its curve has gaps
    fake(other)
    assert jobs([curve], tmp_path)[identity].finished
    assert "evaluation.test" not in " ".join(planned("T7").cells[0, 0, 1].arguments())  # there is nothing to choose by


def test_what_makes_another_cell():
    config = planned("T7").cells[0, 1, 1].config

    def identity(**changes):
        tables = to_tables(config)
        for section, table in changes.items():
            tables[section] = table if section == "seed" else tables[section] | table
        return digest(tables, standin=False)

    base = identity()
    for same in (
        {"machine": {"threads": 7, "device": "cpu"}},
        {"checkpoints": {"every": 5}},
        {"evaluation": {"report": "window"}},
        {"evaluation": {"every": 3}},
        {"evaluation": {"test": "chosen"}},
    ):
        assert identity(**same) == base, same
    assert base == "aa5b7eda"  # runs of earlier versions are known again
    for other in (
        {"seed": 2},
        {"machine": {"dtype": "float64"}},
        {"machine": {"amp": True}},
        {"server": {"rounds": 299}},
        {"data": {"percent": 0.2}},
        {"local": {"lr": 0.1}},
    ):
        assert identity(**other) != base, other
    assert digest(to_tables(config), standin=True) != base
    office = to_tables(planned("T1").cells[0, 1, 1].config)
    rarer = office | {"evaluation": office["evaluation"] | {"every": 5}}
    assert digest(rarer, standin=False) != digest(office, standin=False)  # the best of other rounds


def test_the_published_quirks():
    def of(name, method, legacy):
        one = planned(name, legacy=legacy, methods=(method,))
        return one.cells[0, 0, one.seeds[0]].config

    assert of("T9", "fedavg", True).data.labels == "misaligned"
    assert of("T9", "fedavg", False).data.labels == "aligned"
    assert of("T8", "fedavg", True).data.labels == "misaligned"
    assert not of("T7", "fedprox", True).method.squared
    assert of("T7", "fedprox", False).method.squared
    assert of("T13", "moon", True).method.previous == "initial"
    assert of("T3", "fedrod", True).method.balanced
    assert not of("T13", "fedrod", True).method.balanced
    assert [of(name, "fedrod", False).method.balanced for name in ("T3", "T13", "T7")] == [True, False, False]


def test_figure_7_drops_dense_batch_norm_with_the_head_on_alexnet_only():
    one = planned("F7")
    norm = {(cell.config.data.dataset, r): cell.config.model.norm for (_, r, _), cell in one.cells.items()}
    assert {key for key, value in norm.items() if not value} == {("office", 1), ("domainnet", 1)}


def test_the_window_shrinks_with_the_rounds():
    cell = planned("T3", rounds=150).cells[0, 0, 0]
    assert (cell.config.evaluation.window, cell.config.server.rounds) == (20, 150)


# --- requests


@pytest.mark.parametrize(
    ("text", "seeds"), [(None, (1, 2)), ("3", (1, 2, 3)), ("3,", (3,)), ("7,2,7", (7, 2)), ("1", (1,))]
)
def test_how_many_seeds_or_which(text, seeds):
    assert chosen_seeds(text, (1, 2)) == seeds


@pytest.mark.parametrize("text", ["0", "-1", "x", "1,x", "", ",", "2000000", "-1,2"])
def test_seeds_that_are_none(text):
    with pytest.raises(InputError, match="--seeds"):
        chosen_seeds(text, (1,))


def test_another_data_set():
    one = planned("T5", dataset="digits")
    assert (one.instead_of, one.exhibit.blocks[0].dataset) == ("DomainNet", "digits")
    assert reduced(one)[0] == "on Digits instead of DomainNet"
    assert reduced(planned("T4", dataset="office"))[0] == "on Office-Caltech10 (α 1.0) instead of Digits"
    assert {cell.config.data.dataset for cell in one.cells.values()} == {"digits"}
    assert one.cells[0, 3, 1].identity in identities("T7")  # the whole method is Table 7's
    assert [block.dataset for block in planned("T3", dataset="cifar10").exhibit.blocks] == ["cifar10"] * 2
    for name, other in (("T3", "digits"), ("F6", "office"), ("T5", "cifar10")):
        with pytest.raises(InputError, match=f"{name} cannot be run on {other}"):
            planned(name, dataset=other)


def test_methods():
    assert [row.method for row in planned("T7", methods=("fedbn", "fedavg")).exhibit.rows] == ["fedavg", "fedbn"]
    with pytest.raises(InputError, match="T5 has no row of fedavg"):
        planned("T5", methods=("fedavg",))
    with pytest.raises(InputError, match="fedbn"):
        planned("T7", methods=("fedbm",))
    with pytest.raises(InputError, match="T7"):
        planned("t7x")


# --- what is reduced


def test_less_than_the_paper_in_words():
    one = planned("T7", rounds=50, seeds="1", sets={"local": {"lr": 0.1}, "machine": {"engine": "plain"}})
    assert reduced(one) == ["50 of 300 rounds", "1 of 5 seeds", "local.lr = 0.1"]
    assert reduced(planned("T7", rounds=400, seeds="9")) == ["400 rounds instead of 300"]
    assert reduced(planned("T7", eval_every=20)) == []  # the last round is evaluated all the same
    assert reduced(planned("F2", eval_every=5)) == ["evaluated every 5 rounds"]
    assert reduced(planned("T1", eval_every=5)) == ["evaluated every 5 rounds"]
    assert reduced(planned("T1", rule="last")) == reduced(planned("T3", rule="last")) == ["by the last round"]
    assert reduced(planned("F4", rule="last")) == []  # the figure's own
    assert reduced(planned("F4", rule="window")) == ["by the mean over the last rounds"]
    assert reduced(planned("T7", sets={"machine": {"dtype": "float64"}})) == ["machine.dtype = float64"]
    assert reduced(planned("T7"), missing=2) == ["43 of 45 runs"]
    assert reduced(planned("F2", dataset="digits")) == ["SVHN only"]


def test_other_data_in_words():
    def other(name):
        found = as_published(name)
        pools = [replace(pool, title=f"{pool.title} (subset of 1 + 2)") for pool in found.pools[:1]]
        pools += [replace(pool, test=pool.test[:7]) for pool in found.pools[1:3]]
        return replace(found, pools=[*pools, *found.pools[3:]])

    assert reduced(planned("T7", other)) == ["MNIST (subset)", "another split of SVHN and USPS"]
    own = "the split into training and test is fedco2's own: DSLR, WebCam"
    ours = planned("T1", lambda name: replace(as_published(name), notes=(own,)))
    assert reduced(ours) == ["another split of DSLR and WebCam"]
    look = finder(STANDIN)
    mixed = planned("T3", lambda name: look(name) if name == "cifar100" else as_published(name))
    assert reduced(mixed) == ["60 of 1500 rounds on CIFAR-100", "CIFAR-100 stand-in images"]
    assert reduced(mixed, blocks=[0]) == []


# --- results


def test_a_whole_table_is_marked_where_it_disagrees(tmp_path):
    one = planned("T7", methods=("fedavg", "fedco2"))
    near = {
        ("", "FedAvg", "mnist"): paper.Number(80.0, 5.0, "here"),
        ("", "FedAvg", "svhn"): paper.Number(10.0, None, "x"),
    }
    records, (grid,) = results(one, tmp_path, numbers=near)
    mine = [records[one.cells[0, 0, seed].identity].rules["last"]["clients"]["mnist"]["fused"] for seed in one.seeds]
    entry = grid.rows["FedAvg"][0]
    assert entry.seeds == 5
    assert entry.ours.mean == pytest.approx(100 * fmean(mine))
    assert entry.ours.std == pytest.approx(100 * stdev(mine))
    assert entry.difference == pytest.approx(entry.ours.mean - 80)
    assert (entry.outside, grid.rows["FedAvg"][1].outside, grid.rows["FedAvg"][2].outside) == (False, True, None)
    assert grid.reduced == []
    assert "reduced" not in grid.title
    first, compared, *_ = lines(grid)
    assert [text.endswith("*") for text in first[2]] == [False, True, *[False] * 4]
    assert compared[2] == ["80.0 ± 5.0", "10.0", *["-"] * 4]
    assert "± std over 5 seeds (ddof 1)" in notes(grid)
    assert any("exceeds the two spreads" in note for note in notes(grid))


def test_a_reduced_table_says_so_and_marks_nothing(tmp_path):
    one = planned("T7", methods=("fedco2",), rounds=3, seeds="2")
    _, (grid,) = results(one, tmp_path)
    assert grid.title.endswith("(reduced: 3 of 300 rounds; 2 of 5 seeds)")
    assert grid.rows["Fed-CO2"][0].outside  # it would be marked
    assert "*" not in "".join(text for _, _, texts in lines(grid) for text in texts)
    assert all(row["outside"] == "" for row in csv.DictReader(io.StringIO(as_csv("T7", [grid]))))
    columns = [
        cell for row in json.loads(as_json("T7", [grid]))["panels"][0]["rows"] for cell in row["columns"].values()
    ]
    assert {cell["outside"] for cell in columns} == {None}
    assert grid.rows["Fed-CO2"][0].paper.value == 97.66


def test_with_runs_missing_nothing_is_marked_either(tmp_path):
    one = planned("T7", methods=("fedavg", "fedco2"))
    _, (grid,) = results(one, tmp_path, leave=("fedavg",))
    assert grid.reduced == ["5 of 10 runs"]
    assert grid.rows["FedAvg"][0].ours is None
    assert next(iter(lines(grid)))[2] == ["-"] * 6


def test_the_spread_is_of_the_seeds_that_there_are(tmp_path):
    one = planned("T7", methods=("fedavg", "fedbn"), rounds=2, seeds="3")
    for k, job in enumerate(jobs([one], tmp_path).values()):
        if k:  # the first seed of the first method is missing
            fake(job)
    records = {identity: read_record(job.folder) for identity, job in jobs([one], tmp_path).items() if job.finished}
    (grid,) = grids(one, records, {})
    assert grid.spread == "± std over 2 to 3 seeds (ddof 1)"


def test_no_spread_of_one_seed(tmp_path):
    _, (grid,) = results(planned("T7", methods=("fedco2",), seeds="1"), tmp_path)
    assert grid.rows["Fed-CO2"][0].ours.std is None
    assert "one seed, so no ±" in notes(grid)
    assert "±" not in next(iter(lines(grid)))[2][0]


def test_the_papers_numbers_do_not_stand_beside_other_data(tmp_path):
    _, (grid,) = results(planned("T5", dataset="digits", rounds=2, seeds="1"), tmp_path / "a")
    assert all(entry.paper is None for entries in grid.rows.values() for entry in entries)
    one = plan("T7", Request(source="standin", methods=("fedco2",), rounds=2, seeds="1"), finder(STANDIN))
    _, (grid,) = results(one, tmp_path / "b")
    assert all(entry.paper is None for entries in grid.rows.values() for entry in entries)
    assert "Digits stand-in images" in grid.title


def test_label_skew_has_the_spread_over_the_window(tmp_path):
    one = planned("T13", methods=("fedavg",), rounds=60)
    records, (grid,) = results(one, tmp_path)
    rules = records[one.cells[1, 0, 0].identity].rules["window"]
    entry = grid.rows["FedAvg"][1]
    assert entry.ours.mean == pytest.approx(100 * rules["micro"]["fused"])
    assert entry.ours.std == pytest.approx(100 * rules["micro_std_over_rounds"]["fused"])
    assert entry.paper.value == 52.85
    assert "ddof 0" in grid.spread


def test_figure_2_shows_rounds_and_branches(tmp_path):
    one = planned("F2", rounds=60)
    records, found = results(one, tmp_path)
    assert [list(grid.columns) for grid in found] == [["10", "50", "60"]] * 2
    record = records[one.cells[1, 6, 1].identity]
    online = found[1].rows["- online"][1]
    assert online.ours.mean == pytest.approx(100 * record.curves["test", "svhn", "online"][50])
    assert online.paper.value == 75.7


def test_other_images_under_the_same_name_are_noticed(tmp_path):
    one = planned("T7", methods=("fedavg",), rounds=2, seeds="2")
    for k, job in enumerate(jobs([one], tmp_path).values()):
        fake(job, sums=f"sum {k}")
    _, (grid,) = results(one, tmp_path)
    assert any("checksums" in note for note in grid.notes)


# --- formats


@pytest.fixture(scope="module")
def f7(tmp_path_factory):
    one = planned("F7", rounds=2, seeds="2", legacy=True)
    return one, *results(one, tmp_path_factory.mktemp("f7"))


def test_csv_and_json_read_back(f7):
    _, _, found = f7
    rows = list(csv.DictReader(io.StringIO(as_csv("F7", found))))
    told = json.loads(as_json("F7", found))
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
    tables = markdown(found).split("**Figure 7")[1:]
    assert len(tables) == 3
    for text, grid in zip(tables, found, strict=True):
        rows = [line for line in text.splitlines() if line.startswith("|")]
        assert len(rows) == 2 + 3 * len(grid.rows)
        assert {row.count("|") for row in rows} == {len(grid.columns) + 2}
        assert "reduced: 2 of 300 rounds; 2 of 5 seeds" in text
        assert "quirks of the published code" in text
    text = latex(found)
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 3
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len(body) == sum(1 + 3 * len(grid.rows) for grid in found)
    assert "±" not in text
    assert r"5 \% of" not in text


@pytest.mark.parametrize("name", [name for name in NAMES if exhibit(name).figure])
def test_figures_say_what_is_reduced(name, tmp_path):
    one = planned(name, rounds=4, seeds="1", methods=("fedco2",))
    records, found = results(one, tmp_path)
    title = KINDS[one.exhibit.figure](one, records, found).figure.get_suptitle()
    assert title.startswith(exhibit(name).title)
    assert "reduced: 4 of" in title
    assert draw(one, records, found).startswith(b"\x89PNG")


# --- the paper's numbers


@pytest.mark.parametrize("name", NAMES)
def test_every_number_of_the_paper_has_a_source_and_a_place(name):
    one, held = planned(name), paper.held(name)
    panels, rows = frame(one), {row.name for row in one.exhibit.rows}
    for (panel, row, column), number in held.items():
        assert row in rows
        assert column in panels[panel or next(iter(panels))]
        assert number.source.startswith(("printed in the paper", "recovered from the authors' plot data"))
        assert 0 < number.value < 100


def test_averages_that_are_held_are_the_means_of_their_rows():
    held = paper.held("F7")
    for panel in ("DomainNet", "Office-Caltech10", "Digits"):
        for row in {row for where, row, _ in held if where == panel}:
            values = {column: n.value for (where, name, column), n in held.items() if (where, name) == (panel, row)}
            assert values.pop("mean") == pytest.approx(fmean(values.values()), abs=0.011)


KNOWN = {"T7": {"Digits": ({"FedAvg"}, {"mnist", "mean"})}}


def test_numbers_of_ones_own(tmp_path):
    path = tmp_path / "more.toml"
    path.write_text('[[T7]]\nrow = "FedAvg"\nsource = "read by me"\nvalues = { mnist = 96 }\nstd = { mnist = 0.1 }\n')
    assert paper.added(path, KNOWN) == {"T7": {("", "FedAvg", "mnist"): paper.Number(96.0, 0.1, "read by me")}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[T6]]\n", "no table or figure of the paper; did you mean 'T7'"),
        ("[T7]\n", r"write \[\[T7\]\]"),
        ('[[T7]]\nrow = "FedAvg"\nvalues = { mnist = 1 }\n', "row and source"),
        ('[[T7]]\nrow = "FedAvg"\nsource = "s"\nvalues = { mnist = 196 }\n', "from 0 to 100"),
        ('[[T7]]\nrow = "FedAvg"\nsource = "s"\nvalues = 5\n', "are tables"),
        ('[[T7]]\nrow = "FedAvgg"\nsource = "s"\nvalues = { mnist = 1 }\n', "did you mean 'FedAvg'"),
        ('[[T7]]\nrow = "FedAvg"\nsource = "s"\nvalues = { minst = 1 }\n', "did you mean 'mnist'"),
        ('[[T7]]\nrow = "FedAvg"\nsource = "s"\nvalue = { mnist = 1 }\n', "did you mean 'values'"),
        ('[[T7]]\npanel = "x"\nrow = "FedAvg"\nsource = "s"\nvalues = { mnist = 1 }\n', "no panel"),
        ("T7 = [1]\n", "no list of tables"),
    ],
)
def test_numbers_that_are_refused(tmp_path, text, words):
    path = tmp_path / "more.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        paper.added(path, KNOWN)


# --- folders and files


def test_finished_runs_are_found_by_what_they_are_not_by_their_names(tmp_path):
    one = planned("T7", methods=("fedavg",), rounds=20, seeds="1")
    ((identity, job),) = jobs([one], tmp_path / "runs").items()
    fake(replace(job, folder=tmp_path / "elsewhere"))
    adopt = adopted([tmp_path / "elsewhere"])
    assert adopt == adopted([tmp_path]) == known_runs(tmp_path)
    assert jobs([one], tmp_path / "runs", adopt)[identity].folder == tmp_path / "elsewhere"
    curve = planned("F2", methods=("fedavg",), rounds=20, dataset="digits")
    assert jobs([curve], tmp_path / "runs", adopt)[identity].folder.parent == tmp_path / "runs"  # evaluated too seldom
    (tmp_path / "elsewhere" / SUMMARY).unlink()
    with pytest.raises(InputError, match="not finished"):
        adopted([tmp_path / "elsewhere"])
    assert jobs([one], tmp_path)[identity].arguments(2) == [
        "train",
        "--resume",
        str(tmp_path / "elsewhere"),
        "--threads",
        "2",
    ]


def test_runs_of_other_data_are_not_used(tmp_path):
    """The same settings on a subset, or on a replacement of the same size, are other numbers."""

    def replaced(name):
        return replace(as_published(name), notes=("MNIST-M (re-created) stands for MNIST-M",))

    def smaller(name):
        found = as_published(name)
        return replace(found, pools=[replace(pool, test=pool.test[:70]) for pool in found.pools])

    asked = {"methods": ("fedavg",), "rounds": 20, "seeds": "1"}
    one = planned("T7", **asked)
    ((identity, job),) = jobs([one], tmp_path / "runs").items()
    fake(replace(job, folder=tmp_path / "here"))
    adopt = adopted([tmp_path / "here"])
    assert jobs([one], tmp_path / "runs", adopt)[identity].finished
    fake(job)
    for look in (replaced, smaller):
        other = planned("T7", look, **asked)
        assert other.cells[0, 0, 1].identity == identity
        assert not jobs([other], tmp_path / "new", adopt)[identity].begun
        with pytest.raises(InputError, match="other data than are here now; choose another --out"):
            jobs([other], tmp_path / "runs")


def test_a_folder_that_holds_another_run_is_not_used(tmp_path):
    one, other = (planned("T7", methods=("fedavg",), rounds=rounds, seeds="1") for rounds in (2, 3))
    ((_, job),), ((_, wrong),) = (jobs([each], tmp_path).items() for each in (one, other))
    fake(replace(wrong, folder=job.folder))
    with pytest.raises(InputError, match="holds another run"):
        jobs([one], tmp_path)


def test_what_cannot_be_run_on_the_data_at_hand_is_known_before(tmp_path):
    def few(name):
        found = as_published(name)
        return replace(found, pools=[replace(found.pools[0], train=found.pools[0].train[:1000])])

    one = planned("T13", few, methods=("fedavg", "fedbn"))
    why = impossible(one.cells.values(), lookahead([one]))
    assert set(why.values()) == {2}  # both methods of a column
    assert any("150 clients" in reason for reason in why), why
    assert impossible(one.cells.values(), lookahead([planned("T13")])) == {}


def test_our_files_are_made_anew_and_others_are_left_alone(tmp_path):
    put(tmp_path / "T7", "table.md", "one")
    put(tmp_path / "T7", "table.md", "two")
    put(tmp_path / "T7", "figure.png", b"\x89")
    assert (tmp_path / "T7" / "table.md").read_text() == "two"
    (tmp_path / "T7" / "table.md").write_text("my own words")
    for act in (lambda: put(tmp_path / "T7", "table.md", "x"), lambda: check_ours(tmp_path / "T7", ["table.md"])):
        with pytest.raises(InputError, match="not overwritten"):
            act()
    assert (tmp_path / "T7" / "table.md").read_text() == "my own words"
    assert sorted(path.name for path in (tmp_path / "T7").iterdir()) == [".written.json", "figure.png", "table.md"]


def test_time_is_estimated_in_proportion():
    few, many = (planned("T7", lambda name: finder(STANDIN)(name), rounds=r, methods=("fedavg",)) for r in (20, 200))
    some, more = (total(one.cells.values(), one.found) for one in (few, many))
    assert 0 < some < more < 12 * some


def test_experiments_are_data():
    folder = Path(paper.__file__).parent / "experiments"
    assert sorted(path.stem for path in folder.iterdir()) == sorted(NAMES)
    for path in folder.iterdir():
        assert tomllib.loads(path.read_text(encoding="utf-8"))["title"].partition(" ")[2].startswith(path.stem[1:])
