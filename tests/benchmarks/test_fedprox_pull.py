"""How far FedProx pulls, against what its formula says."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from fedprox_pull import format_table, measure_pull

SMALL = {
    "model": {"name": "two-layer", "width": 8},
    "data": {"source": "standin", "percent": 0.02},
    "local": {"batch_size": 1000, "epochs": 2},
    "machine": {"dtype": "float64"},
}


def test_after_two_steps_the_pull_is_what_the_formula_says():
    """The second of two steps feels a pull of μ times the way of the first, or of μ/2 along it; the first none."""
    found = measure_pull("digits", "standin", SMALL)
    assert set(found) == {"mnist", "svhn", "usps", "synthdigits", "mnist_m"}
    lr = 0.01
    for one in found.values():
        assert one["published: ends"] == pytest.approx(lr * 0.001 / 2, rel=1e-6)
        assert one["published: pull"] == pytest.approx(2 * lr * 0.001 / 2)
        assert 0.4 < one["squared: ends"] / (lr * 0.01 * one["moved"]) < 0.8  # the first step is about half of the way
        assert one["squared: pull"] == pytest.approx(2 * lr * 0.01 * one["moved"], rel=1e-3)
        assert one["next to none: ends"] == pytest.approx(1e-7 * one["squared: ends"], rel=0.01)
    assert "| mnist |" in format_table(found)
