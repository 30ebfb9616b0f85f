"""The rules that turn rows into reported numbers, on rows made by hand."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedtrain.runs.selection import find_best_round, summarise_rows

SIZES = {"a": 10, "b": 30}


def row(round, client, accuracy, split="test", branch="fused"):
    n = SIZES.get(client, 20)
    return {
        "round": round,
        "client": client,
        "split": split,
        "branch": branch,
        "accuracy": accuracy,
        "loss": 1.0,
        "n": n,
    }


def rows(table, split="test", branch="fused"):
    """``{round: (accuracy of a, accuracy of b)}``."""
    return [row(r, c, x, split, branch) for r, pair in table.items() for c, x in zip("ab", pair, strict=True)]


def never(round):
    return False


def test_the_last_round_by_client_and_over_clients():
    found = summarise_rows(rows({1: (0.9, 0.9), 3: (0.2, 0.6)}), never)
    assert set(found) == {"last"}
    last = found["last"]
    assert (last["round"], last["clients"]) == (3, {"a": {"fused": 0.2}, "b": {"fused": 0.6}})
    assert last["mean"]["fused"] == pytest.approx(0.4)
    assert last["micro"]["fused"] == pytest.approx((2 + 18) / 40)  # correct answers over all test samples
    assert last["worst"]["fused"] == 0.2
    assert last["std"]["fused"] == pytest.approx(0.2)  # ddof 0; with ddof 1 it were 0.283


def test_validation_picks_the_first_of_the_best_rounds_and_test_has_no_say():
    val = rows({1: (0.1, 0.5), 2: (0.5, 0.3), 3: (0.2, 0.6), 4: (0.0, 0.1)}, "val")
    test = rows({1: (0.99, 0.99), 2: (0.3, 0.4), 3: (0.8, 0.8), 4: (0.9, 1.0)})
    assert find_best_round([*val, *test]) == 2  # rounds 2 and 3 tie at 0.4
    assert find_best_round([*test, *reversed(val)]) == 2
    found = summarise_rows([*val, *test], never)
    assert (found["best-by-validation"]["round"], found["last"]["round"]) == (2, 4)
    assert found["best-by-validation"]["mean"]["fused"] == pytest.approx(0.35)


def test_validation_counts_clients_alike_and_the_prediction_alone():
    val = rows({1: (0.9, 0.1), 2: (0.1, 0.8)}, "val")  # by samples round 2 were better, by clients round 1 is
    branch = rows({1: (0.0, 0.0), 2: (1.0, 1.0)}, "val", "online")
    train = rows({1: (0.0, 0.0), 2: (1.0, 1.0)}, "train")
    assert find_best_round([*val, *branch, *train]) == 1
    assert find_best_round(rows({1: (1.0, 1.0)})) is None


@example([(1, 5), (2, 4)], Random(0))
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=8), st.randoms())
def test_test_accuracy_never_picks_a_round(vals, random):
    val = rows({r: (a / 5, b / 5) for r, (a, b) in enumerate(vals, 1)}, "val")
    test = rows({r: (random.random(), random.random()) for r in range(1, len(vals) + 1)})
    sums = [a + b for a, b in vals]
    picked = summarise_rows([*val, *test], never)["best-by-validation"]["round"]
    assert picked == 1 + sums.index(max(sums))


def test_the_window_is_a_mean_over_rounds_with_population_stds():
    fused = {10: (0.5, 0.1), 15: (0.7, 0.3), 20: (0.3, 0.8)}
    other = {10: (0.0, 0.2), 15: (0.0, 0.2), 20: (0.0, 0.2)}
    early = rows({5: (1.0, 1.0)}) + rows({5: (1.0, 1.0)}, branch="online")
    found = summarise_rows([*early, *rows(fused), *rows(other, branch="online")], lambda round: round >= 10)["window"]
    table = np.array(list(fused.values()))
    mean, micro = table.mean(1), table @ np.array([10, 30]) / 40
    assert found["rounds"] == [10, 15, 20]
    assert [found["clients"][c]["fused"] for c in "ab"] == pytest.approx(table.mean(0))
    assert found["mean"]["fused"] == pytest.approx(mean.mean())
    assert found["micro"]["fused"] == pytest.approx(micro.mean())
    assert found["mean_std_over_rounds"]["fused"] == pytest.approx(mean.std(ddof=0))
    assert found["micro_std_over_rounds"]["fused"] == pytest.approx(micro.std(ddof=0))
    assert found["std"]["fused"] == pytest.approx(table.mean(0).std(ddof=0))
    assert found["worst"]["fused"] == pytest.approx(table.mean(0).min())
    assert found["mean_std_over_rounds"]["online"] == pytest.approx(0.0)


def test_every_branch_has_its_own_numbers():
    both = rows({1: (0.2, 0.4)}) + rows({1: (0.6, 1.0)}, branch="online")
    last = summarise_rows(both, never)["last"]
    assert last["clients"]["b"] == {"fused": 0.4, "online": 1.0}
    assert last["mean"] == {"fused": pytest.approx(0.3), "online": pytest.approx(0.8)}
    assert last["worst"] == {"fused": 0.2, "online": 0.6}


def test_train_rows_are_not_test_rows():
    found = summarise_rows(rows({1: (0.2, 0.4), 2: (0.3, 0.5)}) + rows({3: (1.0, 1.0)}, "train"), never)
    assert found["last"]["round"] == 2
    assert summarise_rows(rows({3: (1.0, 1.0)}, "train"), never) == {}
    assert summarise_rows([], never) == {}


@given(st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 1), min_size=1))
def test_worst_mean_and_micro_are_in_order(accuracies):
    last = summarise_rows([row(1, name, value) for name, value in accuracies.items()], never)["last"]
    top = max(accuracies.values())
    for kind in ("mean", "micro"):
        assert last["worst"]["fused"] - 1e-12 <= last[kind]["fused"] <= top + 1e-12
    assert 0 <= last["std"]["fused"] <= 0.5 + 1e-12


def test_the_last_round_is_the_last_one_only_if_it_was_tested():
    """Where test data wait for a better round, the last tested one is there for being good."""
    rows = [row(1, "a", 0.5, split="val"), row(1, "a", 0.4), row(2, "a", 0.2, split="val")]
    found = summarise_rows(rows, never)
    assert list(found) == ["best-by-validation"]
    assert found["best-by-validation"]["round"] == 1
    assert list(summarise_rows([*rows, row(2, "a", 0.1)], never)) == ["last", "best-by-validation"]


def test_a_window_with_rounds_that_were_not_tested_is_not_reported():
    """A run that is cut short has its window where test data still waited for a better round."""
    rows = [row(number, "a", 0.5, split="val") for number in (1, 2, 3)] + [row(1, "a", 0.4), row(3, "a", 0.6)]
    assert "window" not in summarise_rows(rows, lambda round: round >= 2)
    assert summarise_rows(rows, lambda round: round >= 3)["window"]["rounds"] == [3]
    assert summarise_rows([*rows, row(2, "a", 0.2)], lambda round: round >= 2)["window"]["rounds"] == [2, 3]
