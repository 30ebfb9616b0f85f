"""`theory.verify`: from keywords to a typed report, quiet or not, saved or not."""

import json
import subprocess
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

import theory
from theory import InputError, TheoryConfig, VerificationReport, verify
from theory.resources import choose_threads

ROOT = Path(__file__).resolve().parents[2]
SMALL = {"clients": 3, "samples": 4, "dim": 4, "width": 64, "steps": 5, "quiet": True}
FAST = SMALL | {"claims": "O1,O2,O3,O4"}


@pytest.fixture(scope="module")
def report():
    return verify(**SMALL, certify=True)


def draw_arrays(shift=0.0):
    rng = np.random.default_rng(0)
    return {"X": rng.normal(size=(20, 3)) + shift, "y": rng.normal(size=20), "owner": ["a", "b"] * 10}


# ---- what comes back


def test_every_claim_has_a_typed_finding(report):
    assert isinstance(report, VerificationReport)
    assert [finding.id for finding in report.findings] == list(theory.CLAIMS)
    finding = report["O2"]
    assert (finding.verdict, finding.holds, finding.kind, finding.conditions) == ("holds", True, "holds", [])
    assert finding.margin == finding.lhs - finding.rhs > 0
    assert finding.unit == "absolute"
    assert report["K5"].conditions == ["every S_i = s_i I"]
    assert report["K5"].kind == "under"
    assert report.eigenvalues["V_off"].min >= report.eigenvalues["V"].min >= report.eigenvalues["V_on"].min > 0
    assert report.certificates["O2"].verdict == "certified"
    assert report.setting == TheoryConfig(clients=3, samples=4, dim=4, width=64, steps=5)
    assert report.holds
    assert set(report.versions) == {"fedco2", "python", "torch", "numpy", "scipy"}


def test_a_report_is_frozen(report):
    with pytest.raises(FrozenInstanceError):
        report.summary = []
    with pytest.raises(FrozenInstanceError):
        report["O1"].verdict = "fails"


def test_a_claim_that_was_not_checked_is_named_with_those_that_were():
    report = verify(**FAST)
    with pytest.raises(InputError, match=r"claim 'K1' was not checked; .*O1, O2, O3, O4"):
        report["K1"]


@pytest.mark.parametrize("claims", ["O2,K2", ["O2", "K2"], ("k2", "o2")])
def test_claims_are_named_in_a_string_or_a_list(claims):
    assert [finding.id for finding in verify(**SMALL | {"claims": claims}).findings] == ["K2", "O2"]


def test_an_ordering_that_fails_is_told(monkeypatch):
    claim = theory.CLAIMS["O2"]
    found = theory.Finding("fails", 1.0, 2.0, -1.0, "absolute", "broken on purpose")
    broken = theory.Claim(claim.id, claim.statement, claim.source, lambda study: found, ordering=True)
    monkeypatch.setitem(theory.CLAIMS, "O2", broken)
    assert not verify(**FAST).holds
    assert verify(**SMALL | {"claims": "O1"}).holds


# ---- how it is shown


def test_figures_are_those_of_the_page(report):
    figures = report.figures()
    assert list(figures) == ["spectra", "draws", "residuals", "width", "clients", "tracking", "mixture"]
    assert all(isinstance(figure, Figure) for figure in figures.values())


def test_text_and_notebook_show_every_verdict(report):
    text, html = repr(report), report._repr_html_()
    for finding in report.findings:
        line = next(line for line in text.splitlines() if line.startswith(finding.id + " "))
        assert ("holds under" if finding.kind == "under" else finding.verdict) in line
        assert finding.unit in line
        assert f"<td>{finding.id}</td>" in html
    assert report.summary[0] in text
    assert html.startswith("<table>")


def test_a_notebook_shows_hostile_names_as_text():
    arrays = draw_arrays(shift=2.0) | {"owner": ["<script>", "b"] * 10}
    html = verify(dataset=arrays, width=64, claims="O1", quiet=True)._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


def test_quiet_prints_nothing_and_otherwise_the_cost_is_told(capsys):
    verify(**FAST)
    assert capsys.readouterr() == ("", "")
    verify(**FAST | {"quiet": False})
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "needs about" in shown.err


# ---- what is written


def test_nothing_is_written_unless_asked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    verify(**FAST)
    assert list(tmp_path.iterdir()) == []


def test_saving_later_writes_what_out_writes(tmp_path):
    kept = verify(**FAST, out=tmp_path / "out")
    saved = kept.save(tmp_path / "saved")
    names = ["figures", "matrices.npz", "report.html", "report.json"]
    for folder in (tmp_path / "out", saved):
        assert sorted(path.name for path in folder.iterdir()) == names
        assert json.loads((folder / "report.json").read_text()) == kept.to_dict()
    with np.load(saved / "matrices.npz") as matrices:
        assert {name: matrices[name].tolist() for name in matrices} == {
            name: array.tolist() for name, array in kept.matrices.items()
        }
    assert kept.to_dict()["command"] == (
        f"theory.verify(clients=3, samples=4, dim=4, width=64, steps=5, claims='O1,O2,O3,O4', out='{tmp_path / 'out'}')"
    )


