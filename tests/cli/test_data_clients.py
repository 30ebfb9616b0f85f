"""``fedco2 data clients`` as a user meets it."""

from __future__ import annotations

import json
from typing import get_args

import numpy as np
import pytest
from click.testing import CliRunner

from cli.data.clients import clients_command
from cli.main import explain_error
from cli.options import SKEWS
from fedtrain.config import data
from fedtrain.data import datasets, source
from fedtrain.data.client_data import SamplePool
from fedtrain.registry import DATASET_NAMES
from fedtrain.report.label_figure import draw_label_figure
from theory.errors import InputError

CIFAR = ["--dataset", "cifar10", "--skew", "dirichlet", "--clients", "20"]
SIZES = {"digits": (2300, 300), "office": (130, 60), "domainnet": (600, 200), "cifar10": (3000, 600)}


def standin(name):
    """Labels without images: an image that is asked for is an error."""
    data = datasets.get_dataset_info(name)
    order = np.random.RandomState(3)
    halves = [[order.permutation(np.arange(n) % 10) for n in SIZES[name]] for _ in data.domains]
    return [
        SamplePool(domain, f"{domain} (stand-in)", *pair, None, (3, 28, 28))
        for domain, pair in zip(data.domains, halves, strict=True)
    ]


@pytest.fixture(autouse=True)
def nothing_here(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDCO2_DATA", str(tmp_path / "none"))
    monkeypatch.setattr(source, "build_standin_pools", standin)


def ask(*arguments):
    """What the command prints."""
    return CliRunner().invoke(clients_command, arguments, catch_exceptions=False).output


def told(*arguments):
    return json.loads(ask(*arguments, "--json"))


def refused(*arguments):
    with pytest.raises(InputError) as error:
        ask(*arguments)
    return explain_error(error.value)


@pytest.mark.parametrize(
    ("alpha", "first"),
    [
        ("0.3", [208, 61, 76, 383, 206, 138, 675, 92, 0, 497]),
        ("0.7", [266, 231, 136, 381, 336, 209, 92, 524, 52, 379]),
        ("1.0", [235, 489, 379, 284, 191, 144, 51, 199, 387, 685]),
    ],
)
def test_golden_partitions_come_without_inputs(alpha, first):
    report = told(*CIFAR, "--alpha", alpha, "--data-seed", "0")
    assert report["clients"][0]["train"] == first
    assert [client["name"] for client in report["clients"]] == [f"client{i:02}" for i in range(20)]
    assert np.sum([client["train"] for client in report["clients"]], axis=0).tolist() == [5000] * 10
    assert np.sum([client["test"] for client in report["clients"]], axis=0).tolist() == [1000] * 10
    assert (report["dataset"], report["source"], report["skew"], report["seed"]) == (
        *("cifar10", "class counts", "dirichlet"),
        0,
    )


def test_the_golden_pathological_and_large_partitions():
    few = told("--dataset", "cifar10", "--skew", "pathological", "--clients", "20")["clients"]
    held = [{k: n for k, n in enumerate(client["train"]) if n} for client in few[:3]]
    assert held == [{1: 1390, 8: 1354}, {2: 1185, 3: 1081}, {4: 1366, 7: 1390}]
    many = told("--dataset", "cifar10")["clients"]  # the defaults are the paper's
    assert (len(many), many[0]["train"]) == (100, [36, 0, 3, 8, 73, 18, 64, 75, 843, 0])


def test_defaults_are_the_papers():
    digits = told("--dataset", "digits")
    assert [sum(client["train"]) for client in digits["clients"]] == [743] * 5
    assert (digits["source"], digits["title"]) == ("standin", "Digits (stand-in)")
    office = told("--dataset", "office")["clients"]
    assert [(sum(c["train"]), sum(c["val"]), sum(c["test"])) for c in office] == [(62, 50, 60)] * 4
    domainnet = told("--dataset", "domainnet")["clients"]
    assert [(sum(c["train"]), sum(c["val"])) for c in domainnet] == [(105, 105)] * 6
    pachinko = told("--dataset", "cifar100")
    assert (pachinko["skew"], pachinko["alpha"], pachinko["beta"], len(pachinko["clients"])) == (
        "pachinko",
        0.3,
        10,
        100,
    )
    few = told("--dataset", "cifar100", "--skew", "pathological")["clients"]
    assert {np.count_nonzero(client["train"]) for client in few} == {10}
    for name, alpha, divide in (("digits", 0.3, 3), ("office", 1.0, 2), ("domainnet", 2.0, 5)):
        mixed = told("--dataset", name, "--skew", "label+feature")
        assert (mixed["alpha"], mixed["divide"]) == (alpha, divide)
        assert "val" not in mixed["clients"][0]


def test_an_option_takes_the_place_of_a_default():
    assert [sum(c["train"]) for c in told("--dataset", "digits", "--train-size", "10")["clients"]] == [10] * 5
    assert [sum(c["train"]) for c in told("--dataset", "office", "--percent", "0.2")["clients"]] == [26] * 4
    assert told(*CIFAR, "--data-seed", "1")["clients"] != told(*CIFAR)["clients"]
    assert len(told("--dataset", "cifar10", "--clients", "300", "--least", "1")["clients"]) == 300


def test_the_source_can_be_chosen():
    report = told(*CIFAR, "--data", "standin")
    assert (report["source"], np.sum([c["train"] for c in report["clients"]])) == ("standin", 3000)
    said = refused(*CIFAR, "--data", "real")
    assert "fedco2 data get cifar10" in said


def test_real_data_take_the_place_of_class_counts(monkeypatch):
    monkeypatch.setattr(source.store, "list_stored_titles", lambda name, root: {name: name})
    monkeypatch.setattr(source.store, "collect_notes", lambda name, root, wanted: ("a subset",))
    monkeypatch.setattr(source.store, "load_real_pools", lambda name, root, wanted: standin(name))
    report = told(*CIFAR)
    assert (report["source"], report["notes"]) == ("real", ["a subset"])
    assert np.sum([c["train"] for c in report["clients"]]) == 3000


def test_a_table_for_people():
    lines = ask(*CIFAR).splitlines()
    assert lines[0] == "CIFAR-10: dirichlet, α = 0.3, 20 clients, seed 0"
    assert lines[1].startswith("note: from published class counts")
    first = next(line for line in lines if "client00" in line)
    assert first.split() == [
        "client00",
        "208",
        "61",
        "76",
        "383",
        "206",
        "138",
        "675",
        "92",
        "·",
        "497",
        "2,336",
        "464",
    ]
    assert next(line for line in lines if line.split()[:1] == ["all"]).split()[-2:] == ["50,000", "10,000"]
    assert "0 airplane" in lines[-1]
    assert "\x1b" not in "".join(lines)


def test_many_classes_stay_readable_and_a_stand_in_is_named():
    lines = ask("--dataset", "cifar100", "--clients", "20").splitlines()
    assert max(map(len, lines)) < 100
    assert next(line for line in lines if "classes" in line).split() == [
        "client",
        "classes",
        "largest",
        "class",
        "train",
        "test",
    ]
    assert next(line for line in lines if line.split()[:1] == ["all"]).split()[1:] == ["100", "50,000", "10,000"]
    assert any("order of the images matters" in line for line in lines)
    text = ask("--dataset", "digits")
    assert text.startswith("Digits (stand-in): one domain a client")


def test_a_narrow_terminal_gets_the_short_table(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "60")
    text = ask(*CIFAR)
    assert "largest class" in text
    assert "…" not in text


@pytest.mark.parametrize(
    "arguments", [CIFAR, ["--dataset", "cifar10"], ["--dataset", "cifar100"], ["--dataset", "digits"]], ids=str
)
def test_a_figure_is_drawn_once(arguments, tmp_path):
    path = tmp_path / "who.png"
    assert f"Figure: {path}" in ask(*arguments, "--plot", str(path))
    drawn = path.read_bytes()
    assert drawn.startswith(b"\x89PNG")
    assert "not overwritten" in refused(*arguments, "--plot", str(path))
    assert path.read_bytes() == drawn
    assert [p.name for p in tmp_path.iterdir()] == ["who.png"]


def test_bubbles_have_areas_in_proportion_and_bars_the_right_height():
    counts = np.array([[4, 0], [1, 2]])
    figure = draw_label_figure(counts, ["a", "b"], ["x", "y"], "Title")
    totals, axes = figure.subfigs[0].axes
    assert [bar.get_height() for bar in totals.patches] == [4, 3]
    bubbles = axes.collections[0]
    areas = {tuple(at): size for at, size in zip(bubbles.get_offsets().tolist(), bubbles.get_sizes(), strict=True)}
    assert areas.keys() == {(0, 0), (1, 0), (1, 1)}
    assert areas[0, 0] == pytest.approx(2 * areas[1, 1]) == pytest.approx(4 * areas[1, 0])
    many = np.arange(80).reshape(40, 2)
    bars = draw_label_figure(many, [f"client{i:02}" for i in range(40)], ["x", "y"], "Title").subfigs[0].axes[0].patches
    assert [bar.get_height() for bar in bars] == [*many[:, 0], *many[:, 1]]
    assert [bar.get_y() for bar in bars[40:]] == [*many[:, 0]]


def test_bad_wishes_are_refused_in_one_line(tmp_path):
    assert "iid, pathological or dirichlet" in refused("--dataset", "cifar10", "--skew", "domain")
    assert "beta means nothing to skew 'dirichlet'; leave it out (--beta)" in refused(*CIFAR, "--beta", "3")
    assert "data.clients" in refused("--dataset", "digits", "--clients", "3")
    assert "data.percent or data.train_size" in refused("--dataset", "digits", "--percent", "0.1", "--train-size", "5")
    assert "end in .png" in refused(*CIFAR, "--plot", str(tmp_path / "who.gif"))
    assert "there is no folder" in refused(*CIFAR, "--plot", str(tmp_path / "none" / "who.png"))
    assert "seed is -1" in refused(*CIFAR, "--data-seed", "-1")


def test_a_figure_that_cannot_be_drawn_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ask(*CIFAR, "--plot", str(tmp_path / "who.png"))
    assert not list(tmp_path.iterdir())


def test_the_choices_are_those_of_the_library():
    assert tuple(datasets.DATASETS) == DATASET_NAMES
    assert get_args(data.Skew) == SKEWS
