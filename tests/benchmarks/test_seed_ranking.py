"""Methods that are ranked over several seeds: places with each seed, and differences in pairs."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from seed_ranking import format_places, format_ranking, main, rank_methods

from theory.errors import InputError

RECORDS = Path(__file__).resolve().parents[2] / "docs" / "results" / "records"
MEANS = {
    "steady": {(1, 1): 80.0, (2, 1): 81.0, (3, 1): 82.0},
    "best": {(1, 1): 84.0, (2, 1): 85.0, (3, 1): 87.0},
    "wild": {(1, 1): 70.0, (2, 1): 90.0, (3, 1): 71.0},
    "new": {(2, 1): 60.0},
}


def test_the_best_over_all_seeds_comes_first():
    found = rank_methods(MEANS)
    assert [one["name"] for one in found] == ["best", "steady", "wild", "new"]
    best, steady, wild, new = found
    assert best["accuracy"] == {"mean": pytest.approx(256 / 3), "std": pytest.approx((7 / 3) ** 0.5)}
    assert best["behind"] is None
    assert [one["place"] for one in best["seeds"]] == [1, 2, 1]
    assert [one["place"] for one in steady["seeds"]] == [2, 3, 2]
    assert (best["above_next"], steady["above_next"], wild["above_next"]) == ([3, 3], [2, 3], [1, 1])
    assert new["accuracy"] == {"mean": 60.0, "std": None}
    assert new["above_next"] is None


def test_what_is_lost_is_compared_seed_by_seed():
    """The spread of the differences counts, not that of the methods: 4, 4 and 5 points here."""
    _, steady, wild, new = rank_methods(MEANS)
    low, high = steady["behind"]["interval"]
    half = 4.302653 * (1 / 3) ** 0.5 / 3**0.5  # t of two degrees of freedom times the standard error
    assert (low, high) == (pytest.approx(-13 / 3 - half), pytest.approx(-13 / 3 + half))
    assert wild["behind"]["interval"][1] > 0
    assert new["behind"] == {"pairs": 1, "mean": -25.0, "interval": None}


def test_a_method_of_other_seeds_is_not_compared():
    (first, second) = rank_methods({"a": {(1, 1): 2.0}, "b": {(2, 1): 1.0}})
    assert (first["above_next"], second["behind"]) == ([0, 0], None)


def test_equals_share_a_place_and_one_alone_has_none():
    found = rank_methods({"a": {(1, 1): 5.0, (2, 1): 5.0}, "b": {(1, 1): 5.0}, "c": {(1, 1): 4.0}})
    assert [one["seeds"][0]["place"] for one in found] == [1, 1, 3]
    assert found[0]["seeds"][1]["place"] is None
    assert format_places(found).splitlines()[2] == "| a | 5.0 (1) | 5.0 |"


def test_the_tables():
    found = rank_methods(MEANS)
    assert format_places(found).splitlines()[0] == "|  | seed 1 | seed 2 | seed 3 |"
    assert format_places(found).splitlines()[-1] == "| new | - | 60.0 (4) | - |"
    assert format_ranking(found).splitlines()[3] == "| steady | 81.0 ± 1.0 | -4.3 | -5.8 to -2.9 | 2 of 3 seeds |"
    assert "seed 1, data 2" in format_places(rank_methods({"a": {(1, 2): 1.0, (1, 3): 2.0}}))


def test_records_are_ranked_without_their_weights():
    result = CliRunner().invoke(main, [str(RECORDS / "office9" / "aligned-fedbn-r40-s1"), "--json"])
    found = json.loads(result.output)
    assert found["rule"] == "last"
    assert found["methods"][0]["accuracy"] == {"mean": pytest.approx(64.2, abs=0.05), "std": None}


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        (["office/office-fedbn-r100-v1-s1", "digits/digits-fedbn-r50-e5-s1"], "other data"),
        (["office9/aligned-fedbn-r40-s1", "--rule", "window"], "no result by the rule 'window'"),
        (["digits/digits-fedbn-r50-e5-s1", "forecast-2026-11-18/digits-fedavg"], "rounds"),
    ],
)
def test_runs_that_cannot_be_ranked_together_are_refused(runs, words):
    result = CliRunner().invoke(main, [str(RECORDS / run) if "/" in run else run for run in runs])
    assert isinstance(result.exception, InputError)
    assert words in str(result.exception)
