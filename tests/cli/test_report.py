"""``fedco2 report`` as a user meets it."""

from __future__ import annotations

import json

import pytest

from cli.main import main


@pytest.fixture
def ask(capsys, monkeypatch):
    """Without figures, which take longer than all the rest; tests/fedtrain draws them."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("fedtrain.report.page.draw_svg_figures", lambda table: {})
    monkeypatch.setattr("fedtrain.report.page.draw_label_figures", lambda table: [])

    def run(*arguments):
        code = main(["report", *map(str, arguments)])
        out = capsys.readouterr()
        return code, out.out, out.err

    return run


@pytest.fixture
def runs(fake_run, tmp_path):
    """FedBN and Fed-CO2 with three seeds each: (a1, a2, a3), (b1, b2, b3)."""
    levels = {"fedbn": 0.7, "fedco2": 0.8}
    return [[fake_run(tmp_path / f"{m}-{s}", m, s, level, rounds=4) for s in (1, 2, 3)] for m, level in levels.items()]


def joined(side):
    return ",".join(map(str, side))


def test_a_page_and_a_table(runs, ask, tmp_path):
    code, out, err = ask(*runs[0], *runs[1], "--out", tmp_path / "page.html")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "Test accuracy in %, Toy, after the last evaluated round"
    rows = {line.split()[0]: line for line in lines if line.startswith("Fed")}
    assert rows["FedBN"].count("±") == rows["Fed-CO2"].count("±") == rows["Fed-CO2"].count("*") == 4
    assert "± std over seeds (ddof 1)" in out
    assert lines[-1].startswith(f"Written to {tmp_path / 'page.html'}")
    assert "FedBN and Fed-CO2 on Toy" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_the_rows_of_many_seeds_keep_their_names_on_a_narrow_terminal(fake_run, ask, tmp_path, terminal):
    terminal(80)
    domains = ("mnist", "svhn", "usps", "synthdigits", "mnist_m")
    for method in ("singleset", "fedco2"):
        for seed in range(1, 6):
            fake_run(tmp_path / "runs" / f"{method}-{seed}", method, seed, rounds=2, clients=domains)
    code, out, _ = ask(tmp_path / "runs", "--out", tmp_path / "page.html")  # a folder of runs
    assert code == 0
    rows = {line.split()[0]: line for line in out.splitlines() if "±" in line}
    assert {"SingleSet", "Fed-CO2"} <= set(rows)
    assert rows["Fed-CO2"].count("±") == 6
    assert "…" not in out
    assert max(map(len, out.splitlines()[:8])) <= 80


def test_without_out_the_page_goes_to_runs(runs, ask, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, _ = ask(runs[0][0])
    assert code == 0
    assert len(list((tmp_path / "runs").glob("report-*.html"))) == 1


def test_json_and_nothing_else(runs, ask, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = ask(*runs[0], *runs[1], "--json")
    told = json.loads(out)
    assert (code, err) == (0, "")
    assert told["out"] is None
    assert [row["label"] for row in told["tables"][0]["rows"]] == ["FedBN", "Fed-CO2"]
    assert told["settings"]["differ"]["method.name"] == ["fedbn", "fedco2"]
    assert not (tmp_path / "runs").exists()


def test_a_run_without_an_evaluation_is_left_out_of_a_page_and_not_of_a_comparison(runs, ask, fake_run, tmp_path):
    early = fake_run(tmp_path / "early", reached=0)
    code, out, _ = ask(runs[0][0], early, "--out", tmp_path / "page.html")
    assert code == 0
    assert f"left out: {early}: no round has been evaluated yet" in out
    told = json.loads(ask(early, runs[0][0], "--json")[1])
    assert told["left_out"] == [str(early)]
    assert len(told["tables"][0]["rows"]) == 1
    code, _, err = ask("--compare", runs[0][0], early)
    assert code == 2
    assert "no round has been evaluated yet" in err


def test_methods_stand_in_the_order_of_the_paper(runs, ask, fake_run, tmp_path):
    told = json.loads(ask(*runs[1], *runs[0], fake_run(tmp_path / "x", "fedavg", rounds=4), "--json")[1])
    assert [row["label"] for row in told["tables"][0]["rows"]] == ["FedAvg", "FedBN", "Fed-CO2"]


def test_a_third_run_beside_a_comparison_is_said_to_take_no_part(runs, ask, fake_run, tmp_path):
    third = fake_run(tmp_path / "third", "fedavg", rounds=4)
    code, out, _ = ask("--compare", runs[0][0], runs[1][0], third)
    assert code == 0
    assert f"note: {third} takes no part in the comparison" in out
    assert "name a page with --out" in out
    out = ask("--compare", runs[0][0], runs[1][0], third, runs[0][0], "--out", tmp_path / "page.html")[1]
    assert out.count("takes no part") == 1
    assert "it is in the tables of the page" in out
    assert "FedAvg" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_many_clients_are_turned_on_a_narrow_terminal(fake_run, ask, tmp_path, terminal):
    clients = [f"hospital-number-{k}" for k in range(10)]
    for method in ("singleset", "fedco2"):
        fake_run(tmp_path / "runs" / method, method, rounds=2, clients=clients)
    terminal(80)
    _, out, _ = ask(tmp_path / "runs", "--out", tmp_path / "page.html")
    assert max(map(len, out.splitlines()[:14])) <= 80
    assert [line.split()[0] for line in out.splitlines()[3:14]] == [*clients, "mean"]


def test_compare_over_seeds(runs, ask, terminal):
    terminal(80)
    code, out, _ = ask("--compare", joined(runs[0]), joined(runs[1]))
    assert code == 0
    assert out.startswith("Fed-CO2 (B) against FedBN (A): test accuracy in %, Toy")
    assert "Wilcoxon" in out
    assert "3 pairs" in out
    assert "Written" not in out
    assert max(map(len, out.splitlines())) <= 80
    told = json.loads(ask("--compare", joined(runs[0]), joined(runs[1]), "--json")[1])["compare"]
    mean = told["rows"][-1]
    shown = next(line.split() for line in out.splitlines() if line.startswith("mean of all"))
    assert shown[3:6] == [f"{100 * mean['a']:.1f}", f"{100 * mean['b']:.1f}", f"{100 * mean['difference']:+.1f}"]


def test_compare_one_run_each_on_a_page(runs, ask, tmp_path):
    code, out, _ = ask("--compare", runs[0][0], runs[1][0], "--out", tmp_path / "page.html")
    assert code == 0
    assert "approximate" in out
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Fed-CO2 against FedBN, Toy" in text
    assert "report of 2 runs" in text


def test_a_comma_may_be_part_of_a_name(fake_run, runs, ask, tmp_path):
    odd = fake_run(tmp_path / "a,b", "moon", 1, rounds=4)
    assert ask("--compare", runs[0][0], odd)[0] == 0


def test_a_folder_named_twice_is_one_run(runs, ask):
    told = json.loads(ask(runs[0][0], f"{runs[0][0]}/", "--json")[1])
    assert len(told["tables"][0]["rows"][0]["runs"]) == 1


def test_the_rule_can_be_chosen(runs, ask):
    assert json.loads(ask(*runs[0], "--rule", "last", "--json")[1])["tables"][0]["rule"] == "last"
    code, _, err = ask(*runs[0], "--rule", "window", "--json")
    assert code == 2
    assert "nothing to report by the rule 'window'" in err


def test_errors_name_the_way_out(runs, ask, fake_run, tmp_path):
    for arguments, words in (
        ([], "name at least one run folder"),
        ([tmp_path / "none"], "no run is here"),
        ([tmp_path / "none", runs[0][0]], "no run is here"),
        ([fake_run(tmp_path / "early", reached=0)], "no round has been evaluated yet"),
        ([runs[0][0], "--out", tmp_path / "page.txt"], "end in .html"),
        (["--compare", runs[0][0], ","], "a side is empty"),
        (["--compare", runs[0][0], fake_run(tmp_path / "other", title="Other")], "not tested on the same"),
    ):
        code, out, err = ask(*arguments)
        assert (code, out) == (2, ""), arguments
        assert words in err
        assert err.count("\n") <= 4
