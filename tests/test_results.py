"""The records of the runs in docs/results/records, and that the pages of docs/results say what they say."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Collection
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from fedtrain.config.schema import parse_config
from fedtrain.extensions.references import resolve
from fedtrain.methods import METHODS
from fedtrain.report.records import RunRecord, read_record
from fedtrain.report.rows import compute_mean_std
from fedtrain.reproduction.paper_numbers import load_paper_numbers
from fedtrain.runs.folder import PACKED_METRICS_FILE, SUMMARY_FILE, RunFolder
from fedtrain.runs.json_types import RuleResult
from fedtrain.runs.selection import summarise_rows

Name = Callable[[RunRecord], str]

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "results"
RECORDS = PAGES / "records"
RUNS = sorted(path.parent for path in RECORDS.rglob("config.toml"))
METHODS_OF_PAPER = ("singleset", "fedavg", "fedprox", "fedper", "moon", "fedrod", "copa", "fedbn", "fedco2")
LONGEST = 300
"""Lines of a record of JSON: one for each of a hundred clients and each rule, and some for the rest."""


@pytest.fixture(scope="module", autouse=True)
def _load_networks_of_records() -> None:
    """Some runs are of a benchmark's own network, which no record can make anybody load."""
    for build in ("build_with_head", "build_with_last_layer"):
        resolve("model", f"{ROOT / 'benchmarks' / 'few_bytes_lib' / 'narrow_digits.py'}:{build}")


@pytest.fixture(scope="module")
def records() -> dict[str, list[RunRecord]]:
    """By the folder that they are in."""
    found: dict[str, list[RunRecord]] = {}
    for path in RUNS:
        found.setdefault(path.parent.name, []).append(read_record(path))
    return found


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.name)
def test_a_record_is_whole(path):
    folder = RunFolder(path)
    config, summary = parse_config(folder.load_tables()), folder.read_json(SUMMARY_FILE)
    assert folder.is_finished
    assert not summary["standin"]
    rounds = config.server.rounds
    assert summary["rules"] == summarise_rows(
        folder.load_rows(), lambda round: config.evaluation.is_in_window(round, rounds)
    )
    for file in set(path.iterdir()) - {path / PACKED_METRICS_FILE}:
        assert not re.search(r"/(root|home|tmp)/", file.read_text(encoding="utf-8")), file


