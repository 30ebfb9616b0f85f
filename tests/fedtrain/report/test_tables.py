"""Runs read, put in rows, put in tables."""

import json
import os
import re
from dataclasses import replace
from math import nextafter
from statistics import fmean, stdev

import pytest

from fedtrain.report.formatting import format_percent
from fedtrain.report.grouping import build_labels, find_setting_differences
from fedtrain.report.page_tables import find_comparable_rows, format_results, write_headline
from fedtrain.report.plot_style import assign_styles, space_heights
from fedtrain.report.records import find_runs, read_record
from fedtrain.report.tables import build_result_tables, list_cautions, table_to_dict
from theory.errors import InputError


@pytest.fixture
def records(fake_run, tmp_path):
    """(method, seed, ...) -> a record."""

    def new(method="fedavg", seed=1, level=0.8, name=None, **more):
        return read_record(fake_run(tmp_path / (name or f"{method}-{seed}"), method, seed, level, **more))

    return new


def said(table):
    return " ".join(table.cautions)


# --- a run as its folder tells it


def test_a_finished_run_tells_all(records):
    run = records("fedco2", 3)
    assert (run.title, run.seeds, run.last_evaluated_round, run.rounds, run.finished) == (
        "Fed-CO2",
        (3, 0),
        10,
        10,
        True,
    )
    assert run.branches == ["fused", "online", "offline"]
    assert list(run.clients) == ["b", "a", "c"]
    assert (run.bytes, run.seconds, run.rounds_done) == ({"up": 10_000_000, "down": 20_000_000}, 30.0, 10)


def test_an_unfinished_run_tells_what_its_checkpoint_knows(records):
    run = records("fedbn", reached=6)
    assert (run.finished, run.last_evaluated_round, run.rounds_done, run.seconds) == (False, 6, 6, 18.0)
    assert run.bytes == {"up": 6_000_000, "down": 12_000_000}


def test_a_run_without_an_evaluated_round_is_refused_with_the_way_out(fake_run, tmp_path):
    path = fake_run(tmp_path / "early", reached=0)
    with pytest.raises(InputError, match=r"early: no round has been evaluated yet; .*--resume"):
        read_record(path)


def test_a_folder_of_runs_stands_for_its_runs(fake_run, tmp_path):
    one, other = fake_run(tmp_path / "one"), fake_run(tmp_path / "other", seed=2)
    (tmp_path / "one.log").write_text("round 1/10")
    assert find_runs(tmp_path) == [one, other]
    assert find_runs(one) == [one]
    assert find_runs(tmp_path / "nothing") == [tmp_path / "nothing"]
    with pytest.raises(InputError, match="no run is here"):
        read_record(tmp_path / "nothing")


@pytest.mark.parametrize("data", [None, [], {}, {"title": "Toy"}, {"title": "Toy", "standin": False, "notes": 3}])
def test_a_damaged_manifest_is_refused(fake_run, tmp_path, data):
    path = fake_run(tmp_path / "run")
    (path / "manifest.json").write_text(json.dumps({"data": data}))
    with pytest.raises(InputError, match="run"):
        read_record(path)


