"""The cost of distribution is counted correctly: chains of training, bytes sent, heads, and the extrapolation."""

import os
import socket
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))  # where its scripts look for each other

from distributed_cost import main, select_cases
from distributed_cost_lib import extrapolation, head_exchange, head_tables, overhead, traffic
from distributed_cost_lib.backends import EVENTS_FILE, run_on_backend
from distributed_cost_lib.cases import NETWORK_SIZES, Case
from distributed_cost_lib.event_log import LOG_VARIABLE, log_event, read_events
from distributed_cost_lib.proxy import ByteCounter, open_proxy

from fedtrain.analysis.method_summary import summarise_method
from fedtrain.federated.communication import count_bytes


def event(what, at, seconds, pid=1, **more):
    return {"what": what, "pid": pid, "at": at, "seconds": seconds, **more}


def trained(round, pid, seconds):
    return event("train", 0.0, seconds, pid, client="c", round=round)


def round_of(number, seconds, at=0.0):
    return event("round", at, seconds, round=number, up=400, down=800, clients=4)


def test_one_process_trains_in_turn_and_several_at_the_same_time():
    alone = [trained(2, 1, 1.0), trained(2, 1, 2.0), trained(1, 1, 50.0)]
    assert overhead.find_longest_chain(alone, "train", 2) == 3
    assert overhead.find_longest_chain([*alone, trained(2, 7, 2.5)], "train", 2) == 3
    assert overhead.find_longest_chain(alone, "site", 2) == 0


def test_the_first_round_does_not_count():
    events = [round_of(1, 99.0)]
    for number, (whole, one, other) in enumerate([(5.0, 1.0, 2.0), (7.0, 3.0, 1.0), (9.0, 1.0, 1.0)], 2):
        events += [trained(number, 1, one), trained(number, 2, other), event("site", 0, 0.5, 2, round=number)]
        events.append(round_of(number, whole))
    found = overhead.summarise_overhead(events)
    assert (found["rounds"], found["round_s"], found["training_s"]) == (3, 7, 2)
    assert (found["beyond_low_s"], found["beyond_s"], found["beyond_high_s"]) == (3, 4, 8)
    assert (found["site_s"], found["load_s"]) == (0.5, 0)
    shown = overhead.format_table([{"size": "small", "method": "fedbn", "backend": "simulation", **found}])
    assert "| small, fedbn | simulation | 7 | 2 | 4 (3 to 8) | 0.5 | 0 |" in shown


def test_bytes_of_a_node_and_of_all():
    counted = {"inbound": 1200, "outbound": 1700, "up": [110, 150, 120], "down": [200, 220, 210]}
    one, everyone = traffic.summarise_deployment([round_of(1, 1.0), round_of(2, 1.0)], counted)
    assert (one["up_wire"], one["up_counted"], one["up_ratio"]) == (120, 100, 1.2)
    assert (one["down_wire"], one["down_counted"], one["down_ratio"]) == (210, 200, 1.05)
    assert (everyone["up_ratio"], everyone["down_ratio"]) == (600 / 400, 850 / 800)
    row = "| small, fedbn | deployment, one client (proxy) | 120 | 100 | 1.2000 | 210 | 200 | 1.0500 |"
    assert row in traffic.format_table([{"size": "small", "method": "fedbn", **one}])


def test_bytes_of_ranks_are_those_of_the_last_round():
    def gave(begun, rank, count):
        return event("give", begun + 0.5, 0.5, rank, bytes=count, rank=rank)

    events = [gave(0, 0, 999), gave(1, 1, 999), round_of(1, 1.0, at=2.0)]
    events += [gave(2.1, 0, 100), gave(3, 1, 70), gave(3, 2, 80), round_of(2, 1.0, at=4.0), gave(3.8, 2, 50)]
    found = traffic.summarise_ranks([*events, gave(4.1, 0, 999)], 3)
    assert found["down_wire"] == 2 * 100  # to each of the others
    assert found["up_wire"] == 70 + 80 + 50  # the last was noted after rank 0 had heard it
    assert (found["down_counted"], found["up_counted"]) == (800, 400)