@pytest.mark.parametrize("path", sorted(RECORDS.rglob("*.json")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_record_is_compact(path):
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= LONGEST, "run docs/tools/compact_records.py"


def tables(path: Path) -> list[list[list[str]]]:
    """The cells of each table of a page."""
    found = re.findall(r"(?:^\|.*\n)+", path.read_text(encoding="utf-8"), re.MULTILINE)
    return [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if "---" not in line]
        for table in found
    ]


def on_page(name: str, number: int = 0) -> list[list[str]]:
    """One table of a page of results."""
    return tables(PAGES / f"{name}.md")[number]


def said(table: list[list[str]]) -> dict[tuple[str, str], dict[str, str]]:
    """By method and branch: what stands in which column."""
    heads, *rows = table
    found: dict[tuple[str, str], dict[str, str]] = {}
    method = ""
    for first, *others in rows:
        branch = first.removeprefix("- ") if first.startswith("- ") else "fused"
        method = first if branch == "fused" else method
        found[method, branch] = dict(zip(heads[1:], others, strict=True))
    return found


def by_method(record: RunRecord) -> str:
    return parse_config(record.settings).method.title


def by_cooperation(record: RunRecord) -> str:
    method = record.settings["method"]
    return {
        ("none", "none"): "neither",
        ("both", "none"): "intra-client",
        ("none", "both"): "inter-client",
        ("both", "both"): "both (Fed-CO2)",
    }[method["intra"], method["inter"]]


def by_labels(record: RunRecord) -> str:
    return {"aligned": "labels of the images", "misaligned": "as published"}[record.settings["data"]["labels"]]


def in_words(records: list[RunRecord], rule: str, name: Name = by_method) -> dict[tuple[str, str], list[str]]:
    """By row and branch: the accuracy of every client, and their mean."""
    found = {}
    for record in records:
        result = record.rules[rule]
        for branch, mean in result["mean"].items():
            values = [*(one[branch] for one in result["clients"].values()), mean]
            found[name(record), branch] = [f"{100 * value:.1f}" for value in values]
    return found


def compare(table: list[list[str]], found: dict[tuple[str, str], list[str]], other: Collection[str] = ()) -> None:
    """Every row of the table, but for columns of others' numbers, is that of the records; none is missing."""
    shown = said(table)
    assert {key for key in found if key[1] == "fused"} <= set(shown)
    for key, row in shown.items():
        assert [value for head, value in row.items() if head not in other] == found[key], key


@pytest.mark.parametrize(
    ("page", "number", "folder", "rule", "name", "other"),
    [
        ("digits", 0, "digits", "last", by_method, ()),
        ("office", 0, "office", "best-by-validation", by_method, ()),
        ("office", 2, "office", "last", by_method, ("the authors' WebCam",)),
        ("label-and-feature-skew", 0, "office9", "last", by_labels, ()),
    ],
)
def test_the_page_says_what_the_records_say(page, number, folder, rule, name, other, records):
    assert records[folder]
    compare(on_page(page, number), in_words(records[folder], rule, name), other)


def over_seeds(records: list[RunRecord], rule: str = "last") -> dict[tuple[str, str], list[str]]:
    """By method and branch: the mean over seeds for every client, and for the mean over clients its deviation too."""
    runs: dict[str, list[RunRecord]] = {}
    for record in records:
        runs.setdefault(by_method(record), []).append(record)
    found = {}
    for method, seeds in runs.items():
        assert len({record.settings["seed"] for record in seeds}) == len(seeds)
        for branch in seeds[0].rules[rule]["mean"]:
            rules = [record.rules[rule] for record in seeds]
            clients = [[one["clients"][name][branch] for one in rules] for name in rules[0]["clients"]]
            means = [one["mean"][branch] for one in rules]
            spread = f" ± {100 * stdev(means):.1f}" if len(means) > 1 else ""
            found[method, branch] = [
                *(f"{100 * fmean(each):.1f}" for each in clients),
                f"{100 * fmean(means):.1f}{spread}",
            ]
    return found


@pytest.mark.parametrize(("page", "other"), [("heart-disease", ("lr", "rounds")), ("spoken-digits", ())])
def test_the_pages_on_own_data_say_what_the_records_say(page, other, records):
    table = on_page(page)
    compare(table, over_seeds(records[page]), other)
    runs = {(by_method(record), record.settings["seed"]) for record in records[page]}
    assert runs == {(METHODS[name].title, seed) for name in METHODS_OF_PAPER for seed in (0, 1, 2)}
    if page == "heart-disease":
        chosen = json.loads((RECORDS / "heart-disease-choice.json").read_text(encoding="utf-8"))
        for record in records[page]:
            row, settings = said(table)[by_method(record), "fused"], record.settings
            assert (row["lr"], row["rounds"]) == (f"{settings['local']['lr']:g}", str(settings["server"]["rounds"]))
            best = chosen[settings["method"]["name"]]["chosen"]
            assert (best["lr"], best["rounds"]) == (settings["local"]["lr"], settings["server"]["rounds"])


def test_the_page_says_how_newcomers_did():
    """Means over seeds and draws of shots. Who has nothing personal that predicts has one row, for nothing changes."""
    record = json.loads((RECORDS / "spoken-digits-newcomers.json").read_text(encoding="utf-8"))
    heads, *shown = on_page("spoken-digits", 1)
    speakers, wanted = heads[2:-1], []
    assert {(one["method"], one["client"]) for one in record} == set(product(METHODS_OF_PAPER, speakers))
    for name in METHODS_OF_PAPER:
        mine = [one for one in record if one["method"] == name]
        changes = any(value != one["before"] for one in mine for each in one["after"].values() for value in each)
        found = {"before" if changes else "as it is": [{**one, "now": [one["before"]]} for one in mine]}
        for shots in mine[0]["after"] if changes else ():
            found[f"{shots} shots"] = [{**one, "now": one["after"][shots]} for one in mine]
        for when, runs in found.items():
            means = [fmean(fmean(one["now"]) for one in runs if one["client"] == speaker) for speaker in speakers]
            wanted.append([METHODS[name].title, when, *(f"{100 * value:.1f}" for value in (*means, fmean(means)))])
    assert shown == wanted


def test_the_page_says_what_the_records_of_the_ablations_say(records):
    whole = [record for record in records["digits"] if record.settings["method"]["name"] == "fedco2"]
    runs = [*records["digits-ablations"], *whole]
    assert len(runs) == 4
    compare(on_page("cooperation"), in_words(runs, "last", by_cooperation))


def skew(record: RunRecord) -> str:
    data = record.settings["data"]
    return "pathological" if data["skew"] == "pathological" else f"Dirichlet {data['alpha']:g}"


def quirks(record: RunRecord) -> str:
    """The method, and what of it is not as in Table 3."""
    method = record.settings["method"]
    said = {"moon": {"initial": ", previous model never updated"}, "fedrod": {False: ", plain cross entropy"}}
    choice = method.get("previous", method.get("balanced"))
    return by_method(record) + said.get(method["name"], {}).get(choice, "")


def test_the_page_says_what_the_records_of_cifar_say(records):
    """Table 3 has all test images over the window, and its std over evaluations; Figure 4 the mean after the last."""
    table, figure = on_page("cifar10", 0), on_page("cifar10", 2)
    shown, drawn = said(table), said(figure)
    counted = 0
    for record in records["cifar10"]:
        if record.settings["data"]["clients"] == 100:
            rule, row = record.rules["window"], shown[quirks(record), "fused"]
            assert row[skew(record)] == f"{100 * rule['micro']['fused']:.1f} ± {100 * over_rounds(rule):.1f}"
            counted += 1
        else:
            for branch, mean in record.rules["last"]["mean"].items():
                assert drawn["Fed-CO2", branch][skew(record)] == f"{100 * mean:.1f}"
                counted += 1
    assert counted == sum(len(row) for row in shown.values()) + sum(
        not head.startswith("the authors") for row in drawn.values() for head in row
    )


def in_full(record: RunRecord) -> str:
    """The method, and what of it is not as in the preset."""
    statistics = ", personal statistics" * (record.settings["method"].get("bn_stats") == "local")
    return by_method(record) + statistics + ", last batch dropped" * (record.settings["local"]["last_batch"] == "drop")


def test_the_page_says_what_the_records_of_cifar_in_full_say(records):
    """A table for each skew, beside the paper's own numbers, and the difference."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for record in records["cifar10-full"]:
        rule = record.rules["window"]
        for branch, micro in rule["micro"].items():
            if branch in ("fused", "offline"):
                name = "SingleSet" if branch == "offline" else in_full(record)
                std = rule["micro_std_over_rounds"][branch]
                found.setdefault(skew(record), {})[name] = 100 * micro, 100 * std
    paper, pages = load_paper_numbers("T3"), tables(PAGES / "cifar10-full.md")
    for title, runs in found.items():
        (shown,) = [said(table) for table in pages if table[0][0] == title]
        assert {(name, "fused") for name in runs} == set(shown)
        for name, (micro, std) in runs.items():
            printed, row = paper["", name.split(",")[0], f"CIFAR-10, {title}"], shown[name, "fused"]
            assert row["here"] == f"{micro:.1f} ± {std:.1f}"
            assert row["the paper"] == f"{printed.value:.2f} ± {printed.std:.2f}"
            assert row["difference"] == f"{micro - printed.value:+.1f}"


def test_the_page_of_fusion_says_what_an_offline_model_is_worth_after_100_rounds(records):
    """Of the runs in full the rows of that round, of the cooperation those of its end."""
    found = {}
    for record in (*records["cifar10-full"], *records["cifar10-cooperation"]):
        settings = record.settings
        name = "FedPer + SingleSet" if settings["method"]["name"] == "cooperate" else in_full(record)
        clients: dict[str, list[float]] = {}
        for row in record.test:
            if row["round"] == 100:
                clients.setdefault(row["branch"], []).append(row["accuracy"])
        assert all(len(values) == 100 for values in clients.values())
        found[name] = [
            f"{100 * fmean(clients[branch]):.1f}" if branch in clients else "-"
            for branch in ("fused", "online", "offline")
        ]
    (shown,) = [table for table in tables(PAGES / "fusion.md") if table[0][0] == "CIFAR-10, Dirichlet 0.3, round 100"]
    assert {name for name, *_ in shown[1:]} == {"Fed-CO2", "FedPer", "FedPer + SingleSet"}
    for name, *cells in shown[1:]:
        assert cells == found[name]


def test_the_page_says_what_other_seeds_say(records):
    """Every method that has more than one seed, beside the mean that the paper prints."""
    (heads, *rows), paper = on_page("digits", 4), load_paper_numbers("T7")
    means: dict[str, dict[str, float]] = {}
    for record in (*records["digits"], *records["digits-seeds"]):
        found = 100 * record.rules["last"]["mean"]["fused"]
        means.setdefault(by_method(record), {})[f"seed {record.seeds[0]}"] = found
    several = {method: found for method, found in means.items() if len(found) > 1}
    assert {method for method, *_ in rows} == set(several)
    for method, *cells in rows:
        found, printed = several[method], paper["", method, "mean"]
        ours = compute_mean_std(list(found.values()))
        shown = dict(zip(heads[1:], cells, strict=True))
        assert shown.pop("mean ± std") == f"{ours.mean:.1f} ± {ours.std:.1f}"
        assert shown.pop("the paper") == f"{printed.value:.2f} ± {printed.std:.2f}"
        assert shown == {seed: f"{found[seed]:.1f}" if seed in found else "-" for seed in shown}
        assert set(found) <= set(shown)


def by_domain(record: RunRecord, rule: str) -> dict[str, float]:
    """Accuracy of every client and their mean, in %."""
    result = record.rules[rule]
    clients = {client: 100 * one["fused"] for client, one in result["clients"].items()}
    return clients | {"mean": 100 * result["mean"]["fused"]}


@pytest.mark.parametrize(
    ("page", "folder", "rule", "name", "digits"),
    [("digits", "digits", "last", "T7", 2), ("office", "office", "best-by-validation", "T1", 1)],
)
def test_the_pages_show_what_the_paper_prints(page, folder, rule, name, digits, records):
    """As printed, with the spread of the mean, and ours - the paper's in brackets."""
    paper, (_, *rows) = load_paper_numbers(name), on_page(page, 1)
    runs = {by_method(record): by_domain(record, rule) for record in records[folder]}
    assert {method for method, *_ in rows} == set(runs)
    for method, *cells in rows:
        expected = []
        for column, ours in runs[method].items():
            printed = paper["", method, column]
            spread = f" ± {printed.std:.{digits}f}" if column == "mean" else ""
            expected.append(f"{printed.value:.{digits}f}{spread} ({ours - printed.value:+.1f})")
        assert cells == expected, method


def test_the_page_of_cifar_shows_what_the_paper_prints(records):
    paper, (heads, *rows) = load_paper_numbers("T3"), on_page("cifar10", 1)
    table3 = [record for record in records["cifar10"] if record.settings["data"]["clients"] == 100]
    runs = {(quirks(record), skew(record)): record for record in table3}
    assert len(rows) == 8
    for method, *cells in rows:
        for place in (0, 2):
            printed = paper["", method, f"CIFAR-10, {heads[place + 1]}"]
            ours = 100 * runs[method, heads[place + 1]].rules["window"]["micro"]["fused"]
            assert cells[place] == f"{printed.value:.2f} ± {printed.std:.2f}"
            assert cells[place + 1] == f"{ours - printed.value:+.1f}"


def test_the_page_of_cooperation_shows_what_the_paper_prints(records):
    """What a way gains is against neither way, here and there."""
    paper, (_, *rows) = load_paper_numbers("T5"), on_page("cooperation", 1)
    whole = [record for record in records["digits"] if record.settings["method"]["name"] == "fedco2"]
    runs = {by_cooperation(one): by_domain(one, "last")["mean"] for one in (*records["digits-ablations"], *whole)}
    base, printed_base = runs["neither"], paper["", "neither", "mean"].value
    for way, *cells in rows:
        ours, printed = runs.pop(way), paper["", way, "mean"]
        gains = ["-", "-"] if way == "neither" else [f"{ours - base:+.1f}", f"{printed.value - printed_base:+.2f}"]
        assert cells == [f"{ours:.1f}", gains[0], f"{printed.value:.2f} ± {printed.std:.2f}", gains[1]]
    assert not runs


def test_the_page_of_label_and_feature_skew_shows_what_the_paper_prints(records):
    paper, (_, printed, *rows) = load_paper_numbers("T9"), on_page("label-and-feature-skew", 1)
    runs = {by_labels(record): by_domain(record, "last") for record in records["office9"]}
    numbers = {column: paper["", "FedBN", column] for column in runs["as published"]}
    assert printed[1:] == [f"{number.value} ± {number.std}" for number in numbers.values()]
    assert {label.removesuffix(", difference") for label, *_ in rows} == set(runs)
    for label, *cells in rows:
        ours = runs[label.removesuffix(", difference")]
        assert cells == [f"{ours[column] - number.value:+.1f}" for column, number in numbers.items()]


def test_the_page_of_office_says_how_steady_webcam_is(records):
    """Validation accuracy of twenty rounds at a time, and the mean change from one round to the next."""
    _, *rows = on_page("office", 4)
    runs = {by_method(record): record for record in records["office"]}
    assert {method for method, *_ in rows} == set(runs)
    for method, norm, *cells in rows:
        curve = {k: 100 * value for k, value in runs[method].curves["val", "webcam", "fused"].items()}
        assert norm == ("yes" if runs[method].settings["model"]["norm"] else "no")
        for start, cell in zip((41, 61, 81), cells[:-1], strict=True):
            part = [curve[k] for k in range(start, start + 20)]
            assert cell == f"{fmean(part):.0f} ({min(part):.0f} to {max(part):.0f})"
        assert cells[-1] == f"{fmean(abs(curve[k + 1] - curve[k]) for k in range(41, 100)):.1f}"
    fedrod = runs["FedRoD"].curves
    tested = [f"{100 * fedrod['test', 'webcam', 'fused'][k]:.1f}" for k in (46, 48)]
    validated = [f"{100 * fedrod['val', 'webcam', 'fused'][k]:.0f}" for k in (66, 69)]
    page = " ".join((PAGES / "office.md").read_text(encoding="utf-8").split())
    assert "{} % after round 46 and {} % after round 48".format(*tested) in page
    assert "{} % after round 66 and {} % after round 69".format(*validated) in page


def forecast_row(record: RunRecord) -> tuple[str, str] | None:
    """The row of the forecasts that a run stands in, and the rule it is taken by."""
    data, method = record.settings["data"], record.settings["method"]
    if data["dataset"] == "cifar10":
        return f"CIFAR-10, {data['clients']} clients, {skew(record)}", "window"
    if data["skew"] == "domain" and (
        data["dataset"] == "office" or method.get("intra") == method.get("inter") == "none"
    ):
        return {"digits": "Digits", "office": "Office-Caltech10"}[data["dataset"]], "last"
    return None


def test_the_forecasts_and_what_was_trained_are_what_the_records_say(records):
    shown = said(on_page("forecasts"))
    methods = ("SingleSet", "FedBN", "Fed-CO2")
    models = {"offline": "SingleSet", "online": "FedBN", "fused": "Fed-CO2"}  # what they are without transfer
    trained: dict[tuple[str, str], str] = {}
    elsewhere = ("cifar10-full", "cifar10-cooperation", "forecast-")  # other tables
    forecast_for = {folder: runs for folder, runs in records.items() if not folder.startswith(elsewhere)}
    for record in (one for runs in forecast_for.values() for one in runs):
        if place := forecast_row(record):
            row, rule = place
            name = by_method(record)
            if name == "Fed-CO2":
                for branch, mean in record.rules[rule]["mean"].items():
                    if branch == "fused" or row != "Office-Caltech10":
                        trained.setdefault((row, models[branch]), f"{100 * mean:.1f}")
            elif name in methods:
                trained[row, name] = f"{100 * record.rules[rule]['mean']['fused']:.1f}"
    forecasts = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((RECORDS / "forecast").iterdir())]
    assert len(forecasts) == len(shown)
    assert not any(one["standin"] for one in forecasts)
    means = {tuple(f"{100 * one['mean'][method]:.1f}" for method in methods) for one in forecasts}
    for (row, _), cells in shown.items():
        assert tuple(cells[f"{method}: forecast"] for method in methods) in means
        for method in methods:
            assert cells[f"{method}: trained"] == trained[row, method], (row, method)


