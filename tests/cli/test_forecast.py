"""``fedco2 forecast`` as a user meets it."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import fedtrain
from cli.main import main
from fedtrain.analysis.kernel_problem import build_kernel_problem
from fedtrain.config.data import DataSettings
from fedtrain.data.build import build_federation
from tests.tools.found_files import SITES, TABLE, write_table

SMALL = ["--dataset", "cifar10", "--data", "standin", "--clients", "3", "--samples", "8", "--width", "32"]


@pytest.fixture
def ask(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments):
        code = main(["forecast", *map(str, arguments)])
        out = capsys.readouterr()
        return code, out.out, out.err

    return run


@pytest.fixture
def file(tmp_path):
    """(classes) -> an npz of three clients, the last of which has it the other way round."""

    def make(classes):
        chance = np.random.default_rng(0)
        x, owner = chance.standard_normal((240, 20)), np.repeat(["a", "b", "odd"], 80)
        y = x @ np.arange(1, 21) * np.where(owner == "odd", -1, 1)
        np.savez(tmp_path / "mine.npz", X=x, y=(y > 0).astype(int) if classes else y, owner=owner)
        return tmp_path / "mine.npz"

    return make


def test_a_table_and_a_verdict_that_say_it_is_the_stand_in(ask):
    code, out, err = ask(*SMALL)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("Foretold, nothing trained: CIFAR-10 (stand-in)")
    assert sum(line.startswith("client") for line in lines) == 4  # the heading and three clients
    assert "STAND-IN DATA" in out
    assert "two-layer network" in out
    assert max(map(len, lines[1:12])) <= 80


@pytest.mark.parametrize("classes", [True, False])
def test_the_client_that_federation_hurts_is_found(ask, file, classes):
    code, out, _ = ask("--dataset", file(classes), "--json")
    told = json.loads(out)
    assert code == 0
    assert told["notes"][0] == f"y are taken as {'2 classes' if classes else 'numbers'}"
    assert "centred" in told["notes"][1]
    words = {row["name"]: row["federation"]["word"] for row in told["clients"]}
    assert words["odd"] == "hurts"
    gains = {row["name"]: row["federation"]["gain"] for row in told["clients"]}
    assert min(gains, key=gains.get) == "odd"
    for row in told["clients"]:
        assert row["federation"]["gain"] == pytest.approx(row["scores"]["FedBN"] - row["scores"]["SingleSet"])
    order = sorted(("SingleSet", "FedBN", "Fed-CO2"), key=lambda name: -told["mean"][name])
    assert [told["first"]["method"], told["first"]["second"]] == order[:2]
    assert told["first"]["gain"] == pytest.approx(told["mean"][order[0]] - told["mean"][order[1]])


def test_ages_are_not_classes_unless_they_are_said_to_be(ask, tmp_path):
    x = np.random.default_rng(0).standard_normal((40, 3))
    np.savez(tmp_path / "ages.npz", X=x, y=np.arange(40) % 20, owner=np.arange(40) // 20)
    for target, words in ((), "numbers"), (("--target", "classes"), "20 classes"):
        told = json.loads(ask("--dataset", tmp_path / "ages.npz", "--width", "16", *target, "--json")[1])
        assert told["notes"][0] == f"y are taken as {words}"


def test_what_cannot_fit_is_refused_before_it_is_tried(ask, file, monkeypatch):
    monkeypatch.setattr("fedtrain.forecasting.get_available_memory", lambda: 2**20)
    code, _, err = ask("--dataset", file(True))
    assert code == 2
    assert "give fewer rows" in err
    assert "lower samples (--samples)" in ask(*SMALL[:-2], "--samples", "200")[2]


def test_methods_are_foretold_with_the_network_that_would_be_trained(ask):
    arguments = [
        *SMALL[:-2],
        "--network",
        "two-layer",
        "--methods",
        "singleset,fedbn,fedper",
        "--shared",
        "tail=head.*",
    ]
    code, out, err = ask(*arguments)
    assert (code, err) == (0, "")
    head = next(line for line in out.splitlines() if line.startswith("client"))
    assert all(name in out for name in ("SingleSet", "FedBN", "FedPer", "tail")), head
    told = json.loads(ask(*arguments, "--json")[1])
    assert (told["network"], told["methods"]) == ("two-layer", ["SingleSet", "FedBN", "FedPer", "tail"])
    assert "batch norm has seen" in " ".join(told["notes"])
    assert [row["samples"] for row in told["clients"]] == [8, 8, 8]
    order = sorted(told["methods"], key=lambda name: -told["mean"][name])
    assert [told["order"][0]["method"], *(one["ahead_of"] for one in told["order"])] == order
    for one in told["order"]:
        assert one["gain"] == pytest.approx(told["mean"][one["method"]] - told["mean"][one["ahead_of"]])


def test_many_methods_take_several_tables_and_no_number_is_cut_off(ask):
    methods = "singleset,fedavg,fedper,fedbn,fedco2,fedrod,ditto,scaffold"
    code, out, _ = ask(*SMALL[:-2], "--network", "two-layer", "--methods", methods)
    assert code == 0
    assert "…" not in out
    words = out.split()
    for name in ("SingleSet", "FedAvg", "FedPer", "FedBN", "Fed-CO2", "FedRoD", "Ditto", "SCAFFOLD", "federation"):
        assert name in words
    assert sum(line.startswith("mean of all") for line in out.splitlines()) == 2


def test_one_method_alone_has_scores_and_no_verdict(ask):
    code, out, _ = ask(*SMALL[:-2], "--network", "two-layer", "--methods", "fedavg")
    assert code == 0
    assert "ahead of" not in out
    assert "federation" not in out


def test_many_clients_are_shown_from_both_ends(ask):
    many = [*SMALL[:4], "--skew", "iid", "--clients", "60", "--samples", "4", "--width", "8"]
    code, out, _ = ask(*many)
    assert code == 0
    assert sum(line.startswith("client") for line in out.splitlines()) == 25
    told = json.loads(ask(*many, "--json")[1])
    assert len(told["clients"]) == 60
    assert "16 x 16 pixels" in " ".join(told["notes"])


def test_images_are_made_small_and_centred_and_drawn_by_the_seed():
    data = build_federation(DataSettings(dataset="cifar10", source="standin", skew="iid", clients=2))
    one, same, other = (build_kernel_problem(data, 10, seed=seed) for seed in (0, 0, 1))
    assert one.side == 28
    assert one.problem.x.shape == (20, 3 * 28 * 28)
    assert torch.equal(one.problem.x, same.problem.x)
    assert not torch.equal(one.problem.x, other.problem.x)
    for rows in one.problem.blocks:
        assert one.problem.x[rows].mean(0).abs().max() < 1e-6
    assert one.problem.sizes == [10, 10]


def test_errors_name_the_way_out(ask, file, tmp_path):
    x = np.random.default_rng(0).standard_normal((20, 2))
    np.savez(tmp_path / "one.npz", X=x, y=np.ones(20), owner=np.arange(20) // 10)
    np.savez(tmp_path / "alone.npz", X=np.random.default_rng(0).standard_normal((9, 2)), y=np.arange(9), owner=[0] * 9)
    for arguments, words in (
        ([], "Missing option '--dataset'"),
        (["--dataset", "digit"], "did you mean 'digits'"),
        (
            ["--dataset", file(True), "--clients", "3"],
            "says who holds what (--clients)",
        ),
        (["--dataset", file(True), "--data", "real"], "says who holds what (--data)"),
        (
            ["--dataset", file(True), "--data-seed", "3"],
            "says who holds what (--data-seed)",
        ),
        (["--dataset", "digits", "--target", "classes"], "target is for a file of your own"),
        (["--dataset", file(True), "--network-seed", 2**70], "--network-seed"),
        (["--dataset", tmp_path / "one.npz", "--target", "classes"], "of one class"),
        (["--dataset", tmp_path / "none.npz"], "cannot read"),
        (["--dataset", tmp_path / "alone.npz"], "two or more"),
        (["--dataset", "digits", "--skew", "domain", "--alpha", "1"], "means nothing to skew"),
        ([*SMALL[:-2], "--methods", "fedbn"], "methods is for a network that would be trained"),
        ([*SMALL, "--network", "two-layer"], "width is for the paper's two-layer network"),
        ([*SMALL[:-2], "--network", "two-layer", "--methods", "fedbm"], "'fedbm' is no method; choose from"),
        ([*SMALL[:-2], "--network", "two-layer", "--shared", "x"], "write a new name and what it shares"),
        ([*SMALL[:-2], "--network", "two-layer", "--shared", "x=haed.*"], "no entry of the network matches 'haed.*'"),
        (
            ["--dataset", file(True), "--network", "digits"],
            "says who holds what (--network)",
        ),
    ):
        code, out, err = ask(*arguments)
        assert (code, out) == (2, ""), arguments
        assert words in err


def test_the_library_gives_what_the_command_prints(ask, file, capsys):
    report = fedtrain.forecast(str(file(True)), width=64, quiet=True)
    assert capsys.readouterr() == ("", "")
    told = json.loads(ask("--dataset", file(True), "--width", "64", "--json")[1])
    assert report.to_dict() == told
    assert report["odd"].federation.word == "hurts"
    assert report.order[0].method == told["first"]["method"]
    assert report.describe() in repr(report)
    assert "<td>odd</td>" in report._repr_html_()
    with pytest.raises(fedtrain.InputError, match="did you mean 'odd'"):
        report["od"]
    with pytest.raises(fedtrain.InputError, match="unknown option 'client'; did you mean 'clients'"):
        fedtrain.forecast("digits", client=3)


def test_data_under_a_name_are_shared_out_and_foretold(ask, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FEDCO2_DATA", str(tmp_path / "store"))
    path = write_table(tmp_path / "cases.csv")
    assert "which column is to be predicted?" in ask("--dataset", path)[2]
    columns = ["--client-column", TABLE["client_column"], "--target", TABLE["target"]]
    assert main(["data", "add", "cases", str(path), *columns]) == 0
    capsys.readouterr()
    assert main(["data", "clients", "--dataset", "cases", "--json"]) == 0
    shared_out = json.loads(capsys.readouterr().out)["clients"]
    assert {one["name"]: sum(one["train"]) + sum(one["test"]) for one in shared_out} == SITES

    report = fedtrain.forecast("cases", width=32, quiet=True)
    assert {one.name: one.samples for one in report.clients} == {one["name"]: sum(one["train"]) for one in shared_out}
    assert not any("pixels" in note for note in report.notes)
    told = json.loads(ask("--dataset", "cases", "--network", "mlp", "--methods", "fedavg,fedbn", "--json")[1])
    assert [one["name"] for one in told["clients"]] == list(SITES)
    assert "only the paper's data sets have a stand-in" in ask("--dataset", "cases", "--data", "standin")[2]
    assert "alpha means nothing to skew 'domain'" in ask("--dataset", "cases", "--alpha", "1")[2]
