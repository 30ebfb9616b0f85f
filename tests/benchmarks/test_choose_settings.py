"""Cross-validation deals out training rows once, and chooses by accuracy, then loss, then rounds."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from found_files import make_rows, write_table

from benchmarks.choose_settings import FOLDS, ROUNDS, Columns, Setting, choose, score_settings, write_folds


def test_folds_hold_each_training_row_once_and_no_test_row(tmp_path: Path) -> None:
    rows = [{**row, "part": "test" if i % 5 == 0 else "train"} for i, row in enumerate(make_rows())]
    table = write_table(tmp_path / "t.csv", rows)
    wanted = sorted(tuple(map(str, row.values())) for row in rows if row["part"] == "train")
    tested = []
    for path in write_folds(table, Columns("site", "ill", "part"), tmp_path):
        with path.open(newline="") as file:
            mine = list(csv.DictReader(file))
        assert sorted(tuple({**row, "part": "train"}.values()) for row in mine) == wanted
        fold = [row for row in mine if row["part"] == "test"]
        tested += [tuple({**row, "part": "train"}.values()) for row in fold]
        for site in ("basel", "geneva"):
            count = sum(row["site"] == site for row in mine)
            assert abs(sum(row["site"] == site for row in fold) - count / FOLDS) < 1
    assert sorted(tested) == wanted


def test_the_mean_over_clients_and_folds_chooses() -> None:
    def rows(accuracy: float, loss: float) -> list[Any]:
        return [
            {
                "round": n,
                "client": c,
                "split": "test",
                "branch": "fused",
                "accuracy": a,
                "loss": loss + n / 1000,
                "n": 1,
            }
            for n in ROUNDS
            for c, a in (("basel", accuracy), ("geneva", accuracy / 2))
        ]

    tried = score_settings([(0.1, rows(0.8, 1.0)), (0.1, rows(0.4, 1.0)), (0.2, rows(0.6, 0.5)), (0.2, rows(0.6, 0.7))])
    assert [one.accuracy for one in tried] == [0.45] * len(tried)
    assert choose(tried) == Setting(0.2, ROUNDS[0], 0.45, round(0.6 + ROUNDS[0] / 1000, 12))
