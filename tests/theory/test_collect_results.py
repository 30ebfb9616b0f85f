"""The report of a run: its shape, and that its numbers are those of the matrices and networks it is about."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from theory import CLAIMS, Claim, Finding, Study, draw_synthetic_problem
from theory.certify import Enclosure
from theory.claims import select_claims
from theory.collect_results import certify_study, collect_eigenvalues, collect_results
from theory.config import TheoryConfig
from theory.report.figure_messages import build_messages
from theory.results import EigenvalueRange

TINY = TheoryConfig(clients=3, samples=3, dim=4, width=64, steps=6, seed=1)


@pytest.fixture(scope="module")
def whole():
    """All claims and the certificates on a tiny setting as a report, their study, and the reported progress."""
    progress = []
    results = collect_results(TINY, select_claims(None), certify=True, progress=lambda *step: progress.append(step))
    return results.to_dict(), TINY.build_study(), progress


def report_on(setting, claims, **more):
    """What report.json would hold."""
    return collect_results(setting, claims, **more).to_dict()


def compute_spectrum(K):
    return np.linalg.eigvalsh(K.double().numpy())


def build_scripted_claim(name, findings, ordering=False):
    """A claim with scripted findings, and the studies that it was given."""
    shown, left = [], iter(findings)

    def check(study):
        shown.append(study)
        verdict, margin = next(left)
        return Finding(verdict, 1.0, 2.0, margin, "absolute", "some words", {"draw": len(shown)})

    return Claim(name, "a statement", "a source", check, ordering), shown


# The shape


def test_the_report_has_its_documented_shape(whole):
    report, _, _ = whole
    assert set(report) == {
        "setting",
        "eigenvalues",
        "claims",
        "curves",
        "formula_certificates",
        "certificates",
        "mixture",
        "summary",
        "seconds",
    }
    kept = json.loads(json.dumps(report))
    assert kept["claims"] == report["claims"]
    assert "null" not in json.dumps([report["eigenvalues"], report["claims"], report["curves"]])  # all are finite
    assert report["seconds"] > 0


def test_the_setting_is_told_in_full(whole):
    described = whole[0]["setting"]
    assert described["samples"] == [3, 3, 3]
    for name in ("clients", "dim", "width", "alpha", "covariance", "heterogeneity", "seed", "draws", "steps", "dtype"):
        assert described[name] == getattr(TINY, name)
    assert described["inputs"] == "synthetic Gaussian clients"
    assert described["assumptions_broken"] == []
    assert described["versions"]["torch"] == torch.__version__
    assert described["versions"]["numpy"] == np.__version__
    assert set(described["versions"]) == {"fedco2", "python", "torch", "numpy", "scipy"}


def test_every_claim_has_a_row_with_what_its_check_found(whole):
    report, study, _ = whole
    assert [row["id"] for row in report["claims"]] == list(CLAIMS)
    for row in report["claims"]:
        claim = CLAIMS[row["id"]]
        assert (row["statement"], row["source"], row["ordering"]) == (claim.statement, claim.source, claim.ordering)
        if row["id"] not in ("K4", "C1", "X1"):  # the slow ones
            found = claim.check(study)
            for name in ("verdict", "margin", "unit", "words", "lhs", "rhs", "evidence"):
                assert row[name] == getattr(found, name), (row["id"], name)
        assert "draws" not in row


def test_claims_are_examined_as_chosen():
    report = report_on(TINY, select_claims("O2,K2"))
    assert [row["id"] for row in report["claims"]] == ["K2", "O2"]
    assert "certificates" not in report


def test_progress_is_told_in_words_and_numbers(whole):
    progress = whole[2]
    words = [what for what, _, _ in progress]
    for claim in CLAIMS:
        assert f"claim {claim}" in words
    assert {"λ_min across draws", "effect of the number of clients", "descent of the real networks"} <= set(words)
    assert all(0 <= done <= total for _, done, total in progress)


# Eigenvalues


def test_eigenvalues_are_those_of_the_matrices(whole):
    report, study, _ = whole
    kernels = {"on": study.online_kernel, "off": study.offline_kernel}
    expected = {
        f"{letter}_{name}": getattr(k, letter) for letter in ("V", "G", "Lambda") for name, k in kernels.items()
    }
    expected |= {letter: (expected[f"{letter}_on"] + expected[f"{letter}_off"]) / 2 for letter in ("V", "G", "Lambda")}
    on, same = study.limit.kernel, study.problem.owner[:, None] == study.problem.owner[None, :]
    expected |= {"V_on_inf": on.V, "V_off_inf": on.V * same, "V_inf": on.V * (1 + same) / 2, "G_on_inf": on.G * same}
    table = report["eigenvalues"]
    assert set(table) == set(expected)
    for name, K in expected.items():
        values = compute_spectrum(K)
        found = (table[name]["min"], table[name]["max"], table[name]["condition"])
        assert found == pytest.approx((values[0], values[-1], values[-1] / values[0]), rel=1e-8), name


def test_limits_are_left_out_where_no_claim_needed_them():
    table = report_on(TINY, select_claims("O2"))["eigenvalues"]
    assert {"V_on", "V_off", "V", "G_on", "Lambda_on"} <= set(table)
    assert not [name for name in table if name.endswith("inf")]


def test_a_singular_kernel_has_no_condition_number():
    study = Study.at_init(draw_synthetic_problem(1, 30, 3, seed=0), 2)
    study.offline_kernel.V.zero_()
    assert collect_eigenvalues(study)["V_off"] == EigenvalueRange(0.0, 0.0, math.inf)


# Draws


def test_one_claim_over_three_draws():
    claim, shown = build_scripted_claim("K1", [("holds", 3.0), ("holds", -1e-12), ("holds", 6.0)])
    results = collect_results(replace(TINY, draws=3), [claim])
    row = results.to_dict()["claims"][0]
    assert row["verdict"] == "holds"
    assert row["draws"] == {
        "draws": 3, "held": 3, "verdicts": {"holds": 3}, "shown": 2,
        "mean_margin": pytest.approx(3.0), "worst_margin": -1e-12,
    }  # fmt: skip
    assert np.array_equal(results.matrices["v"], shown[0].online.v)
    assert len({study.problem.x[0, 0].item() for study in shown}) == 3
    assert len({study.online.v[0, 0].item() for study in shown}) == 3
    for draw, study in enumerate(shown):
        alone = replace(TINY, seed=TINY.seed + draw).build_study()
        assert torch.equal(study.problem.x, alone.problem.x)
        assert torch.equal(study.online.v, alone.online.v)


@pytest.mark.parametrize(
    ("found", "worst", "held"),
    [
        ([("holds", 1.0), ("fails", -1.0), ("holds", 2.0)], "fails", 2),
        ([("fails", -1.0), ("holds", 1.0), ("holds", 2.0)], "fails", 2),
        ([("holds", 1.0), ("holds under: care", -1.0), ("holds", 2.0)], "holds under: care", 2),
        ([("fails", -0.1), ("holds under: care", -1.0), ("holds", 2.0)], "fails", 1),
        ([("holds under: care", -1.0), ("holds under: care", -2.0), ("fails", -0.1)], "fails", 0),
        ([("holds", 1.0), ("undecided", -1.0), ("holds under: care", -2.0)], "undecided", 1),
        ([("fails", -0.1), ("undecided", -1.0), ("holds", 2.0)], "fails", 1),
        # A condition must suffice in every draw.
        ([("holds under: a", -1.0), ("holds under: b", -2.0), ("holds", 0.1)], "fails", 1),
        ([("holds under: b; a", -1.0), ("holds under: a", -0.5), ("holds", 0.1)], "holds under: a", 1),
        ([("holds under: a; b; c", -2.0), ("holds under: b; c", -1.0), ("holds", 0.1)], "holds under: b; c", 1),
    ],
)
def test_the_worst_draw_gives_the_verdict(found, worst, held):
    report = report_on(replace(TINY, draws=3), [build_scripted_claim("K1", found)[0]])
    row = report["claims"][0]
    assert row["verdict"] == worst
    rank = ["fails", "undecided", "holds under", "holds"]
    shown = min(range(3), key=lambda k: (rank.index(found[k][0].split(":")[0]), found[k][1]))
    assert (row["margin"], row["evidence"]) == (found[shown][1], {"draw": shown + 1})
    assert row["draws"]["shown"] == shown + 1
    assert row["draws"]["held"] == held
    assert row["draws"]["worst_margin"] == min(margin for _, margin in found)
    assert sum(row["draws"]["verdicts"].values()) == 3


def test_real_claims_over_three_draws():
    report = report_on(replace(TINY, draws=3), select_claims("O2,K5"))
    k5, o2 = report["claims"]
    found = [CLAIMS["O2"].check(TINY.build_study(draw)) for draw in range(3)]
    assert o2["draws"]["held"] == 3
    assert o2["draws"]["worst_margin"] == min(f.margin for f in found)
    assert o2["draws"]["mean_margin"] == pytest.approx(sum(f.margin for f in found) / 3)
    assert k5["draws"]["held"] == 0
    assert k5["draws"]["verdicts"] == {"holds under: every S_i = s_i I": 3}
    assert k5["verdict"].startswith("holds under")


def test_the_same_seed_gives_the_same_report(whole):
    again = report_on(TINY, select_claims(None), certify=True)
    assert {k: v for k, v in again.items() if k != "seconds"} == {k: v for k, v in whole[0].items() if k != "seconds"}


def test_another_seed_gives_another_report():
    first, second = (report_on(replace(TINY, seed=seed), select_claims("O2")) for seed in (1, 2))
    assert first["eigenvalues"] != second["eigenvalues"]


# Certificates


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_certificates_enclose_the_eigenvalues(dtype):
    report = report_on(replace(TINY, dtype=dtype), select_claims("O2"), certify=True)
    proofs, table = report["certificates"], report["eigenvalues"]
    assert set(proofs) == {"O2", "O3 (mean)", "O3 (strict)"}
    on, off, mean = (table[name]["min"] for name in ("V_on", "V_off", "V"))
    middle, room = (on + off) / 2, 1e-12 if dtype == "float64" else 1e-5
    sides = {"O2": (off, on), "O3 (mean)": (mean, middle), "O3 (strict)": (middle, on)}
    for name, (left, right) in sides.items():
        proof = proofs[name]
        assert proof["verdict"] == "certified"
        assert 0 < proof["margin"] <= left - right + room
        for (low, high), value in ((proof["left"], left), (proof["right"], right)):
            assert low - room <= value <= high + room
            assert high - low < 1e-10
    assert replace(TINY, dtype=dtype).build_study().problem.x.dtype == getattr(torch, dtype)


def test_certificates_are_about_kernels_in_double_precision():
    """In float32 the blocks of V_on and V_off differ by rounding, and so would what is proved of them."""
    study = replace(TINY, dtype="float32", clients=1, samples=1).build_study()
    exact = study.to_double().online_kernel.V.item()
    assert exact != study.online_kernel.V.item()
    proofs = certify_study(study)
    assert proofs["O2"].right == Enclosure(exact, exact)
    assert proofs["O2"].verdict == "certified"
    assert proofs["O3 (strict)"].verdict == "refuted"  # one client: both are the same


def test_what_is_false_is_refuted():
    study = TINY.build_study()
    weak = replace(study.offline, gamma=0.1 * study.offline.gamma)
    proofs = certify_study(Study(study.problem, study.online, weak))
    assert proofs["O2"].verdict == proofs["O3 (strict)"].verdict == "refuted"
    assert proofs["O2"].margin < 0
    assert proofs["O3 (mean)"].verdict == "certified"


# The summary


def test_the_summary_is_two_sentences(whole):
    report, _, _ = whole
    first, second = report["summary"]
    table = report["eigenvalues"]
    on, mean = table["V_on"]["min"], table["V"]["min"]
    assert mean > on
    assert first.startswith("Adding an offline network raises λ_min")
    for part in (f"{on:.4g} (FedBN)", f"{mean:.4g} (Fed-CO2)", f"a factor {mean / on:.3g}"):
        assert part in first
    assert first.endswith("; O1, O2, O3, O4, X1 hold.")
    gains = next(row for row in report["claims"] if row["id"] == "D2")["evidence"]["log10_gain"]
    assert gains["joint"] < 0
    assert f"{-gains['joint']:.2f} digits behind FedBN after 6 steps" in second
    assert f"separate {gains['separate']:+.2f}" in second
    assert second.endswith(".")


def test_the_summary_does_not_praise_what_changes_nothing():
    first, _ = report_on(replace(TINY, clients=1), select_claims("O2"))["summary"]
    assert first.startswith("Adding an offline network does not raise λ_min")
    assert first.endswith("; O2 holds.")


def test_the_summary_names_what_fails():
    claims = [
        build_scripted_claim("O1", [("fails", -1.0)], ordering=True)[0],
        build_scripted_claim("O2", [("holds", 1.0)], ordering=True)[0],
    ]
    first, second = report_on(TINY, claims)["summary"]
    assert first.endswith("; O1 fails.")
    assert "not examined" in second


def test_the_summary_says_when_fedco2_is_ahead():
    claim, _ = build_scripted_claim("D2", [])
    found = Finding(
        "holds", 1.0, 2.0, 0.25, "digits", "words",
        {
            "log10_gain": {"joint": 0.25, "separate": 0.1, "federated": 0.2},
            "compared_at_step": {"joint": 5, "separate": 6, "federated": 3},
            "steps": 6,
        },
    )  # fmt: skip
    first, second = report_on(TINY, [replace(claim, check=lambda study: found)])["summary"]
    assert not first.endswith(("hold.", "holds."))
    assert "0.25 digits ahead of FedBN after 5 steps" in second
    assert "separate +0.10; federated +0.20 at step 3 digits" in second


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_summary_does_not_take_rounding_for_a_gain(dtype, npz):
    """One sample of each client twice: all three λ_min are 0, and come out as rounding."""
    X = np.random.default_rng(0).normal(size=(20, 4))
    X[2:4], X[12:14] = X[:2], X[10:12]
    setting = replace(npz(X, [0] * 10 + [1] * 10), dtype=dtype)
    for seed in range(4):
        results = collect_results(replace(setting, seed=seed), select_claims("O3"))
        assert results.summary[0].startswith("Adding an offline network does not raise λ_min"), seed
        messages = build_messages(results.curves)
        assert messages["draws"] == "λ_min rises from FedBN to Fed-CO2 in 0 of 20 draws"
        assert "the least eigenvalue stays at" in messages["spectra"]
        assert messages["clients"] == "With 2 clients FedBN's λ_min is not above 0"


# Curves


def test_spectra_fall_from_the_greatest_eigenvalue(whole):
    report, study, _ = whole
    for name, k in (("V_on", study.online_kernel), ("V_off", study.offline_kernel), ("V", study.fused_kernel)):
        assert report["curves"]["spectra"][name] == pytest.approx(compute_spectrum(k.V)[::-1].tolist())


def test_draws_begin_with_the_one_examined(whole):
    report, _, _ = whole
    rows = report["curves"]["draws"]
    assert [row["seed"] for row in rows] == list(range(1, 21))
    for name in ("V_on", "V_off", "V"):
        assert rows[0][name] == report["eigenvalues"][name]["min"]
        other = replace(TINY, seed=4).build_study()
        expected = {"V_on": other.online_kernel, "V_off": other.offline_kernel, "V": other.fused_kernel}[name].V
        assert rows[3][name] == pytest.approx(compute_spectrum(expected)[0])
    assert all(row["V_off"] >= row["V"] >= row["V_on"] for row in rows)


def test_clients_are_added_to_the_ones_examined(whole):
    report, _, _ = whole
    rows = {row["clients"]: row for row in report["curves"]["clients"]}
    assert list(rows) == [1, 2, 3, 5, 10, 20]
    for name in ("V_on", "V_off", "V"):
        assert rows[3][name] == pytest.approx(report["eigenvalues"][name]["min"])
    assert rows[1]["V_on"] == pytest.approx(rows[1]["V_off"])
    least = [row["V_on"] for row in rows.values()]
    assert least == sorted(least, reverse=True)  # a principal submatrix has no smaller λ_min


def test_residuals_and_bounds_are_those_of_the_descents(whole):
    report, study, _ = whole
    curves = report["curves"]
    d2 = next(row for row in report["claims"] if row["id"] == "D2")["evidence"]["residual"]
    assert curves["residuals"]["joint: fused"][-1] == pytest.approx(d2["joint"]["fedco2"])
    assert curves["residuals"]["separate: online"][-1] == pytest.approx(d2["joint"]["fedbn"])
    start = (study.descents["joint"].online[0] - study.problem.y).norm().item()
    for curve in curves["residuals"].values():
        assert len(curve) == 7
        assert curve[0] == pytest.approx(start)
    mu = compute_spectrum(study.limit_kernels["online"].V)[0]
    factor = 1 - study.rate * mu / (2 * study.alpha**2)
    assert curves["bounds"]["online"] == pytest.approx([start * factor ** (t / 2) for t in range(7)])
    assert set(curves["bounds"]) == {"online", "offline", "fused"}


def test_figures_get_only_what_was_examined(whole):
    rows = {row["id"]: row for row in whole[0]["claims"]}
    assert whole[0]["curves"]["widths"] == rows["K4"]["evidence"]
    assert whole[0]["curves"]["tracks"] == rows["C1"]["evidence"]
    assert whole[0]["curves"]["gains"] == rows["D2"]["evidence"]
    assert set(report_on(TINY, select_claims("O2"))["curves"]) == {"spectra", "draws", "clients"}
    assert set(report_on(TINY, select_claims("D2"))["curves"]) == {
        "spectra", "draws", "clients", "residuals", "bounds", "gains",
    }  # fmt: skip


# The user's own data


@pytest.fixture
def npz(tmp_path):
    def write(X, owner):
        path = tmp_path / "data.npz"
        np.savez(path, X=X, y=np.random.default_rng(1).normal(size=len(X)), owner=owner)
        return replace(TINY, dataset=str(path))

    return write


def test_the_users_data_are_examined(npz):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(9, 4)) @ rng.normal(size=(4, 4)), 3 + rng.normal(size=(5, 4))])
    setting = replace(npz(X, ["b"] * 9 + ["a"] * 5), draws=2)
    claim, shown = build_scripted_claim("K1", [("holds", 1.0)] * 2)
    report = report_on(setting, [claim], certify=True)
    study = setting.build_study()
    described = report["setting"]
    assert described["inputs"] == "the user's own data"
    assert (described["clients"], described["samples"], described["dim"]) == (2, [5, 9], 4)
    assert len(described["assumptions_broken"]) == 1
    assert described["assumptions_broken"][0].startswith("inputs are not centred")
    assert torch.equal(shown[0].problem.x, shown[1].problem.x)  # the data stay, the networks are drawn anew
    assert not torch.equal(shown[0].online.v, shown[1].online.v)
    assert [row["clients"] for row in report["curves"]["clients"]] == [1, 2]
    assert report["eigenvalues"]["V_on"]["min"] == pytest.approx(compute_spectrum(study.online_kernel.V)[0])
    assert report["certificates"]["O2"]["verdict"] == "certified"


def test_every_broken_assumption_is_named(npz):
    """Both clients have the same few samples, and each sample its opposite."""
    half = np.random.default_rng(0).normal(size=(2, 4))
    X = np.concatenate([half, -half] * 2)
    broken = report_on(npz(X, [0] * 4 + [1] * 4), select_claims("O2"))["setting"]["assumptions_broken"]
    assert any(
        line.startswith("samples X[0] (client 0) and X[2] (client 0) are parallel (cosine -1.0000") for line in broken
    )
    assert any(line.startswith("covariances do not differ: 1 and 0") for line in broken)
    assert any("not more samples than dimensions on 0, 1" in line for line in broken)
    assert not any("not centred" in line for line in broken)
