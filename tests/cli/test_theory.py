"""``fedco2 theory`` as a user meets it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from studies import CLAIM_IDS

from cli.main import main

SMALL = ["theory", "--clients", "3", "--samples", "4", "--dim", "4", "--width", "64", "--steps", "5"]
QUICK = [*SMALL, "--claims", "O1,O2,O3,O4"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One full run: its folder and its report."""
    folder = tmp_path_factory.mktemp("theory") / "out"
    assert main([*SMALL, "--certify", "--out", str(folder)]) == 0
    return folder, json.loads((folder / "report.json").read_text())


def refused(capsys, arguments, *words):
    """Exit code 2, one line, and the words in it."""
    assert main(arguments) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    for word in words:
        assert word in said, said
    return said


def test_the_report_has_every_claim_and_the_documented_keys(run):
    _, report = run
    assert {"setting", "eigenvalues", "claims", "summary"} <= set(report)
    ids = [row["id"] for row in report["claims"]]
    assert ids == CLAIM_IDS
    for row in report["claims"]:
        assert {"id", "statement", "source", "verdict", "margin", "evidence"} <= set(row)
        assert row["verdict"] in ("holds", "fails") or row["verdict"].startswith("holds under: ")
    for name in ("V_on", "V_off", "V", "G_on", "Lambda_on"):
        assert report["eigenvalues"][name]["min"] <= report["eigenvalues"][name]["max"]


def test_the_matrices_are_those_of_the_report(run):
    folder, report = run
    with np.load(folder / "matrices.npz") as m:
        n, d, N, width = 12, 4, 3, 64
        shapes = {"X": (n, d), "y": (n,), "owner": (n,), "S": (N, d, d), "v": (width, d), "c": (width,)}
        shapes |= {"gamma": (width, N), "alpha": ()}
        kernels = ("V_on", "V_off", "V", "G_on", "G_off", "V_on_inf", "G_on_inf")
        shapes |= dict.fromkeys(kernels, (n, n))
        assert {name: m[name].shape for name in shapes} == shapes
        assert all(m[name].dtype == np.float64 for name in shapes if name != "owner")
        for name in ("V_on", "V_off", "V", "G_on"):
            assert np.linalg.eigvalsh(m[name])[0] == pytest.approx(report["eigenvalues"][name]["min"], abs=1e-10)
        # A third road, in numpy: V_on written out unit by unit.
        alpha, rows = m["alpha"], []
        for x, i in zip(m["X"], m["owner"], strict=True):
            Sv, gamma = m["v"] @ m["S"][i], m["gamma"][:, i]
            q, h = (Sv * m["v"]).sum(1), m["v"] @ x
            unit = alpha * m["c"] * gamma * (h >= 0) / np.sqrt(q * width)
            rows.append((unit[:, None] * (x - Sv * (h / q)[:, None])).ravel())
        J = np.stack(rows)
        assert np.allclose(J @ J.T, m["V_on"], rtol=0, atol=1e-12 * np.abs(m["V_on"]).max())


def test_the_folder_has_page_and_figures_and_nothing_half_written(run):
    folder, _ = run
    names = sorted(p.name for p in folder.iterdir())
    assert names == ["figures", "matrices.npz", "report.html", "report.json"]
    assert len(list((folder / "figures").glob("*.png"))) == 7


def test_certificates_are_in_the_report(run):
    _, report = run
    assert set(report["certificates"]) == {"O2", "O3 (mean)", "O3 (strict)"}
    assert all(row["verdict"] in ("certified", "not certifiable") for row in report["certificates"].values())


def test_a_report_is_not_overwritten(run, capsys):
    folder, _ = run
    before = (folder / "report.json").read_bytes()
    refused(capsys, [*QUICK, "--out", str(folder)], "not overwritten", "--out")
    assert (folder / "report.json").read_bytes() == before


@pytest.mark.parametrize("mine", ["matrices.npz", "report.html", "figures"])
def test_a_file_of_the_users_own_is_not_overwritten(mine, tmp_path, capsys):
    (tmp_path / mine).write_text("mine")
    refused(capsys, [*QUICK, "--out", str(tmp_path)], f"holds {mine} already", "--out")
    assert (tmp_path / mine).read_text() == "mine"


