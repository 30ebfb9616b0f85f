"""``fedco2 evaluate`` as a user meets it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest

from cli.main import main
from fedtrain.data.source import load_dataset
from fedtrain.inference import evaluate
from fedtrain.report.formatting import format_points

TRAIN = ["train", "--dataset", "digits", "--rounds", "2", "--eval-every", "2", "--lr", "0.0001", "--threads", "1"]
SMALL = ["--set", "model.name=two-layer", "--set", "model.width=32", "--set", "data.percent=0.01", "--json"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A small run on the stand-in, which was taken because no real data were there."""
    path = tmp_path_factory.mktemp("evaluate")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDCO2_DATA", str(path / "none"))
        assert main([*TRAIN, *SMALL, "--set", "data.val_size=20", "--out", str(path / "run")]) == 0
    return path / "run"


@pytest.fixture
def ask(capsys):
    def run(*arguments):
        code = main(["evaluate", *map(str, arguments)])
        out = capsys.readouterr()
        return code, out.out, out.err

    return run


def metrics(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("split", ["test", "val"])
def test_it_gives_the_rows_of_the_last_round_bit_by_bit(run, ask, split):
    code, out, _ = ask(run, "--split", split, "--json")
    assert code == 0
    assert json.loads(out)["rows"] == [row for row in metrics(run) if row["split"] == split]


def test_mean_and_worst_are_those_of_the_summary(run, ask):
    report = json.loads(ask(run, "--json")[1])
    last = json.loads((run / "summary.json").read_text())["rules"]["last"]
    assert {kind: report[kind] for kind in ("mean", "worst", "std", "micro")} == {
        kind: last[kind] for kind in ("mean", "worst", "std", "micro")
    }
    assert (report["standin"], report["round"]) == (True, 2)


def test_branches_can_be_fused_by_another_rule(run, ask):
    plain = json.loads(ask(run, "--split", "val", "--json")[1])
    best = json.loads(ask(run, "--split", "val", "--fusion", "best", "--json")[1])
    assert plain["gap"]["mean"] == plain["mean"]["fused"] - max(plain["mean"][name] for name in ("online", "offline"))
    for client, gap in best["gap"]["clients"].items():
        assert gap == 0, client  # chosen on these very samples
    others = [[row for row in report["rows"] if row["branch"] != "fused"] for report in (plain, best)]
    assert others[0] == others[1]
    code, _, err = ask(run, "--fusion", "bets")
    assert code == 2
    assert "did you mean 'best'" in err


def test_one_client(run, ask):
    report = json.loads(ask(run, "--client", "usps", "--json")[1])
    assert report["rows"] == [row for row in metrics(run) if row["client"] == "usps" and row["split"] == "test"]
    assert "mean" not in report


@pytest.mark.parametrize("columns", [80, 140])
def test_a_table_for_people(run, ask, terminal, columns):
    terminal(columns)
    code, out, _ = ask(run)
    lines = out.splitlines()
    assert code == 0
    assert lines[0].startswith("Fed-CO2 on Digits (stand-in), test data of each client")
    assert "note: stand-in images" in out
    rows = {line.split()[0]: line.split() for line in lines if line.strip()}
    told = {(row["client"], row["branch"]): row for row in metrics(run) if row["split"] == "test"}
    for client in ("mnist", "svhn", "usps", "synthdigits", "mnist_m"):
        branches = [told[client, branch] for branch in ("fused", "online", "offline")]
        assert rows[client][1:4] == [f"{100 * row['accuracy']:.1f}" for row in branches]
        fused, *others = (row["accuracy"] for row in branches)
        assert rows[client][4] == format_points(fused - max(others))
        assert rows[client][5:] == [*(f"{row['loss']:.4g}" for row in branches), "400"]
    assert {"mean", "worst"} <= rows.keys()
    assert max(map(len, lines)) <= columns


def test_a_run_on_the_stand_in_stays_on_it_when_real_data_arrive(run, ask, monkeypatch):
    asked = []
    monkeypatch.setattr(
        evaluate, "load_dataset", lambda settings, root: asked.append(settings.source) or load_dataset(settings, root)
    )
    assert ask(run)[0] == 0
    assert asked == ["standin"]


def edited(run, tmp_path, **data):
    copy = shutil.copytree(run, tmp_path / "run")
    told = json.loads((copy / "manifest.json").read_text())
    told["data"] |= data
    (copy / "manifest.json").write_text(json.dumps(told))
    return copy


def test_other_data_are_refused(run, ask, tmp_path):
    code, out, err = ask(edited(run, tmp_path, sha256="0" * 64))
    assert (code, out) == (3, "")
    assert "trained on other data" in err
    assert "train anew" in err
    assert err.count("\n") == 1


def test_data_that_are_gone_are_missed(run, ask, tmp_path):
    code, _, err = ask(edited(run, tmp_path, standin=False), "--data-dir", tmp_path)
    assert code == 3
    assert "fedco2 data get digits" in err


def test_bad_wishes_are_refused(run, ask, tmp_path):
    code, _, err = ask(run, "--client", "upss")
    assert (code, "did you mean 'usps'" in err) == (2, True)
    code, _, err = ask(tmp_path)
    assert (code, "no run is here" in err) == (2, True)
    code, _, err = ask(run, "--device", "tpu")
    assert (code, "unknown device 'tpu'" in err) == (2, True)


def test_a_split_that_is_not_there(run, ask, monkeypatch):
    def without_val(*arguments):
        data = evaluate.load_run_data(*arguments)
        return replace(data, clients=tuple(replace(client, val=None) for client in data.clients))

    monkeypatch.setattr("cli.evaluate.run.load_run_data", without_val)
    code, _, err = ask(run, "--split", "val")
    assert (code, "client mnist has no val data" in err) == (2, True)
