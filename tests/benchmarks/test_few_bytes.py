"""The page on accuracy against bytes says what its records say, and the benchmark's points are settings that exist."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from few_bytes_lib.figure import Result, draw_curve, format_table, load_result, load_results
from few_bytes_lib.narrow_digits import build_narrow_net
from few_bytes_lib.points import POINTS, REFERENCE

from fedtrain.config.schema import ServerSettings
from fedtrain.federated.communication import count_bytes

DOCS = Path(__file__).parents[2] / "docs"
RECORDS = DOCS / "results" / "records"


@pytest.mark.parametrize("point", POINTS.values(), ids=POINTS)
def test_every_point_can_be_trained(point):
    assert ServerSettings(**point.server)


def test_the_page_has_the_table_of_its_records():
    results = load_results(RECORDS / "few-bytes")
    assert len(results) >= 9
    assert format_table(results) in (DOCS / "results" / "bytes.md").read_text(encoding="utf-8")


def test_shares_and_differences_are_those_of_the_reference(tmp_path):
    whole, lean = Result("whole", 30, 70, 80.0, 1.0), Result("lean", 2, 3, 79.6, 1.0)
    last = format_table({"lean": lean, REFERENCE: whole}).splitlines()[-1]
    assert last == "| lean | 2.0 | 3.0 | 1/20.0 | 79.6 | -0.4 |"
    draw_curve({"lean": lean, REFERENCE: whole}, tmp_path / "bytes.png")
    assert (tmp_path / "bytes.png").stat().st_size > 5000


def test_heads_are_as_much_of_the_narrow_network_as_the_page_says():
    net, last = build_narrow_net(10, "conv"), build_narrow_net(10, "last")
    x = torch.rand(2, 3, 28, 28)
    assert net(x).shape == last(x).shape == (2, 10)
    assert 0.97 < count_bytes(net.head.state_dict()) / count_bytes(net.state_dict()) < 0.98
    assert count_bytes(last.head.state_dict()) == 4 * (64 * 10 + 10)


def test_the_page_has_the_seeds_of_its_records():
    page, lean = (DOCS / "results" / "bytes.md").read_text(encoding="utf-8"), "last-rank-8-down-int8"
    for seed in (1, 2, 3):
        folder = RECORDS / ("few-bytes" if seed == 1 else "few-bytes-seeds")
        mark = "" if seed == 1 else f"-s{seed}"
        whole, less = (load_result(folder / f"{name}{mark}", name) for name in (REFERENCE, lean))
        row = f"| {seed} | {whole.accuracy:.1f} | {less.accuracy:.1f} | {less.accuracy - whole.accuracy:+.1f} "
        assert f"{row}| {whole.total:.1f} | {less.total:.1f} | {whole.seconds:.0f} | {less.seconds:.0f} |" in page


def test_the_page_has_the_lean_presets_of_their_record():
    page = (DOCS / "results" / "bytes.md").read_text(encoding="utf-8")
    settings = json.loads((RECORDS / "lean-presets.json").read_text(encoding="utf-8"))
    for setting, rows in settings.items():
        mean = {key: sum(row[key] for row in rows) / len(rows) for key in rows[0]}
        for row in [*rows, {**mean, "seed": "mean"}]:
            paper, lean = row["accuracy paper"], row["accuracy lean"]
            cells = [f"{paper:.1f}", f"{lean:.1f}", f"{lean - paper:+.1f}"]
            cells += [f"{row[f'MB {which}']:.1f}" for which in ("paper", "lean")]
            cells += [f"{row[f'seconds {which}']:.0f}" for which in ("paper", "lean")]
            assert f"| {setting} | {row['seed']} | {' | '.join(cells)} |" in page