def test_a_folder_in_use_is_refused_before_the_work(tmp_path, monkeypatch):
    (tmp_path / "report.html").write_text("mine")
    monkeypatch.setattr("theory.verification.collect_results", None)
    with pytest.raises(InputError, match=r"holds report\.html already.*choose another folder with out"):
        verify(**FAST, out=tmp_path)
    assert (tmp_path / "report.html").read_text() == "mine"


# ---- what is refused


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"clinets": 3}, "unknown option 'clinets'; did you mean 'clients'"),
        ({"certfy": True}, "unknown option 'certfy'; did you mean 'certify'"),
        ({"claims": "O7"}, "unknown claim 'O7'; did you mean 'O"),
        ({"clients": 0}, "clients is 0"),
        ({"threads": 0}, "threads is 0"),
        ({"ridge": 0.1}, "ridge is for a dataset"),
        ({"clients": 3, "dataset": draw_arrays()}, "clients contradicts dataset"),
        ({"dataset": {"X": [[1.0]], "y": [1.0]}}, "dataset has X, y; it needs"),
        ({"dataset": "nowhere.npz"}, "cannot read nowhere.npz"),
        ({"dim": 1}, "parallel.*raise dim, or go on with allow_parallel"),
        ({"samples": 10**9}, "GiB are free; lower samples or clients"),
    ],
)
def test_what_cannot_be_is_refused_without_flags(keywords, message):
    with pytest.raises(InputError, match=message) as caught:
        verify(**keywords, quiet=True)
    assert "--" not in str(caught.value)


# ---- the user's own data


def test_arrays_user_data_and_a_file_give_the_same(tmp_path):
    arrays, more = draw_arrays(), {"claims": "O1,O2", "width": 64, "quiet": True}
    np.savez(tmp_path / "mine.npz", **arrays)
    built = theory.build_user_data(**arrays, ridge=0.01)
    reports = [
        verify(dataset=tmp_path / "mine.npz", ridge=0.01, **more),
        verify(dataset=arrays, ridge=0.01, **more),
        verify(dataset=built, **more),
    ]
    first = reports[0].to_dict()
    assert first["setting"]["data"] == str(tmp_path / "mine.npz")
    for report in reports:
        content = report.to_dict()
        assert content["eigenvalues"] == first["eigenvalues"]
        assert content["claims"] == first["claims"]
        assert content["setting"]["ridge"] == 0.01
    assert reports[1].to_dict()["setting"]["data"] == "the arrays"
    with pytest.raises(InputError, match="ridge contradicts dataset"):
        verify(dataset=built, ridge=0.1, **more)


def test_centred_inputs_are_a_note_and_no_broken_assumption():
    report = verify(dataset=draw_arrays(shift=5.0), width=64, claims="O1", quiet=True)
    assert report.assumptions_broken == []
    (note,) = report.notes
    assert note.startswith("inputs were centred for each client, as batch norm does")
    assert f"Note: {note}" in repr(report)
    assert "broken" not in repr(report)
    (line,) = report.to_dict()["setting"]["assumptions_broken"]  # programs find it where they did
    assert line.startswith("inputs are not centred")


# ---- one client


def test_one_client_is_told_to_be_trivial():
    report = verify(**SMALL | {"clients": 1, "claims": "K1,O1,O2,O3,O4,B1,D3"})
    trivial = {"O1", "O2", "O3", "O4", "B1", "D3"}
    for finding in report.findings:
        assert finding.holds
        assert finding.words.endswith("; trivial with one client") == (finding.id in trivial)
    (note,) = report.notes
    assert note.startswith("there is only one client")
    assert "O1, O2, O3, O4, D3, B1 hold trivially" in note
    assert report.to_dict()["notes"] == [note]


def test_two_clients_are_not():
    report = verify(**SMALL | {"clients": 2, "claims": "O1,O2"})
    assert report.notes == []
    assert "notes" not in report.to_dict()
    assert not any("trivial" in finding.words for finding in report.findings)


# ---- threads


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_are_used_for_the_work_and_given_back(threads, monkeypatch):
    seen = []
    claim = theory.CLAIMS["O1"]

    def check(study):
        seen.append(torch.get_num_threads())
        return claim.check(study)

    watched = theory.Claim(claim.id, claim.statement, claim.source, check, ordering=True)
    monkeypatch.setitem(theory.CLAIMS, "O1", watched)
    before = torch.get_num_threads()
    verify(**SMALL | {"claims": "O1", "threads": threads})
    assert seen == [threads]
    assert torch.get_num_threads() == before


def test_small_problems_get_one_thread_unless_the_environment_says_otherwise(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert choose_threads([TheoryConfig(width=64)]) == 1
    assert choose_threads([TheoryConfig(width=64), TheoryConfig(width=65536)]) == 7
    assert choose_threads([TheoryConfig(width=65536)], 3) == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert choose_threads([TheoryConfig(width=64)]) == 7


# ---- the package


def test_the_package_is_imported_without_torch_and_knows_its_names():
    code = "import sys, theory; print('torch' in sys.modules, all(hasattr(theory, name) for name in theory.__all__))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
    assert sorted(theory.__all__) == sorted(name for names in theory.HOMES.values() for name in names)
    with pytest.raises(AttributeError, match="no attribute 'prove'"):
        _ = theory.prove