def over_rounds(rule: RuleResult) -> float:
    return float(rule["micro_std_over_rounds"]["fused"])


def test_the_readme_says_what_the_records_say(records):
    """Every accuracy on Digits in a table of it; the page has all rows."""
    found = in_words(records["digits"], "last")
    shown = [said(table) for table in tables(ROOT / "README.md") if "SVHN (subset)" in table[0]]
    assert shown
    for key, row in (item for table in shown for item in table.items()):
        assert list(row.values()) == found[key], key


def format_kernel_number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"


DEEP_PAGE = ROOT / "docs" / "theory" / "deep-networks.md"
ORDERINGS = ("O1", "O2", "O3", "O4")


def load_kernel_studies(folder: str) -> list[dict[str, Any]]:
    """The records of kernels of runs."""
    studies = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((RECORDS / folder).glob("*.json"))]
    assert studies
    assert not any(study["standin"] for study in studies)
    return studies


def name_study(study: dict[str, Any]) -> str:
    return f"{study['method_title']}, {study['title']}"


def test_the_page_on_deep_networks_says_what_the_records_say():
    """Every model at every checkpoint, every verdict of Fed-CO2, and each client's best share."""
    _, spectra, verdicts, _, sharing = tables(DEEP_PAGE)[:5]
    found, judged, shared = [], [], []
    for study in load_kernel_studies("deep-kernels"):
        for one in study["checkpoints"]:
            said = [one["orderings"][name]["verdict"] for name in ORDERINGS]
            if study["method"] == "fedco2":
                judged.append([str(one["round"]), *said])
                best = one["sharing"]
                for client in study["clients"]:
                    values = (best["by_lambda_min"], best["left_out"][client], best["held_out"][client])
                    shared.append([str(one["round"]), client, *map(format_kernel_number, values)])
            else:
                assert said == ["holds"] * 4
            for name, model in one["models"].items():
                spectrum = model["spectrum"]
                low = None if spectrum["condition"] is None else spectrum["lambda_min"]
                values = (low, *(spectrum[key] for key in ("lambda_max", "condition", "effective_rank", "alignment")))
                numbers = map(format_kernel_number, (*values, model["drift"]))
                found.append([name_study(study), str(one["round"]), name, *numbers])
    assert (spectra[1:], verdicts[1:], sharing[1:]) == (found, judged, shared)