def test_what_a_fault_costs():
    faults = pytest.importorskip("distributed_cost_lib.faults", reason="Flower is not installed: make test-all")
    ends = [(1, 10.0), (2, 14.0), (2, 30.0), (3, 37.0), (4, 41.0)]  # after the fault, round 2 was made again
    timing = faults.summarise_rounds(ends, struck=15.0, rounds=4)
    assert timing == {"round_s": 4.0, "next_s": 22.0, "whole_s": 31.0, "twice": 1}
    shown = faults.format_table([{"fault": "a fire", "same": True, **timing}])
    assert "| a fire | 4 | 22 | 1 | yes |" in shown


def test_pieces_fall_between_marks():
    passed = ByteCounter([(3.0, 30), (1.0, 1), (2.0, 20), (5.0, 500)])
    assert passed.count_between([1.0, 2.5, 4.0]) == [20, 30]


def test_the_proxy_counts_both_ways():
    with socket.create_server(("127.0.0.1", 0)) as server, open_proxy(server.getsockname()[1]) as between:
        host, _, port = between.address.partition(":")
        assert host == "127.0.0.1"
        before = time.perf_counter()
        with socket.create_connection((host, int(port)), timeout=10) as near:
            far, _ = server.accept()
            with far, far.makefile("rb") as heard:  # which reads on where a socket with a timeout stops short
                far.settimeout(10)
                near.sendall(b"x" * 100_000)
                assert len(heard.read(100_000)) == 100_000
                far.sendall(b"y" * 7)
                near.settimeout(10)
                assert near.recv(100) == b"y" * 7
        marks = [before, time.perf_counter()]
        assert between.up.count_between(marks) == [100_000]
        assert between.down.count_between(marks) == [7]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=1).close()


def test_meters_of_several_processes_fit_into_one_file(tmp_path, monkeypatch):
    monkeypatch.setenv(LOG_VARIABLE, str(tmp_path / "meters"))
    assert read_events(tmp_path / "meters") == []
    log_event("train", time.perf_counter() - 2, round=3)
    log_event("over", time.perf_counter())
    first, last = read_events(tmp_path / "meters")
    assert (first["what"], first["round"], first["pid"]) == ("train", 3, os.getpid())
    assert 2 <= first["seconds"] < 10
    assert last["at"] >= first["at"]


def test_cases_are_as_large_as_they_say():
    few, many = (Case(name, "fedbn", 2).config_and_source[0] for name in NETWORK_SIZES)
    assert (few.model.name, few.model.width, many.model.name) == ("two-layer", 8, "alexnet")
    assert [config.server.rounds for config in (few, many)] == [3, 3]
    assert not any(config.evaluation.is_due(round, 3) for config in (few, many) for round in (1, 2))
    assert [Case(name, "fedbn", 2).num_clients for name in NETWORK_SIZES] == [5, 4]
    assert select_cases(("large fedbn",)) == [("large", "fedbn")]
    assert len(select_cases(())) == 3


def test_a_run_with_meters(tmp_path):
    events = run_on_backend("in-process", Case("small", "fedbn", 2), tmp_path / "it")
    assert [one["round"] for one in events if one["what"] == "round"] == [1, 2]  # and not the one that is evaluated
    assert len([one for one in events if one["what"] == "train"]) == 2 * 5
    found = overhead.summarise_overhead(events)
    assert 0 < found["training_s"] < found["round_s"]
    assert found["beyond_s"] == pytest.approx(found["round_s"] - found["training_s"])


def test_ranks_move_less_than_is_counted(tmp_path):
    """Rank 1 is told once what its clients are sent each, and two of five clients are its own."""
    events = run_on_backend("torchrun-2", Case("small", "fedbn", 2), tmp_path / "it")
    found = traffic.summarise_ranks(events, 2)
    assert 0.2 <= found["down_ratio"] < 0.21
    assert 0.4 <= found["up_ratio"] < 0.42


def test_heads_are_as_many_as_are_sent():
    shared, head = map(count_bytes, head_exchange.build_meta_states("cifar"))
    assert head == 4 * (84 * 10 + 10)
    message = head_exchange.build_broadcast(6)
    assert head_exchange.count_downlink_bytes(message, 0) == 6 * (shared + 5 * head)
    assert head_exchange.count_downlink_bytes(message, 2) == 6 * (shared + 2 * head)
    messages = list(head_exchange.build_messages(message, 2))
    assert [len(groups) for _, groups in messages] == [1 + 2] * 6
    messages += head_exchange.build_messages(message, 0)
    assert [len(groups) for _, groups in messages[6:]] == [1 + 5] * 6
    for name, (about, groups) in zip([*message.peers] * 2, messages, strict=True):
        assert name not in about["peers"]
        assert groups["shared"] is message.shared  # so that it is packed once
    assert head_exchange.count_downlink_bytes(head_exchange.build_broadcast(3, 0.5), 0) == 3 * 2 * 500_000


