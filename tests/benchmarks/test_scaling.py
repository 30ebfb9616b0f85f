"""How a round scales is measured one point at a time."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))  # where its scripts look for each other

from scaling import SWEEPS, format_table, measure_point, plot


def test_a_point(monkeypatch):
    monkeypatch.setattr("scaling.keep_freed_memory", lambda: None)  # it would hold for all tests to come
    few, many = (measure_point(1, clients=n, images=8) for n in (5, 10))
    assert min(*few.values(), *many.values()) > 0
    assert many["kept_mb"] == 2 * few["kept_mb"]  # everyone has a network of its own
    assert many["data_mb"] == 2 * few["data_mb"]
    assert few["data_mb"] == 5 * (8 + 10) * 3 * 32 * 32 / 1e6
    assert few["peak_mb"] >= few["bare_mb"] > 50


def test_the_table_and_the_figure(tmp_path):
    one = {"train_s": 0.5, "evaluate_s": 0.25, "peak_mb": 500.0, "bare_mb": 200.0, "kept_mb": 25.0, "data_mb": 5.0}
    found = {name: [{**one, **where} for where in points] for name, (_, points) in SWEEPS.items()}
    assert "| 500 | 0.5 | 0.25 | 500 | 200 | 25 | 5 |" in format_table("clients", found["clients"])
    plot(found, tmp_path / "scaling.png")
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")