def test_the_page_on_deep_networks_says_what_office_with_a_small_network_says():
    """Verdicts and best shares of Fed-CO2 with each seed, and every model at every checkpoint."""
    verdicts, spectra = tables(DEEP_PAGE)[5:]
    judged, found, tiny = [], [], []
    page = " ".join(DEEP_PAGE.read_text(encoding="utf-8").split())
    for path in sorted((RECORDS / "deep-kernels-office32").glob("*.json")):
        study = json.loads(path.read_text(encoding="utf-8"))
        assert not study["standin"]
        assert str(study["accuracy"]["fused"]) in page
        name = f"{study['method_title']}, seed {path.stem[-1]}"
        for one in study["checkpoints"]:
            said = [one["orderings"][ordering]["verdict"] for ordering in ORDERINGS]
            if study["method"] == "fedco2":
                best = one["sharing"]
                known = [[v for v in best[key].values() if v is not None] for key in ("left_out", "held_out")]
                means = [f"{sum(values) / len(values):.2f}" if values else "-" for values in known]
                judged.append([name, str(one["round"]), *said, f"{best['by_lambda_min']:.2f}", *means])
            else:
                assert said == ["holds"] * 4
            for model, numbers in one["models"].items():
                spectrum, own = numbers["spectrum"], numbers.get("own_round", {})
                values = [spectrum[key] for key in ("lambda_min", "lambda_max", "condition", "alignment")]
                values += [numbers["drift"], own.get("error"), own.get("cosine")]
                found.append([name, str(one["round"]), model, *map(format_kernel_number, values)])
                tiny += [numbers["tiny_round"]["error"]] if own else []
    assert (verdicts[1:], spectra[1:]) == (judged, found)
    assert max(tiny) < 0.002  # "to 0.2 % or better"