def test_a_point_of_heads():
    pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedco2[flower]'")
    all_of_them, few = head_exchange.measure_point(40, 0, 1.0), head_exchange.measure_point(40, 5, 1.0)
    assert (all_of_them["down_mb"], few["down_mb"]) == (40 * 39, 40 * 5)
    assert all_of_them["notes_mb"] > 4 * few["notes_mb"]
    assert all_of_them["packed_mb"] < 3 * 40  # each head once, not once for each client
    assert min(all_of_them["packing_s"], few["packing_s"]) > 0


@pytest.mark.parametrize("network", ["digits", "alexnet"])
def test_on_paper_is_what_is_counted(network):
    """Two roads: the sum here, and that of `fedco2 methods`."""
    found, summary = (
        extrapolation.compute_round_traffic(network, 1000),
        summarise_method("fedco2", network, 1000).model_summary.traffic,
    )
    assert found["down_client_mb"] == pytest.approx(summary.down.total / 1e6)
    assert found["up_client_mb"] == pytest.approx(summary.up.total / 1e6)
    assert found["down_mb"] == pytest.approx(1000 * summary.down.total / 1e6)
    few = extrapolation.compute_round_traffic(network, 1000, 5)
    assert few["down_client_mb"] - found["down_client_mb"] == pytest.approx((5 - 999) * found["head_mb"])
    assert (
        extrapolation.compute_round_traffic(network, 3, 5)["down_mb"]
        == extrapolation.compute_round_traffic(network, 3)["down_mb"]
    )


def test_fits_find_what_was_put_in():
    points = [
        {"head_mb": 1.0, "peers": peers, "clients": n, "down_mb": float(n * (peers or n - 1))}
        | {"held_mb": n + 3.0, "packed_mb": 2.0 * n, "packing_s": 0.5 + 1e-3 * n + 1e-4 * n**2}
        for peers in (0, 5)
        for n in (10, 20, 50, 100, 200)
    ]
    everyone, few = head_tables.fit_growth(points, 1000)
    assert everyone["down_mb"] == pytest.approx(999_000)
    assert few["down_mb"] == pytest.approx(5000)
    assert (everyone["down_mb_power"], few["down_mb_power"]) == (pytest.approx(2, abs=0.05), pytest.approx(1))
    assert everyone["held_mb"] == pytest.approx(1003)
    assert everyone["packing_s"] == pytest.approx(101.5)
    sites = [extrapolation.compute_round_traffic("cifar", 1000)]
    measured = [one | {"notes_mb": 0.0} for one in points]
    text = head_tables.format_tables({"measured": measured, "fitted": [everyone, few], "on_paper": sites})
    assert "| 1 | 0 | 10 | 90 | 0 | 13 | 20 | 0.52 |" in text
    assert "| cifar | 0 | 1000 | 0.0034 |" in text


def test_what_was_kept_is_told_again(tmp_path, monkeypatch):
    for backend in ("deployment", "torchrun-2"):
        folder = tmp_path / f"small-fedbn-{backend}"
        folder.mkdir()
        monkeypatch.setenv(LOG_VARIABLE, str(folder / EVENTS_FILE))
        for number in (1, 2):
            log_event("give", time.perf_counter(), bytes=80, rank=0)
            log_event("round", time.perf_counter() - 1, round=number, up=400, down=800, clients=4)
    counted = '{"inbound": 1200, "outbound": 1700, "up": [110], "down": [200]}'
    (tmp_path / "small-fedbn-deployment" / "traffic.json").write_text(counted)
    done = CliRunner().invoke(main, ["wire", "--case", "small fedbn", "--seen", str(tmp_path)], catch_exceptions=False)
    assert "| 110 | 100 | 1.1000 | 200 | 200 | 1.0000 |" in done.stdout
    assert "| torchrun, 2 ranks | 0 | 400 | 0.0000 | 80 | 800 | 0.1000 |" in done.stdout
