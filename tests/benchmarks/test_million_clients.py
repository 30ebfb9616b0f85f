"""What a million clients need is computed right: by hand, and no remedy makes anything worse."""

import sys
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))  # where its scripts look for each other

from million_clients import (
    DESIGNS,
    PAPER,
    Rates,
    Server,
    Sizes,
    compute_load,
    compute_tables,
    count_aggregators,
    find_sizes,
    format_report,
    measure_rates,
)

RATES = Rates(
    names_drawn=1e6, averaged=1e9, checkpointed=1e8, states_loaded=100.0, images_evaluated=1000.0, client_seconds=1.0
)
SERVER = Server(
    link=1000.0, memory=5000.0, disk=1e5, cores=2, round_seconds=10.0, cohort=10, local_images=50
)  # a toy whose loads can be written down
TOY = Sizes(shared=100, head=30, personal=200)


def test_loads_are_those_written_down_by_hand():
    load = compute_load(PAPER, TOY, RATES, SERVER, clients=40)
    down = 10 * (100 + 40 * 30)  # more than what comes up
    kept = 100 + 40 * 30 + 40 * 200
    assert load.link == pytest.approx(down / 1000 / 10)
    assert load.memory == pytest.approx((2 * 100 + 40 * 30) / 5000)
    assert load.disk == pytest.approx(kept / 1e5)
    assert load.checkpoint == pytest.approx(kept / 1e8 / 10)
    assert load.averaging == pytest.approx(10 * 130 / 1e9 / 2 / 10)
    assert load.evaluation == pytest.approx(40 * (0.01 + 0.05) / 2 / 10)
    assert load.drawing == pytest.approx(40 / 1e6 / 10)
    assert load.bottleneck == "link"


def test_a_bottleneck_moves_when_it_is_remedied():
    light = replace(PAPER, heads_sent=1)
    assert compute_load(PAPER, TOY, RATES, SERVER, 40).bottleneck == "link"
    assert compute_load(light, replace(TOY, head=1), RATES, replace(SERVER, link=1e9), 40).bottleneck == "evaluation"


@given(
    st.builds(Sizes, *[st.integers(1, 10**9)] * 3),
    st.integers(1, 10**7),
    st.builds(Server, cohort=st.integers(1, 10**5)),
)
@settings(max_examples=50)
def test_no_remedy_makes_anything_worse(sizes, clients, server):
    server = replace(server, cohort=min(server.cohort, clients))
    loads = [asdict(compute_load(design, sizes, RATES, server, clients)) for design in DESIGNS]
    for before, after in pairwise(loads):
        assert all(after[name] <= before[name] * (1 + 1e-12) for name in before)


@given(st.integers(1, 5000), st.integers(2, 50))
@settings(max_examples=50)
def test_a_tree_serves_the_whole_cohort(cohort, fan_in):
    levels, machines = count_aggregators(cohort, fan_in)
    assert fan_in**levels >= cohort
    assert levels == 0 or fan_in ** (levels - 1) < cohort
    assert machines == sum(-(-cohort // fan_in**level) for level in range(1, levels + 1))


def test_sizes_are_those_of_the_networks():
    assert find_sizes("cifar").head == 4 * (84 * 10 + 10)  # the last layer, float32
    assert find_sizes("digits").shared > find_sizes("digits").head  # convolutions beside the dense layers


def test_rates_are_measured_and_shown(tmp_path, monkeypatch):
    monkeypatch.setattr("million_clients.time_per_call", lambda work, *_: (work(), 2.0)[1])
    monkeypatch.setattr("million_clients.SHOWN_CLIENTS", 100)
    rates = measure_rates(tmp_path)
    assert (rates.names_drawn, rates.states_loaded, rates.client_seconds) == (50, 25, 2)
    text = format_report(rates, Server(), 10**6, compute_tables(rates, Server(), 10**6))
    assert "Rounds until 99 % of the clients have trained once: 4,603." in text
    assert text.count("| as the paper says |") == 3