def test_the_page_on_mixtures_says_what_the_records_say():
    """Of Fed-CO2 at every checkpoint the best share, as a mean over clients where each has its own."""
    shown = next(table for table in tables(DEEP_PAGE.with_name("mixtures.md")) if "by held-out data" in table[0][-1])
    found, ends = [], []
    for one in next(s for s in load_kernel_studies("deep-kernels") if s["method"] == "fedco2")["checkpoints"]:
        best = one["sharing"]
        federated = best["federated_lambda_min"]
        ends.append(federated[-1] / federated[0])
        divided = best["w"][federated.index(max(federated))]
        known = [[v for v in best[key].values() if v is not None] for key in ("left_out", "held_out")]
        means = [f"{sum(values) / len(values):.2f}" if values else "-" for values in known]
        found.append([str(one["round"]), f"{best['by_lambda_min']:.2f}", f"{divided:.2f}", *means])
    assert shown[1:] == found
    page = " ".join(DEEP_PAGE.with_name("mixtures.md").read_text(encoding="utf-8").split())
    assert f"λ_min at w = 1 is {min(ends):.2f} to {max(ends):.2f} of that at w = 0" in page


def test_the_page_on_deep_networks_says_how_far_kernels_predict_rounds():
    rounds = tables(DEEP_PAGE)[3]
    found = []
    for study in load_kernel_studies("deep-kernels-rounds"):
        for one in study["checkpoints"]:
            model = one["models"]["model"]
            assert model["tiny_round"]["error"] < 0.01
            values = (model["tiny_round"]["error"], model["own_round"]["error"], model["own_round"]["cosine"])
            found.append([name_study(study), str(one["round"]), *map(format_kernel_number, values)])
    assert rounds[1:] == found