def test_it_prints_setting_tables_and_two_sentences(tmp_path, capsys):
    assert main([*QUICK, "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr()
    for text in ("N = 3 clients", "V_on", "Lambda_off", "O2", "✓ holds", "raises λ_min from", str(tmp_path / "out")):
        assert text in shown.out, text
    assert "needs about" in shown.err


def test_the_default_folder_is_a_new_one_under_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert main(QUICK) == 0
    assert len([p for p in (tmp_path / "runs").iterdir() if (p / "report.json").is_file()]) == 2


def test_json_is_all_that_stdout_gets(tmp_path, capsys):
    assert main([*QUICK, "--json", "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["claims"][0]["id"] == "O1"
    assert shown.err == ""


def test_draws_say_how_often_a_claim_held(tmp_path, capsys):
    assert main([*QUICK, "--draws", "3", "--out", str(tmp_path / "out")]) == 0
    assert "3/3" in capsys.readouterr().out


def test_strict_passes_where_orderings_hold_and_fails_where_one_does_not(tmp_path, monkeypatch):
    assert main([*QUICK, "--strict", "--out", str(tmp_path / "a")]) == 0
    import theory.claims.orderings as orderings
    from theory.claims import CLAIMS

    def broken(study):
        good = orderings.check_o2_offline_above_online(study)
        return type(good)("fails", good.rhs, good.lhs, -good.margin, good.unit, good.words, good.evidence)

    claim = CLAIMS["O2"]
    monkeypatch.setitem(CLAIMS, "O2", type(claim)(claim.id, claim.statement, claim.source, broken, ordering=True))
    assert main([*QUICK, "--out", str(tmp_path / "b")]) == 0  # without --strict a verdict is an answer, not an error
    assert main([*QUICK, "--strict", "--out", str(tmp_path / "c")]) == 1


def test_a_sweep_gives_a_table_and_a_figure(tmp_path, capsys):
    folder = tmp_path / "out"
    sweep = ["--sweep", "clients=2,3", "--sweep", "width=32,64"]
    small = ["theory", "--samples", "3", "--dim", "4"]
    assert main([*small, *sweep, "--out", str(folder)]) == 0
    table = json.loads((folder / "sweep.json").read_text())
    assert [(row["clients"], row["width"]) for row in table["rows"]] == [(2, 32), (2, 64), (3, 32), (3, 64)]
    assert all(row["V_off"] >= row["V_on"] for row in table["rows"])
    assert (folder / "figures").is_dir()
    assert any((folder / "figures").iterdir())
    assert "V_on (FedBN)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--clients", "0"], ["clients is 0"]),
        (["--width", "0"], ["width is 0"]),
        (["--dim", "0"], ["dim is 0"]),
        (["--samples", "-3"], ["samples is -3"]),
        (["--alpha", "2"], ["alpha is 2", "(0, 1]"]),
        (["--heterogeneity", "9"], ["heterogeneity is 9"]),
        (["--claims", "O7"], ["unknown claim 'O7'", "O1"]),
        (["--claims", ","], ["no claim named"]),
        (["--claims", ""], ["no claim named"]),
        (["--sweep", "clinets=2,3"], ["cannot sweep 'clinets'", "did you mean 'clients'"]),
        (["--sweep", "clients=two"], ["'two' is not a list of numbers"]),
        (["--sweep", "clients=2", "--sweep", "dim=3", "--sweep", "width=8"], ["3 sweeps"]),
        (["--device", "cuda"], ["'cuda'", "--device cpu"]),
        (["--chunk", "0"], ["chunk is 0"]),
        (["--seed", "100000000000000"], ["seed is 100000000000000", "between 0 and 2147483648"]),
        (["--width", "1000000000000"], ["GiB", "--width"]),
        (["--samples", "1000000000"], ["GiB", "lower --samples"]),
        (["--clients", "1000000"], ["GiB", "--clients"]),
        (["--dim", "100000", "--width", "64"], ["GiB", "lower --dim"]),
        (["--sweep", "dim=1,3"], ["parallel", "--allow-parallel"]),
        (["--dim", "1"], ["parallel", "λ_min", "--allow-parallel"]),
        (["--dataset", "nowhere.npz"], ["nowhere.npz", "No such file"]),
    ],
)
def test_bad_input_is_one_line_that_names_the_value(arguments, words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(capsys, ["theory", *arguments, "--out", str(tmp_path / "out")], *words)
    assert not (tmp_path / "out").exists()


def test_a_sweep_is_judged_by_the_settings_it_runs(tmp_path):
    """In one dimension all samples are parallel, but that setting is not run."""
    small = ["theory", "--dim", "1", "--samples", "2", "--width", "32", "--sweep", "dim=3,4"]
    assert main([*small, "--out", str(tmp_path / "out")]) == 0


def test_the_gain_of_a_sweep_is_that_of_the_columns_beside_it(tmp_path):
    small = ["theory", "--samples", "3", "--dim", "4", "--width", "32", "--draws", "3", "--sweep", "clients=2,3"]
    assert main([*small, "--out", str(tmp_path / "out")]) == 0
    for row in json.loads((tmp_path / "out" / "sweep.json").read_text())["rows"]:
        assert row["ratio"] == pytest.approx(row["V"] / row["V_on"], rel=1e-12)


def test_certify_with_a_sweep_is_refused_with_the_way_out(capsys):
    assert main(["theory", "--certify", "--sweep", "clients=2,3"]) == 2
    assert "leave one of them out" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    "arguments", [["--clinets", "5"], ["--covariance", "round"], ["--dtype", "int8"], ["--alpha", "x"]]
)
def test_wrong_usage_is_said_by_click(arguments, capsys):
    assert main(["theory", *arguments]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_one_client_is_said_to_prove_nothing(tmp_path, capsys):
    alone = ["theory", "--clients", "1", "--samples", "4", "--dim", "4", "--width", "64", "--claims", "O1,O2"]
    assert main([*alone, "--out", str(tmp_path / "out")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "there is only one client" in shown
    assert shown.count("; trivial with one client") == 2
    page = (tmp_path / "out" / "report.html").read_text()
    assert "there is only one client" in page
    assert page.count("; trivial with one client") == 2


def test_threads_are_those_asked_for(tmp_path, monkeypatch, capsys):
    import torch

    seen = []
    monkeypatch.setattr(
        "theory.verification.collect_results", lambda *a, **k: seen.append(torch.get_num_threads()) or 1 / 0
    )
    before = torch.get_num_threads()
    assert main([*QUICK, "--threads", "2", "--out", str(tmp_path / "out")]) == 70
    assert seen == [2]
    assert torch.get_num_threads() == before
    assert not (tmp_path / "out").exists()
    capsys.readouterr()
    refused(capsys, [*QUICK, "--threads", "0"], "--threads is 0")


@pytest.mark.parametrize("columns", [80, 140])
def test_no_word_is_broken(columns, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main([*SMALL, "--certify", "--draws", "2", "--out", str(tmp_path / "out")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line.rstrip()) <= columns for line in lines if str(tmp_path) not in line)
    words = set(" ".join(lines).split())
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    for row in report["claims"]:
        assert set(f"{row['statement']} {row['words']}".split()) <= words, row["id"]
        assert row["unit"] in words
    assert set(" ".join(report["summary"]).split()) <= words
    whole = "\n".join(lines)
    for text in ("SingleSet (offline), m → ∞", "Fed-CO2 (mean of both), m → ∞", "O3 (strict)", "✓ certified", "held"):
        assert text in whole
    assert all(re.search(r"\d ± \d", line) for line in lines if "certified" in line)


def test_a_sweep_fits_eighty_columns(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    sweep = ["--sweep", "heterogeneity=0.5,1", "--sweep", "samples=2,3"]
    assert main(["theory", "--dim", "4", "--width", "32", *sweep, "--out", str(tmp_path / "out")]) == 0
    lines = capsys.readouterr().out.splitlines()
    (head,) = [line for line in lines if "heterogeneity" in line]
    assert head.split() == ["heterogeneity", "samples", "V_on", "V_off", "V", "V", "/", "V_on", "held"]


def test_the_defaults_are_those_of_the_library():
    from cli.theory import theory
    from theory.config import TheoryConfig

    defaults = {option.name: option.default for option in theory.params}
    for name in TheoryConfig.__dataclass_fields__:
        assert defaults[name] == getattr(TheoryConfig(), name), name


@pytest.mark.parametrize(
    ("message", "options", "shown"),
    [
        ("lower samples or clients", ["samples", "clients"], "lower --samples or --clients"),
        (
            "/tmp/out holds x; choose another folder with out",
            ["out"],
            "/tmp/out holds x; choose another folder with --out",
        ),
        ("raise dim, or go on with allow_parallel", ["allow_parallel"], "raise dim, or go on with --allow-parallel"),
        ("nothing to change", ["width"], "nothing to change"),
    ],
)
def test_errors_advise_flags(message, options, shown):
    from cli.theory.run import use_flags

    assert use_flags(message, options) == shown


def npz(path, **changes):
    rng = np.random.default_rng(0)
    arrays = {"X": rng.normal(size=(20, 3)), "y": rng.normal(size=20), "owner": np.arange(20) % 2} | changes
    np.savez(path, **arrays)
    return str(path)


def test_own_data_are_examined_and_said_to_be_centred(tmp_path, capsys):
    rng = np.random.default_rng(1)
    file = npz(tmp_path / "d.npz", X=rng.normal(size=(20, 3)) + 2)
    quick = ["theory", "--claims", "O1,O2", "--width", "64", "--dataset", file, "--out", str(tmp_path / "out")]
    assert main(quick) == 0
    shown = capsys.readouterr().out
    assert "the user's own data" in shown
    assert "Note: inputs were centred for each client" in shown
    assert "broken" not in shown  # for they are centred
    setting = json.loads((tmp_path / "out" / "report.json").read_text())["setting"]
    assert setting["samples"] == [10, 10]
    assert setting["ridge"] == 1e-3


def test_own_data_with_parallel_samples_are_refused_unless_allowed(tmp_path, capsys):
    x = np.random.default_rng(2).normal(size=(20, 3))
    x[2] = 3 * x[0]  # both of client 0
    x[0::2] -= x[0::2].mean(0)
    x[2] = 3 * x[0]
    rest = x[[0, 2]].sum(0)  # keep the mean at zero, so that centring leaves the two parallel
    x[4:20:2] += (-rest - x[4:20:2].sum(0)) / 8
    file = npz(tmp_path / "d.npz", X=x)
    base = ["theory", "--claims", "O1", "--width", "64", "--dataset", file, "--out", str(tmp_path / "out")]
    where = "samples X[0] (client 0) and X[2] (client 0) are parallel"
    refused(capsys, base, where, "λ_min(V_on) is", "--allow-parallel")
    assert main([*base, "--allow-parallel"]) == 0
    assert "parallel" in capsys.readouterr().out


def test_a_client_of_two_samples_is_examined(tmp_path):
    """Centred they are opposite, which no cure could change; no hidden unit is open to both."""
    file = npz(tmp_path / "d.npz", owner=np.array([0] * 2 + [1] * 18))
    assert main(["theory", "--claims", "K3", "--width", "64", "--dataset", file, "--out", str(tmp_path / "out")]) == 0
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["claims"][0]["verdict"] == "holds"
    with np.load(tmp_path / "out" / "matrices.npz") as m:
        assert m["X"][0] == pytest.approx(-m["X"][1])
        assert abs(m["V_on_inf"][0, 1]) < 1e-12 * m["V_on_inf"].max()


def test_the_limit_is_written_where_it_was_needed_and_is_that_of_the_kernels(tmp_path, monkeypatch):
    def arrays(name, *options):
        assert main([*SMALL, *options, "--out", str(tmp_path / name)]) == 0
        with np.load(tmp_path / name / "matrices.npz") as m:
            return set(m)

    limits = {"V_on_inf", "G_on_inf"}
    assert limits <= arrays("exact", "--claims", "K4")
    assert not limits & arrays("printed", "--claims", "K4", "--projection", "printed")  # the limit is the exact one's
    monkeypatch.setattr("theory.study.compute_infinite_width_limit", None)
    assert not limits & arrays("orderings", "--claims", "O2")


def test_the_figure_of_clients_shows_the_projection_of_the_run(tmp_path):
    rows = []
    for projection in ("exact", "printed"):
        folder = tmp_path / projection
        assert main([*QUICK, "--projection", projection, "--out", str(folder)]) == 0
        report = json.loads((folder / "report.json").read_text())
        (row,) = [row for row in report["curves"]["clients"] if row["clients"] == 3]
        assert row["V_on"] == pytest.approx(report["eigenvalues"]["V_on"]["min"])
        rows.append(row["V_on"])
    assert rows[0] != pytest.approx(rows[1])


def test_data_and_clients_contradict(tmp_path, capsys):
    assert main(["theory", "--dataset", npz(tmp_path / "d.npz"), "--clients", "5"]) == 2
    assert "contradict" in capsys.readouterr().err


def test_an_unwritable_folder_is_said_before_the_work(tmp_path, capsys):
    blocked = tmp_path / "file"
    blocked.touch()
    refused(capsys, [*QUICK, "--out", str(blocked / "out")], "cannot write to")


def test_ctrl_c_leaves_nothing_behind(tmp_path):
    command = [sys.executable, "-m", "cli", "theory", "--clients", "3", "--steps", "100000", "--out", "out"]
    root = Path(__file__).parents[2]
    env = os.environ | {"PYTHONPATH": str(root)}
    process = subprocess.Popen(
        command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    try:
        for _ in range(600):
            if (tmp_path / "out").exists():
                break
            time.sleep(0.1)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    # Python itself ends by the signal where it caught the interrupt inside an exec (imports); shells call both 130.
    assert process.returncode in (130, -signal.SIGINT), said
    assert "interrupted" in said
    assert not (tmp_path / "out").exists()


def test_debug_shows_the_traceback(capsys):
    assert main(["--debug", "theory", "--clients", "0"]) == 2
    assert "Traceback" in capsys.readouterr().err
