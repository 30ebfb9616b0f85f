"""Runs that are ranked on test images drawn anew: paired, and as wide as theory has it."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from bootstrap_ranking import format_table, rank_runs, resample_accuracies

CHANCE = np.random.default_rng(7)
SIZE = 400


def flags(share):
    return CHANCE.random(SIZE) < share


def test_a_draw_spreads_as_the_binomial_law_has_it():
    right = flags(0.8)
    drawn = resample_accuracies([right], 20_000, np.random.default_rng(0))[:, 0]
    share = right.mean()
    assert drawn.mean() == pytest.approx(share, abs=5e-4)
    assert drawn.std() == pytest.approx(np.sqrt(share * (1 - share) / SIZE), rel=0.02)


def test_runs_see_the_same_images():
    """The spread of a difference is that of the images on which they differ, however many both get right."""
    one = flags(0.8)
    other = one.copy()
    other[:8] = ~other[:8]
    drawn = resample_accuracies([one, other, one], 20_000, np.random.default_rng(0))
    assert (drawn[:, 0] == drawn[:, 2]).all()
    gap = one.astype(float) - other
    assert (drawn[:, 0] - drawn[:, 1]).std() == pytest.approx(gap.std() / np.sqrt(SIZE), rel=0.02)


def test_the_best_comes_first_and_clients_count_alike():
    small, large = np.zeros(10, bool), np.ones(1000, bool)
    half = np.arange(10) < 5
    low, high = rank_runs(["a", "b"], [{"x": small, "y": large}, {"x": half, "y": large}], 2000)[::-1]
    assert (high["name"], high["mean"], high["behind"]) == ("b", 75.0, 0.0)
    assert (low["name"], low["mean"], low["behind"]) == ("a", 50.0, -25.0)
    assert low["behind_interval"][0] < -25 < low["behind_interval"][1] < 0
    assert high["above_next"] > 0.99
    assert low["above_next"] is None
    assert format_table([high, low]).splitlines()[2].startswith("| b | 75.0 | ")