def test_the_page_on_deep_networks_says_what_statistics_alone_do():
    page = " ".join(DEEP_PAGE.read_text(encoding="utf-8").split())
    record = json.loads((RECORDS / "deep-kernels-statistics" / "digits-fedbn.json").read_text(encoding="utf-8"))
    measured, last = record["spectrum"], record["trained"]["spectrum"]
    assert f"is already {measured['lambda_min']:,.0f} and λ_max {measured['lambda_max']:,.0f}" in page
    assert f"({last['lambda_min']:,.0f} and {last['lambda_max']:,.0f} after 20 rounds)" in page


def test_what_was_foretold_before_training_is_what_the_records_say(records):
    """The dated file says what the forecasts said, and the page compares them with the runs."""
    dated = tomllib.loads((PAGES / "forecasts" / "2026-11-18.toml").read_text(encoding="utf-8"))
    folder = RECORDS / "forecast-2026-11-18"
    for name, said_then in dated.items():
        told = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        assert {method: round(100 * mean, 1) for method, mean in told["mean"].items()} == said_then["mean"]
    trained: dict[tuple[str, str], str] = {}
    branches = {"offline": "SingleSet", "online": "FedBN", "fused": "Fed-CO2"}
    for record in records["forecast-2026-11-18"]:
        name, network = by_method(record), record.settings["model"]["name"]
        for branch, mean in record.rules["last"]["mean"].items():
            trained[network, branches[branch] if name == "Fed-CO2" else name] = f"{100 * mean:.1f}"
    for number, network in enumerate(dated, 1):
        (title, *_), *rows = on_page("forecasts", number)
        assert title.removesuffix(" network").lower() == network
        assert {method for method, *_ in rows} == set(dated[network]["mean"])
        for method, foretold, reached in rows:
            assert foretold == f"{dated[network]['mean'][method]:.1f}"
            assert reached == trained[network, method]


