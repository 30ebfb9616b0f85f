"""Runs compared sample by sample, and intervals of scores."""

from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtrain.metrics import compute_metrics
from fedtrain.report.intervals import compute_intervals
from fedtrain.report.sample_test import compare_samples, compute_mcnemar_p, match_samples
from fedtrain.runs.predictions import SavedPredictions, join_predictions


def predict(labels, right, client=0, samples=None):
    """Of two clients; right or wrong as told."""
    labels, right = np.array(labels), np.array(right)
    said = np.where(right, labels, 1 - labels)
    ids = np.arange(len(labels)) if samples is None else np.array(samples)
    return SavedPredictions(
        1, ("a", "b"), ("test",), np.full(len(labels), client), np.zeros(len(labels), np.int64),
        ids.astype(np.uint64), labels, {"fused": np.eye(2, dtype=np.float32)[said]},
    )  # fmt: skip


@given(st.integers(0, 12), st.integers(0, 12))
def test_mcnemar_is_a_fair_coin(b, c):
    n, k = b + c, min(b, c)
    tail = sum(comb(n, i) for i in range(k + 1)) / 2**n
    assert compute_mcnemar_p(b, c) == pytest.approx(min(1.0, 2 * tail))
    assert compute_mcnemar_p(b, c) == compute_mcnemar_p(c, b)


def test_runs_are_compared_on_the_samples_that_both_have():
    one = join_predictions([predict([0, 1, 1, 0], [1, 1, 0, 1]), predict([1, 1], [1, 1], client=1)])
    other = join_predictions(
        [predict([0, 1, 1, 1], [1, 0, 0, 1], samples=[0, 1, 2, 9]), predict([1, 1], [0, 0], client=1)]
    )
    tests = [(t.name, t.samples, t.only_a, t.only_b) for t in compare_samples(one, other)]
    assert tests == [("a", 3, 1, 0), ("b", 2, 2, 0), ("all", 5, 3, 0)]
    assert compare_samples(one, other)[-1].p == pytest.approx(2 / 2**3)
    assert {t.p for t in compare_samples(one, one)} == {1.0}


@given(st.lists(st.integers(0, 3), max_size=8), st.lists(st.integers(0, 3), max_size=8))
def test_equal_samples_are_matched_once_each(one, other):
    rows, others = match_samples(np.array(one, np.uint64), np.array(other, np.uint64))
    assert [one[row] for row in rows] == [other[row] for row in others]
    assert len(set(rows.tolist())) == len(set(others.tolist())) == len(rows)
    assert len(rows) == sum(min(one.count(value), other.count(value)) for value in range(4))


def test_intervals_hold_the_score_and_shrink_with_more_samples():
    chance = np.random.default_rng(0)

    def width(n):
        right = chance.random(n) < 0.8
        found = predict(chance.integers(2, size=n), right)
        low, high = compute_intervals(found, ())["clients"]["a"]["accuracy"]
        assert low <= right.mean() <= high
        # 1.96 standard errors on either side, if there were infinitely many draws
        assert high - low == pytest.approx(2 * 1.96 * (0.16 / n) ** 0.5, rel=0.35)
        return high - low

    assert width(400) < 0.7 * width(100)


def test_intervals_are_the_same_each_time_and_undefined_where_scores_are():
    found = join_predictions([predict([0, 1] * 10, [1, 1, 0, 1] * 5), predict([1] * 6, [1, 0] * 3, client=1)])
    first, again = (compute_intervals(found, ("auroc", "brier"), resamples=50) for _ in range(2))
    assert first == again
    assert first["clients"]["b"]["auroc"] is None
    assert first["clients"]["b"]["brier"] is not None
    assert first["mean"]["auroc"] == first["clients"]["a"]["auroc"]
    whole = compute_metrics(("auroc",), found.select("a").compute_probabilities(), found.select("a").label)
    low, high = first["clients"]["a"]["auroc"]
    assert low <= whole["auroc"] <= high
