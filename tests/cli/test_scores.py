"""Further scores and saved predictions from `fedco2 train` to `fedco2 report`, on runs of a second."""

import json

import numpy as np
import pytest
from quick_runs import QUICK_TRAIN, assert_refused

import fedtrain
from cli.main import main
from fedtrain.metrics import compute_metrics
from fedtrain.registry import METRIC_NAMES, TWO_CLASS_METRICS

NAMES = tuple(name for name in METRIC_NAMES if name not in TWO_CLASS_METRICS)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    for name, method in (("a", "fedbn"), ("b", "fedco2")):
        more = ["--method", method, "--metrics", "all", "--save-predictions", "--eval-every", "2"]
        assert main([*QUICK_TRAIN, *more, "--out", str(place / name)]) == 0
    return place


def test_scores_are_those_of_the_saved_predictions(runs):
    """The rows of the run, and the same formulas on what was saved after it."""
    run = fedtrain.load_run(runs / "b")
    saved = run.predictions
    rows = [row for row in run.rows if row["split"] == "test" and row["round"] == 2]
    assert {row["branch"] for row in rows} == {"fused", "online", "offline"} == set(saved.logits)
    for row in rows:
        mine = saved.select(row["client"])
        assert len(mine.label) == row["n"]
        assert mine.is_right(row["branch"]).mean() == pytest.approx(row["accuracy"], abs=1e-12)
        again = compute_metrics(NAMES, mine.compute_probabilities(row["branch"]), mine.label)
        assert row["metrics"] == pytest.approx(again, abs=1e-6)  # logits are saved in float32


def test_the_summary_has_means_over_clients(runs):
    run = fedtrain.load_run(runs / "b")
    scores = run.scores()
    assert set(scores) == set(NAMES)
    assert run.summary["rules"]["last"]["metrics"] == scores
    for one in scores.values():
        assert one["mean"]["fused"] == pytest.approx(np.mean([one["clients"][c]["fused"] for c in run.clients]))
        assert one["defined"] == {"fused": 5, "online": 5, "offline": 5}


def test_evaluate_gives_the_numbers_of_the_run(runs, capsys, tmp_path):
    file = tmp_path / "again.npz"
    assert main(["evaluate", str(runs / "a"), "--json", "--save-predictions", str(file)]) == 0
    told = json.loads(capsys.readouterr().out)
    run = fedtrain.load_run(runs / "a")
    assert told["metrics"] == run.scores()
    assert file.read_bytes() == (runs / "a" / "predictions.npz").read_bytes()
    assert main(["evaluate", str(runs / "a"), "--metrics", "brier"]) == 0
    shown = capsys.readouterr().out
    assert "brier" in shown
    assert "auroc" not in shown
    assert_refused(capsys, ["evaluate", str(runs / "a"), "--save-predictions", str(file)], "is there already")
    assert_refused(capsys, ["evaluate", str(runs / "a"), "--metrics", "sensitivity"], "two classes, and there are 10")


def test_a_report_has_scores_intervals_and_mcnemar(runs, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("fedtrain.report.intervals.RESAMPLES", 5)
    page = tmp_path / "page.html"
    assert main(["report", "--compare", str(runs / "a"), str(runs / "b"), "--out", str(page)]) == 0
    assert "p, McNemar" in capsys.readouterr().out
    text = page.read_text()
    for words in ("Further scores", "Intervals of 95 %", "balanced accuracy", "McNemar"):
        assert words in text
    compared = fedtrain.compare(runs / "a", runs / "b")
    assert "McNemar's test, seed" in repr(compared)
    (test,) = compared.result["samples"]
    *clients, last = test["rows"]
    rows = compared.result["rows"][:-1]
    gained = [one["samples"] * (each["b"] - each["a"]) for one, each in zip(clients, rows, strict=True)]
    assert last["only_b"] - last["only_a"] == pytest.approx(sum(gained))


def test_without_the_setting_nothing_changes(tmp_path, capsys):
    assert main([*QUICK_TRAIN, "--method", "fedavg", "--out", str(tmp_path / "run"), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    run = fedtrain.load_run(tmp_path / "run")
    assert "metrics" not in summary["rules"]["last"]
    assert run.scores() == {}
    assert not any("metrics" in row for row in run.rows)
    assert not (run.path / "predictions.npz").exists()