BRANCHES = {"offline": "SingleSet", "online": "FedBN", "fused": "Fed-CO2"}
"""What the models of Fed-CO2 are without knowledge transfer."""


def name_models(record: RunRecord, means: dict[str, float]) -> dict[str, float]:
    """By the method that each branch is."""
    name = by_method(record)
    return {BRANCHES[branch] if name == "Fed-CO2" else name: value for branch, value in means.items()}


def test_the_second_file_of_forecasts_and_its_tables_are_what_the_records_say(records):
    """Forecasts are means over networks drawn, results over the seeds that were trained."""
    dated = tomllib.loads((PAGES / "forecasts" / "2026-11-19.toml").read_text(encoding="utf-8"))
    folder = RECORDS / "forecast-2026-11-19"
    for number, (name, said_then) in enumerate(dated.items(), 3):
        told = [json.loads(path.read_text(encoding="utf-8"))["mean"] for path in sorted(folder.glob(f"{name}*.json"))]
        means = {method: sum(one[method] for one in told) / len(told) for method in told[0]}
        assert {method: float(f"{100 * mean:.1f}") for method, mean in means.items()} == said_then["mean"]
        trained: dict[str, list[float]] = {}
        for record in records["forecast-2026-11-19"]:
            if record.settings["model"]["name"] == name:
                for method, mean in name_models(record, record.rules["last"]["mean"]).items():
                    trained.setdefault(method, []).append(100 * mean)
        _, *rows = on_page("forecasts", number)
        assert {method for method, *_ in rows} == set(trained)
        for method, foretold, reached in rows:
            assert foretold == f"{said_then['mean'][method]:.1f}"
            assert reached == f"{sum(trained[method]) / len(trained[method]):.1f}"


