"""Differences between two configurations, and the tests that judge them."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedtrain.report.compare import compare_runs
from fedtrain.report.records import read_record
from fedtrain.report.significance import MAX_EXACT_PAIRS, compute_wilcoxon_p, run_paired_tests, run_two_proportion_test
from theory.errors import InputError

SHARES = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=8)


# --- judging


@given(SHARES)
def test_the_t_test_is_scipys(pairs):
    a, b = map(np.array, zip(*pairs, strict=True))
    found = run_paired_tests(a.tolist(), b.tolist())
    assert found.difference == pytest.approx(float((b - a).mean()), abs=1e-12)
    if np.std(b - a) < 1e-9:
        return
    told = stats.ttest_rel(b, a)
    interval = told.confidence_interval(0.95)
    assert found.p == pytest.approx(told.pvalue, rel=1e-6, abs=1e-12)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-6, abs=1e-9)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=MAX_EXACT_PAIRS, unique=True), st.data())
def test_wilcoxons_test_is_scipys_exact_one(sizes, data):
    signs = data.draw(st.lists(st.sampled_from((-1, 1)), min_size=len(sizes), max_size=len(sizes)))
    gaps = [sign * size / 1000 for sign, size in zip(signs, sizes, strict=True)]
    assert compute_wilcoxon_p(gaps) == pytest.approx(stats.wilcoxon(gaps, method="exact").pvalue)


@given(SHARES)
def test_changing_sides_changes_the_sign_and_nothing_else(pairs):
    a, b = map(list, zip(*pairs, strict=True))
    one, other = run_paired_tests(a, b), run_paired_tests(b, a)
    assert (one.difference, one.p, one.wilcoxon) == pytest.approx((-other.difference, other.p, other.wilcoxon))
    one, other = (run_two_proportion_test(*sides, [50] * len(a)) for sides in ((a, b), (b, a)))
    assert (one.difference, one.p, one.low) == pytest.approx((-other.difference, other.p, -other.high))


def test_ties_are_counted_exactly():
    assert compute_wilcoxon_p([0.1, 0.1, 0.1]) == 0.25  # all signs alike: 2 of 8
    assert compute_wilcoxon_p([0.0, 0.1, 0.1, 0.1]) == 0.25
    assert compute_wilcoxon_p([0.1, -0.1]) == 1.0
    assert compute_wilcoxon_p([0.0, 0.0]) is None
    assert compute_wilcoxon_p([0.01 * k for k in range(1, 21)]) == pytest.approx(2**-19)


def test_pairs_without_spread_have_no_t_test():
    found = run_paired_tests([0.5, 0.6], [0.6, 0.7])
    assert (found.p, found.low, found.wilcoxon) == (None, None, 0.5)
    assert found.difference == pytest.approx(0.1)


def test_two_proportions_by_hand():
    found = run_two_proportion_test([0.5], [0.6], [98])
    error = np.sqrt((0.5 * 0.5 + 0.598 * 0.402) / 100)
    assert found.difference == pytest.approx(0.1)
    assert found.high - found.low == pytest.approx(2 * 1.959964 * error, rel=1e-4)
    assert found.p == pytest.approx(2 * stats.norm.sf(0.1 / error), rel=1e-3)


def test_even_perfect_accuracy_has_an_error():
    found = run_two_proportion_test([1.0], [1.0], [10])
    assert (found.difference, found.p) == (0, 1)
    assert found.high > 0.1


def test_two_proportions_errs_as_often_as_it_says():
    chance = np.random.default_rng(0)
    shares = chance.binomial(200, 0.8, (2, 2000, 3)) / 200
    wrong = [run_two_proportion_test(a, b, [200] * 3).p < 0.05 for a, b in zip(*shares.tolist(), strict=True)]
    assert 0.03 < np.mean(wrong) < 0.07


# --- comparing


@pytest.fixture
def side(fake_run, tmp_path):
    """(method, *seeds, ...) -> records."""

    def new(method, *seeds, **more):
        return [read_record(fake_run(tmp_path / f"{method}-{seed}", method, seed, **more)) for seed in seeds]

    return new


def test_runs_are_matched_by_their_seeds(side):
    a, b = side("fedbn", 3, 1, 2), side("fedco2", 1, 2, 3, level=0.85)
    told = json.loads(json.dumps(compare_runs(a, b)))
    assert (told["a"]["label"], told["b"]["label"], told["paired"]) == ("FedBN", "Fed-CO2", True)
    assert len(told["pairs"]) == 3
    assert all(one == other for one, other in told["pairs"])
    row = told["rows"][1]
    before = {run.seeds: run.rules["last"]["clients"]["a"]["fused"] for run in a}
    after = {run.seeds: run.rules["last"]["clients"]["a"]["fused"] for run in b}
    gaps = [after[seed] - before[seed] for seed in before]
    assert (row["name"], row["difference"]) == ("a", pytest.approx(np.mean(gaps)))
    assert row["std"] == pytest.approx(np.std(gaps, ddof=1))
    assert told["rows"][-1]["difference"] == pytest.approx(np.mean([r["difference"] for r in told["rows"][:-1]]))
    assert told["higher"] == sum(r["difference"] > 0 for r in told["rows"][:-1])
    assert compare_runs(b, a)["rows"][1]["difference"] == pytest.approx(-row["difference"])


def test_one_seed_each_is_called_approximate(side):
    told = compare_runs(side("fedbn", 1), side("fedco2", 1))
    assert not told["paired"]
    assert "approximate" in told["test"]
    assert told["rows"][0]["wilcoxon"] is None
    assert told["rows"][0]["low"] < told["rows"][0]["difference"] < told["rows"][0]["high"]


def test_other_seeds_are_told(side):
    assert "different seeds" in " ".join(compare_runs(side("fedbn", 1), side("fedco2", 2))["notes"])
    told = compare_runs(side("moon", 1, 2, 3), side("copa", 1, 2))
    assert len(told["pairs"]) == 2
    assert "moon-3 has no partner with seed 3" in " ".join(told["notes"])
    with pytest.raises(InputError, match="no run of A has the seeds of a run of B"):
        compare_runs(side("fedper", 1, 2), side("fedrod", 3, 4))


def test_what_cannot_be_compared_is_refused(side):
    one = side("fedbn", 1)
    with pytest.raises(InputError, match="not tested on the same clients and data"):
        compare_runs(one, side("fedco2", 1, title="Other"))
    with pytest.raises(InputError, match=r"A: .*differs from .* in more than its seed"):
        compare_runs([*one, *side("moon", 2)], side("copa", 1))
    with pytest.raises(InputError, match="B: two runs have seed 1"):
        compare_runs(one, side("fedavg", 1) * 2)


def test_unfinished_runs_are_told(side):
    told = compare_runs(side("fedbn", 1, reached=6), side("fedco2", 1))
    assert told["a"]["label"] == "FedBN, unfinished"
    assert "round 6 of 10" in " ".join(told["notes"])