def test_an_accuracy_beyond_one_is_refused(fake_run, tmp_path):
    path = fake_run(tmp_path / "run")
    rows = (path / "metrics.jsonl").read_text().splitlines()
    rows[0] = json.dumps(json.loads(rows[0]) | {"accuracy": 1.5})
    (path / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    with pytest.raises(InputError, match="not between 0 and 1"):
        read_record(path)


@pytest.mark.parametrize("clients", [3, [], [{"name": "a", "train": [1]}], [{"name": "a", "train": [0, 0, 0]}]])
def test_without_counts_of_classes_there_is_no_figure_of_them(records, clients):
    run = records()
    assert run.class_counts == {"b": [10, 20, 30], "a": [11, 20, 29], "c": [12, 20, 28]}
    assert replace(run, manifest={"data": run.data | {"clients": clients}}).class_counts is None


def test_rows_of_a_half_written_round_are_left_out(fake_run, tmp_path):
    path = fake_run(tmp_path / "run")
    rows = (path / "metrics.jsonl").read_text().splitlines(keepends=True)
    assert read_record(path).last_evaluated_round == 10
    (path / "metrics.jsonl").write_text("".join(rows[:-1]))
    assert read_record(path).last_evaluated_round == 8


def test_a_run_of_a_machine_with_other_devices_can_be_read(fake_run, tmp_path):
    path = fake_run(tmp_path / "run")
    text = (path / "config.toml").read_text()
    (path / "config.toml").write_text(text.replace('device = "auto"', 'device = "cuda:7"'))
    assert read_record(path).settings["machine"]["device"] == "cuda:7"


def test_settings_that_an_older_version_did_not_know_have_their_defaults(fake_run, tmp_path):
    path = fake_run(tmp_path / "run")
    before = read_record(path).settings
    text = (path / "config.toml").read_text()
    (path / "config.toml").write_text(text.replace('on_client_failure = "stop"', ""))
    assert read_record(path).settings == before


def test_where_test_data_waited_validation_is_shown_over_rounds(records):
    best = {"evaluation": {"report": "best-by-validation", "test": "chosen"}}
    runs = [records("fedbn", seed, tested=tested, sections=best) for seed, tested in ((1, (4, 10)), (2, (6, 10)))]
    assert all(run.has_untested_rounds for run in runs)
    (table,) = build_result_tables(runs)
    (row,) = table.rows
    assert (table.rule, table.curve_split) == ("best-by-validation", "val")
    assert list(row.get_curve("val")) == [2, 4, 6, 8, 10]
    assert list(row.get_curve("test")) == [10]
    (whole,) = build_result_tables([records("moon", tested=(2, 4, 6, 8, 10), sections=best)])
    assert whole.curve_split == "test"
    (mixed,) = build_result_tables([*runs, records("fedavg")], "last")
    assert mixed.curve_split == "test"  # there is nothing else that all have


def test_an_unfinished_run_whose_last_round_was_not_tested(records):
    best = {"evaluation": {"report": "best-by-validation", "test": "chosen"}}
    run = records("fedbn", tested=(4,), reached=8, sections=best)
    assert (run.last_evaluated_round, run.reporting_rule, list(run.rules)) == (
        8,
        "best-by-validation",
        ["best-by-validation"],
    )
    (table,) = build_result_tables([run])
    assert "round 8 of 10" in said(table)
    with pytest.raises(InputError, match="nothing to report by the rule 'last'"):
        build_result_tables([run], "last")


# --- rows


def test_runs_that_differ_in_their_seeds_are_one_row(records):
    runs = [records("fedbn", seed, level=0.7 + 0.01 * seed) for seed in (2, 1, 3)]
    (table,) = build_result_tables(runs)
    (row,) = table.rows
    means = [run.rules["last"]["mean"]["fused"] for run in sorted(runs, key=lambda run: run.seeds)]
    assert (row.label, [run.seeds[0] for run in row.runs]) == ("FedBN", [1, 2, 3])
    assert row.client_statistic("mean").mean == pytest.approx(fmean(means))
    assert row.client_statistic("mean").std == pytest.approx(stdev(means))
    assert "One seed" not in said(table)


def test_a_seed_that_is_not_as_far_has_a_row_of_its_own(records):
    runs = [records("fedbn", 1), records("fedbn", 2), records("fedbn", 3, reached=6)]
    (table,) = build_result_tables(runs)
    assert [(row.label, len(row.runs)) for row in table.rows] == [("FedBN", 2), ("FedBN, unfinished", 1)]
    assert "FedBN, unfinished: round 6 of 10" in said(table)
    assert table.ranked == []


def test_a_seed_that_is_there_twice_is_not_counted_twice(records):
    (table,) = build_result_tables([records(name="one"), records(name="two")])
    assert [row.label for row in table.rows] == ["FedAvg, one", "FedAvg, two"]


def test_labels_name_the_settings_that_tell_rows_apart(records):
    half = records("fedprox", name="half", sections={"method": {"mu": 0.5}})
    full = records("fedprox", name="full", sections={"method": {"mu": 1.0}})
    assert build_labels([[half], [full], [records("fedbn")]]) == ["FedProx (mu 0.5)", "FedProx (mu 1.0)", "FedBN"]


def test_a_name_is_called_by_what_it_is_the_name_of(records):
    both = [[records(name=model, sections={"model": {"name": model}})] for model in ("two-layer", "digits")]
    assert build_labels(both) == ["FedAvg (model two-layer)", "FedAvg (model digits)"]


def test_differences_and_what_is_common(records):
    a, b = records("fedbn", 1), records("fedbn", 2)
    differ, same = find_setting_differences([[a, b], [records("fedavg", 1, sections={"local": {"lr": 0.5}})]])
    assert differ["seed"] == ["1, 2", "1"]
    assert differ["local.lr"] == ["0.01", "0.5"]
    assert differ["method.bn_stats"] == ["local", "–"]
    assert same["server.rounds"] == "10"
    assert not differ.keys() & same.keys()


# --- tables


def test_different_data_are_not_ranked_together(records):
    real, standin = records("fedbn"), records("fedavg", level=0.9, standin=True)
    found = build_result_tables([real, standin])
    assert [(table.title, table.standin) for table in found] == [("Toy", False), ("Toy (stand-in)", True)]
    assert not any(table.ranked for table in found)


def test_stand_in_data_are_called_so_even_if_their_title_does_not(records):
    assert build_result_tables([records(standin=True)])[0].title == "Toy (stand-in)"


def test_other_clients_are_other_data(records):
    assert len(build_result_tables([records("fedbn"), records("fedavg", clients=("b", "a"))])) == 2


def test_the_best_is_bold_and_only_among_finished_runs_of_equal_length(records):
    runs = [records("fedavg", level=0.7), records("fedbn", level=0.8), records("moon", level=0.95, reached=8)]
    (table,) = build_result_tables(runs)
    best = {label: [cell.best for cell in cells] for label, cells in format_results(table).rows}
    assert best == {"FedAvg": [False] * 4, "FedBN": [True] * 4, "MOON, unfinished": [False] * 4}
    assert "FedBN has the highest mean" in write_headline(table)
    (table,) = build_result_tables([*runs, records("fedco2", level=0.9, rounds=20)])
    assert not any(cell.best for _, cells in format_results(table).rows for cell in cells)
    assert "different numbers of rounds (10 and 20)" in said(table)
    assert "After 10 rounds with one seed each, FedBN has the highest mean" in write_headline(table)
    assert write_headline(table).endswith("Trained for another number of rounds, and so not compared: Fed-CO2.")


def test_the_headline_calls_nobody_ahead_of_who_is_equal(records):
    """At this level every accuracy is 1."""
    best, worse = [records("fedavg", level=5), records("fedbn", level=5)], records("moon", level=0.7)
    lead = write_headline(build_result_tables([*best, worse])[0])
    assert "FedAvg and FedBN share the highest mean accuracy on Toy, 100.0\N{NO-BREAK SPACE}%. They also" in lead
    assert "points above" not in lead
    assert "share the highest worst client, 100.0" in lead
    lead = write_headline(build_result_tables([best[0], worse])[0])
    assert "FedAvg has the highest mean" in lead
    assert "points above MOON. It also has the highest worst" in lead


def test_rows_that_cannot_be_compared_are_told_without_a_winner(records):
    runs = [records("fedavg", level=0.7), records("fedco2", level=0.9, rounds=20)]
    (table,) = build_result_tables(runs)
    lead = write_headline(table)
    assert re.match(
        r"Mean accuracy on Toy: FedAvg has [\d.]+\s% after round 10; Fed-CO2 has [\d.]+\s% after round 20", lead
    )
    assert "none is called better" in lead
    assert "nothing to compare it with" in write_headline(build_result_tables(runs[:1])[0])


def test_the_largest_group_of_equally_many_rounds_is_compared(records):
    runs = [records("fedavg", rounds=20), records("fedprox", rounds=20, level=0.9)]
    runs += [records("singleset", level=0.5), records("fedbn", level=0.6)]
    (table,) = build_result_tables(runs)
    assert [row.label for row in find_comparable_rows(table.rows)] == [
        "FedAvg",
        "FedProx",
    ]  # of two, the longer trained
    (table,) = build_result_tables([*runs, records("moon", level=0.4)])
    assert [row.label for row in find_comparable_rows(table.rows)] == ["SingleSet", "MOON", "FedBN"]


def test_many_clients_are_shown_by_their_distribution(records):
    run = records("fedbn", clients=tuple(f"c{k}" for k in range(13)))
    grid = format_results(build_result_tables([run])[0])
    values = sorted(branches["fused"] for branches in run.rules["last"]["clients"].values())
    assert grid.heads == ["mean", "worst", "10 % point", "median", "best"]
    shown = [cell.text for cell in grid.rows[0][1]]
    assert (shown[1], shown[3], shown[4]) == tuple(f"{100 * values[k]:.1f}" for k in (0, 6, 12))


def test_which_rule(records):
    last = records("fedbn")
    window = records("fedavg", sections={"evaluation": {"window": 4, "window_every": 2, "report": "window"}})
    assert build_result_tables([window])[0].rule == "window"
    mixed = build_result_tables([last, window])[0]
    assert mixed.rule == "last"
    assert "different rules" in said(mixed)
    with pytest.raises(InputError, match="fedbn-1: nothing to report by the rule 'window'"):
        build_result_tables([last, window], "window")


def test_cautions(records):
    one, other = records("fedbn", 1), records("fedavg", 2)
    assert "One seed each" in said(build_result_tables([one, other])[0])
    assert "different seeds" in said(build_result_tables([one, other])[0])
    pair = build_result_tables([records("moon", 1), records("moon", 2), one])[0]
    assert "different numbers of seeds (1 and 2)" in said(pair)
    moved = [records("copa", seed, sections={"data": {"seed": seed}}) for seed in (1, 2)]
    assert "drawn anew" in said(build_result_tables(moved)[0])
    forged = build_result_tables([records("fedper", sha256="1"), records("fedrod", sha256="2")])[0]
    assert "not the same images" in said(forged)
    assert list_cautions(build_result_tables([records("fedprox", 1), records("fedprox", 2)])[0].rows) == []


def test_the_table_is_json_and_agrees_with_the_run(records):
    run = records("fedco2")
    told = json.loads(json.dumps(table_to_dict(build_result_tables([run])[0])))["rows"][0]
    last = run.rules["last"]
    assert told["mean"] == {"mean": last["mean"]["fused"], "std": None}
    assert told["worst"]["mean"] == min(client["fused"] for client in last["clients"].values())
    assert told["worst_client"] == "c"
    assert told["branches"]["online"]["clients"]["a"]["mean"] == last["clients"]["a"]["online"]
    assert told["bytes_a_round"] == {"up": 1e6, "down": 2e6}
    assert told["seconds_a_round"]["mean"] == 3.0


# --- looks


def test_no_two_rows_look_alike(records):
    runs = [records("fedbn", name=f"r{k}", sections={"local": {"lr": 0.1 + k / 100}}) for k in range(9)]
    found = assign_styles(build_result_tables(runs)[0].rows)
    assert len({(look.colour, look.marker) for look in found}) == 9


def test_names_at_the_ends_of_curves_keep_their_distance():
    moved = space_heights([1.0, 1.1, 1.2, 5.0], 1.0)
    assert moved == pytest.approx([0.1, 1.1, 2.1, 5.0])
    assert space_heights([], 1.0) == []


def test_reading_changes_nothing(fake_run, tmp_path):
    path = fake_run(tmp_path / "run", reached=4)
    before = {file: (os.stat(file).st_mtime_ns, file.read_bytes()) for file in path.rglob("*") if file.is_file()}
    read_record(path)
    assert before == {
        file: (os.stat(file).st_mtime_ns, file.read_bytes()) for file in path.rglob("*") if file.is_file()
    }


def test_equal_means_are_shown_alike_whichever_way_they_were_summed():
    """Around a half digit the last bits would decide."""
    values = [0.6, 0.5725, 0.8825, 0.32, 0.4225]
    mean = sum(values) / len(values)
    nearby = [nextafter(mean, 0.0), mean, nextafter(mean, 1.0)]
    assert len({format_percent(value) for value in nearby}) == 1