def test_what_longer_training_changed_is_what_the_records_say(records):
    """Ten times the rounds of the forecast of 18 November."""
    page = " ".join((PAGES / "forecasts.md").read_text(encoding="utf-8").split())
    found: dict[str, float] = {}
    for record in records["forecast-longer"]:
        found |= name_models(record, record.rules["last"]["mean"])
    assert f"SingleSet reaches {100 * found['SingleSet']:.1f}" in page
    assert f"FedAvg {100 * found['FedAvg']:.1f}" in page


def test_the_table_of_fusion_rules_is_that_of_its_records():
    """Means over clients; the gaps to the better branch too."""
    runs = json.loads((RECORDS / "fusion" / "rules.json").read_text(encoding="utf-8"))
    accuracies, gaps = (on_page("fusion", number) for number in (0, 1))
    assert {row[0] for row in accuracies[1:]} == {row[0] for row in gaps[1:]} == set(runs)
    rules = ["logits", "probabilities", "weighted", "best"]
    assert [accuracies[0][1:], gaps[0][1:]] == [["online", "offline", *rules], rules]
    for shown, (name, *points) in zip(accuracies[1:], gaps[1:], strict=True):
        clients = runs[name]["clients"]
        mean = {key: sum(one[key] for one in clients) / len(clients) for key in accuracies[0][1:]}
        assert shown == [name, *(f"{100 * mean[key]:.1f}" for key in mean)]
        better = max(mean["online"], mean["offline"])
        assert points == [f"{100 * (mean[rule] - better):+.1f}".replace("-", "−") for rule in rules]
