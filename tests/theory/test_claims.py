"""Every check both ways: on a case where the claim must hold, and on one built so that it must not.

Cases are natural where mathematics allows it (other weights, other data, a step too large). A law that no network can
break, such as Cauchy interlacing, is broken by handing the study a kernel that is not its own (``tampered``).
"""

import copy
import json
import math
import re
from dataclasses import asdict, replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from theory import CLAIMS, Claim, Finding, InputError, Kernel, Problem, Study, initial_weights, synthetic, verify
from theory.claims import choose, deep, dynamics, kernels, limits
from theory.claims.deep import deep_kernels, judge_deep
from theory.claims.limits import fitted_slope
from theory.descent import Trajectory

IDS = ["K1", "K2", "K3", "K4", "K5", "O1", "O2", "O3", "O4", "D1", "D2", "D3", "C1", "C2", "B1", "X1"]
UNITS = {"absolute", "relative", "digits"}


def numbers(value):
    """All floats in what a finding carries."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [x for one in value for x in numbers(one)]
    return [value] if isinstance(value, float) else []


def judged(finding, slack=1e-9):
    """The finding itself, once it is well formed: a known verdict, a margin of its sign, numbers that JSON can hold."""
    assert re.fullmatch("holds|fails|undecided|holds under: .+", finding.verdict)
    if finding.verdict == "holds":
        assert finding.margin >= -slack
    else:
        assert finding.margin <= slack
    assert finding.unit in UNITS
    assert finding.words
    assert all(type(value) is float for value in (finding.lhs, finding.rhs, finding.margin))
    kept = json.loads(json.dumps(asdict(finding)))
    assert kept["evidence"] == finding.evidence
    assert not any(math.isnan(x) for x in numbers(asdict(finding)))
    return finding


def check(name, study):
    slack = 1e-9 if study.problem.x.dtype == torch.float64 else 1e-3
    return judged(CLAIMS[name].check(study), slack * max(1, eigenvalues(study.on.Lambda)[-1]))


def eigenvalues(K):
    return np.linalg.eigvalsh(K.detach().double().numpy())


def at_init(problem, width=512, **options):
    return Study.at_init(problem, width, **{"steps": 40, "seed": 1} | options)


def tampered(study, **parts):
    """The same networks, with some of what the study would compute given instead."""
    other = Study(
        study.problem, study.online, study.offline, projection=study.projection, steps=study.steps, seed=study.seed
    )
    vars(other).update(parts)
    return other


def offline_scaled(study, factor):
    """γ_off larger or smaller than γ_on: V_off is no longer the client blocks of V_on but factor² of them."""
    offline = study.offline
    return Study(study.problem, study.online, replace(offline, gamma=factor * offline.gamma), steps=study.steps)


def two_clients(first, second, S):
    """One tensor of inputs for each of two clients, targets opposite."""
    x, sizes = torch.cat([first, second]), torch.tensor([len(first), len(second)])
    y = torch.linspace(1, 2, len(x), dtype=torch.float64)
    return Problem(
        x, torch.where(torch.arange(len(x)) < len(first), y, -y), torch.arange(2).repeat_interleave(sizes), S
    )


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def identities(*scales, dim):
    return torch.stack([s * torch.eye(dim, dtype=torch.float64) for s in scales])


@pytest.fixture(scope="module")
def usual():
    return at_init(synthetic(3, 5, 5, seed=1))


@pytest.fixture(scope="module")
def printed():
    return at_init(synthetic(3, 5, 5, seed=1), projection="printed")


@pytest.fixture(scope="module")
def isotropic():
    return at_init(synthetic(3, 5, 5, covariance="isotropic", seed=1))


@pytest.fixture(scope="module")
def alone():
    return at_init(synthetic(1, 5, 5, seed=1))


@pytest.fixture(scope="module")
def after_training(usual):
    """Both networks where separate descent left them: they agree no more."""
    _, online, offline = usual.descents["separate"].snapshots[-1]
    return Study(usual.problem, online, offline, steps=10)


@pytest.fixture(scope="module")
def twins():
    """Two clients whose inputs are almost the same and whose targets are opposite.

    What tells them apart is nearly invisible to a shared network: λ_min(Λ_off) is far above 3 λ_min(Λ_on).
    """
    first = drawn(4, 8)
    problem = two_clients(first, first + 0.05 * drawn(4, 8, seed=1), identities(1, 1, dim=8))
    return at_init(problem, 400, alpha=0.2, steps=60)


# The list of claims


def test_all_claims_are_there():
    assert list(CLAIMS) == IDS
    for name, claim in CLAIMS.items():
        assert isinstance(claim, Claim)
        assert claim.id == name
        assert claim.statement
        assert claim.source
        assert callable(claim.check)


def test_what_strict_insists_on():
    assert [name for name, claim in CLAIMS.items() if claim.ordering] == ["O1", "O2", "O3", "O4", "X1"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("O1", ["O1"]),
        ("o2,k1", ["K1", "O2"]),
        (" X1 , d2,,D2 ,", ["D2", "X1"]),
        (",".join(reversed(IDS)), IDS),
        (None, IDS),
    ],
)
def test_choose(text, expected):
    assert [claim.id for claim in choose(text)] == expected


@pytest.mark.parametrize("text", ["O9", "O1,O9"])
def test_choose_hints_at_what_may_be_meant(text):
    with pytest.raises(InputError, match=r"unknown claim 'O9'; did you mean O\d\?.*K1, K2"):
        choose(text)


def test_choose_does_not_guess_wildly():
    with pytest.raises(InputError, match="unknown claim 'HELLO'") as caught:
        choose("hello")
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize("text", ["", " ", ",", " , ,"])
def test_choose_wants_a_name(text):
    with pytest.raises(InputError, match=r"no claim named.*K1, K2"):
        choose(text)


def test_verify_checks_the_claims_it_is_given(usual):
    found = verify(usual, choose("O2,K2"))
    assert list(found) == ["K2", "O2"]
    assert all(isinstance(finding, Finding) for finding in found.values())
    assert found["O2"] == CLAIMS["O2"].check(usual)


# Every claim on shapes large and small

SHAPES = {
    "usual": {},
    "isotropic": {"covariance": "isotropic"},
    "scaled": {"covariance": "scaled"},
    "one client": {"clients": 1},
    "one sample each": {"samples": 1},
    "unequal clients": {"samples": [1, 4, 2]},
    "one dimension": {"dim": 1},
    "two dimensions": {"dim": 2},
    "one client, one dimension": {"clients": 1, "dim": 1},
    "one of all": {"clients": 1, "samples": 1, "dim": 1},
    "one sample in all": {"clients": 1, "samples": 1},
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("shape", SHAPES)
def test_verdicts_that_mathematics_decides(shape, dtype):
    sizes = {"clients": 3, "samples": 3, "dim": 4, "covariance": "anisotropic"} | SHAPES[shape]
    study = at_init(synthetic(**sizes, seed=2).to(dtype), 64, steps=5)
    found = {name: check(name, study) for name in CLAIMS}
    assert list(found) == IDS
    verdict = {name: finding.verdict.split(":")[0] for name, finding in found.items()}
    for name in ("K1", "K2", "O1", "O2", "O3", "O4", "B1", "X1"):
        assert verdict[name] == "holds", found[name]
    flat = sizes["dim"] == 1
    assert verdict["K3"] == ("fails" if flat else "holds")  # d = 1 leaves nothing of v but its sign: V = 0
    assert verdict["K5"] == ("holds" if flat or sizes["covariance"] != "anisotropic" else "holds under")
    assert verdict["D1"] == "holds under"
    assert verdict["D3"] == ("holds" if sizes["clients"] == 1 else "holds under")
    if flat:
        assert verdict["K4"] == "holds"  # V(0) = V^inf = 0 at every width
    if flat or sizes["clients"] == 1:
        assert verdict["D2"] == "fails"  # both models have the same kernel, and the joint loss halves its gradient


@pytest.mark.parametrize("seed", range(6))
def test_one_dimension_is_no_matter_of_rounding(seed):
    """V = 0 by mathematics, so whatever is left of it is rounding and must not decide on anything."""
    for clients in (1, 3):
        study = at_init(synthetic(clients, 3, 1, seed=seed), 64, steps=5)
        found = {name: check(name, study) for name in ("K4", "K5", "O1", "O2", "O3", "O4", "D2")}
        assert found.pop("D2").verdict == "fails"
        assert {finding.verdict for finding in found.values()} == {"holds"}


def test_a_network_that_sees_nothing_is_no_crash():
    """One unit whose gate is closed for the one sample: every kernel is zero, and no step moves anything."""
    v = initial_weights(synthetic(1, 1, 3), 1, 0.5, seed=1).v
    problem = Problem(-v, torch.ones(1, dtype=torch.float64), torch.tensor([0]), identities(1, dim=3))
    study = at_init(problem, 1, steps=3)
    assert not study.on.Lambda.any()
    for name in CLAIMS:
        check(name, study)


@pytest.mark.parametrize("seed", range(4))
def test_a_narrow_network_with_all_gates_closed_is_no_crash(seed):
    """C1 also looks at a sixteenth of the width; here that is one unit, which may see nothing of the one sample."""
    check("C1", at_init(synthetic(1, 1, 3, seed=seed), 16, seed=seed, steps=2))


# K1: Λ = V/α² + G


@pytest.mark.parametrize("name", ["usual", "isotropic", "after_training"])
def test_k1_holds(name, request):
    found = check("K1", request.getfixturevalue(name))
    assert found.verdict == "holds"
    assert set(found.evidence["relative_error"]) == {"online", "offline"}
    assert max(found.evidence["relative_error"].values()) == found.lhs < 1e-13


def test_k1_fails_for_the_printed_projection(printed):
    found = check("K1", printed)
    assert found.verdict == "fails"
    assert all(error > 0.05 for error in found.evidence["relative_error"].values())


def test_k1_holds_for_the_printed_projection_on_isotropic_clients(isotropic):
    assert check("K1", at_init(isotropic.problem, projection="printed")).verdict == "holds"


@pytest.mark.parametrize("wrong", ["online", "offline"])
def test_k1_looks_at_both_models(usual, wrong):
    study = tampered(usual)
    study.kernel = lambda weights: (1.001 if weights is getattr(usual, wrong) else 1.0) * usual.kernel(weights)
    found = check("K1", study)
    assert found.verdict == "fails"
    assert found.evidence["relative_error"][wrong] == pytest.approx(1e-3)


def test_k1_takes_the_first_units_where_a_jacobian_has_no_room(usual, monkeypatch):
    monkeypatch.setattr(kernels, "JACOBIAN_NUMBERS", 15 * 6 * 100)
    found = check("K1", usual)
    assert found.evidence["hidden_units"] == 100
    assert found.verdict == "holds"


# K2: positive semidefinite, and Λ above its parts


@pytest.mark.parametrize("name", ["usual", "printed", "after_training"])
def test_k2_holds(name, request):
    study = request.getfixturevalue(name)
    found = check("K2", study)
    assert found.verdict == "holds"
    for part, value in found.evidence["lambda_min"].items():
        letter, _, model = part.rpartition("_")
        assert value == pytest.approx(eigenvalues(getattr(getattr(study, model), letter))[0], abs=1e-12)


@pytest.mark.parametrize("model", ["on", "off"])
@pytest.mark.parametrize("letter", ["V", "G"])
def test_k2_fails_for_an_indefinite_part(usual, model, letter):
    """Λ stays positive: the other part makes up for it."""
    k = getattr(usual, model)
    eye, low = torch.eye(len(k.V), dtype=torch.float64), 0.01
    V, G = k.V + eye, k.G + 4 * eye
    broken = Kernel(V - (eigenvalues(V)[0] + low) * eye, G, k.alpha)
    if letter == "G":
        broken = Kernel(V, G - (eigenvalues(G)[0] + low) * eye, k.alpha)
    assert eigenvalues(broken.Lambda)[0] > 0
    found = check("K2", tampered(usual, **{model: broken}))
    assert found.verdict == "fails"
    assert found.margin < 0
    assert found.evidence["lambda_min"][f"{letter}_{model}"] == pytest.approx(-low)


@pytest.mark.parametrize("model", ["on", "off"])
def test_k2_fails_where_the_whole_lies_below_a_part(usual, model):
    k = getattr(usual, model)
    broken = SimpleNamespace(V=k.V, G=k.G, Lambda=0.5 * k.Lambda, alpha=k.alpha)
    found = check("K2", tampered(usual, **{model: broken}))
    assert found.verdict == "fails"
    assert min(found.evidence["lambda_min"].values()) > 0


# K3: V^inf is strictly positive definite


@pytest.mark.parametrize("name", ["usual", "isotropic"])
def test_k3_holds(name, request):
    study = request.getfixturevalue(name)
    found = check("K3", study)
    assert found.verdict == "holds"
    e = found.evidence
    assert e["lambda_min"] == found.lhs == pytest.approx(eigenvalues(study.limits["online"].V)[0])
    assert e["low"] < e["lambda_min"] < e["high"]
    low, value, high = e["quasi_monte_carlo"]
    assert low <= value <= high
    assert low - 1e-8 <= e["lambda_min"] <= high + 1e-8
    assert abs(e["lambda_min_with_two_parallel_samples"]) < 1e-6 * e["lambda_min"]


@pytest.mark.parametrize("kind", ["anisotropic", "scaled"])
def test_k3_fails_for_two_parallel_samples_on_one_client(kind):
    problem = synthetic(3, 5, 5, covariance=kind, seed=1)
    problem.x[1] = 3 * problem.x[0]
    found = check("K3", at_init(problem))
    assert found.verdict == "fails"
    assert found.words.endswith(": 0 to rounding")
    assert abs(found.lhs) < 1e-10


@pytest.mark.parametrize("value", [0.1, 0.7, 0.8, 1.3, 1.6, 3.3])
def test_k3_does_not_take_rounding_for_an_eigenvalue(value):
    """d = 1: V = 0, but it is computed as a difference and comes out an ulp above or below."""
    x = torch.tensor([[value]], dtype=torch.float64)
    problem = Problem(x, torch.ones(1, dtype=torch.float64), torch.tensor([0]), identities(1, dim=1))
    assert check("K3", at_init(problem, 8)).verdict == "fails"


def test_k3_fails_for_one_direction_on_two_isotropic_clients():
    first = drawn(3, 5)
    second = torch.cat([2 * first[:1], drawn(2, 5, seed=1)])
    assert check("K3", at_init(two_clients(first, second, identities(1, 4, dim=5)))).verdict == "fails"


def test_k3_holds_for_opposite_samples():
    """Their gates are never open together, so nothing is lost."""
    first = drawn(3, 5)
    second = torch.cat([-first[:1], drawn(2, 5, seed=1)])
    assert check("K3", at_init(two_clients(first, second, identities(1, 4, dim=5)))).verdict == "holds"


def test_k3_looks_closer_where_the_limit_is_too_rough(usual):
    """Fifteen rows: entries that err by a tenth of λ_min may move it by more than itself."""
    found = check("K3", usual)
    rough = replace(usual.limit, error=usual.limit.error + 0.1 * found.lhs)
    assert check("K3", tampered(usual, limit=rough)).verdict == "holds"


def test_k3_is_undecided_where_no_limit_is_fine_enough(usual, monkeypatch):
    rough = replace(usual.limit, error=0.1 * check("K3", usual).lhs)
    monkeypatch.setattr(limits, "infinite_width", lambda *_, **__: rough)
    monkeypatch.setattr(limits, "_with_parallel", lambda *_: replace(rough, kernel=0.0 * rough.kernel))
    found = check("K3", tampered(usual, limit=rough))
    assert found.verdict == "undecided"
    assert "too rough to tell" in found.words


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_k3_is_undecided_where_the_roads_do_not_meet(usual, factor):
    found = check("K3", tampered(usual, limit=replace(usual.limit, kernel=factor * usual.limit.kernel)))
    assert found.verdict == "undecided"
    assert "do not meet" in found.words


def test_k3_is_undecided_where_parallel_samples_go_unseen(usual, monkeypatch):
    monkeypatch.setattr(limits, "_with_parallel", lambda *_: usual.limit)
    found = check("K3", usual)
    assert found.verdict == "undecided"
    assert "not 0 for two parallel samples" in found.words


# K4: V(0) → V^inf


@pytest.mark.parametrize("name", ["usual", "isotropic"])
def test_k4_holds(name, request):
    found = check("K4", request.getfixturevalue(name))
    assert found.verdict == "holds"
    assert found.lhs == found.evidence["slope"] == pytest.approx(-0.5, abs=0.15)
    errors = found.evidence["relative_error"]
    assert list(errors) == ["8", "16", "32", "64", "128", "256", "512"]
    assert 4 < errors["8"] / errors["512"] < 16  # 8 = sqrt(64)


def test_k4_fails_for_the_printed_projection(printed):
    """It converges, but to another limit: the error stops falling."""
    found = check("K4", printed)
    assert found.verdict == "fails"
    assert found.lhs > -0.35


def test_k4_fails_for_another_limit(usual):
    other = {"online": 1.2 * usual.limits["online"]}
    assert check("K4", tampered(usual, limits=other)).verdict == "fails"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_k4_has_no_slope_where_nothing_is_left_to_fall(dtype):
    """d = 1: no slope is made up for it."""
    found = check("K4", at_init(synthetic(2, 3, 1, seed=1).to(dtype), 64))
    assert found.verdict == "holds"
    assert found.words.startswith("V(0) and V^inf are both zero")
    assert found.evidence["slope"] is None
    assert found.lhs == pytest.approx(max(found.evidence["relative_error"].values()), rel=10)


def test_k4_measures_a_small_error_in_single_precision(usual):
    """Half a percent off at every width is no rounding, not even there."""
    study = at_init(usual.problem.to(torch.float32), steps=1)
    wrong = study.limits["online"]
    study.with_width = lambda width, seed: SimpleNamespace(on=SimpleNamespace(V=1.005 * wrong.V.float()))
    found = check("K4", study)
    assert found.verdict == "fails"
    assert found.evidence["slope"] == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("width", [1, 8])
def test_k4_has_a_slope_at_every_width(width):
    """The claim is about m that grows; a narrow network of the user's own is no reason to refute it."""
    assert check("K4", at_init(synthetic(2, 2, 5, seed=1), width, steps=1)).verdict == "holds"


def test_fitted_slope_agrees_with_numpy():
    x, y = drawn(20).tolist(), drawn(20, seed=1).tolist()
    (slope, _), covariance = np.polyfit(x, y, 1, cov="unscaled")
    rest = np.array(y) - np.polyval(np.polyfit(x, y, 1), x)
    expected = math.sqrt(covariance[0, 0] * (rest @ rest) / 18)
    assert fitted_slope(list(zip(x, y, strict=True))) == pytest.approx((slope, expected))


# K5: the printed projection


@pytest.mark.parametrize("kind", ["isotropic", "scaled"])
def test_k5_holds_where_covariances_are_multiples_of_the_identity(kind):
    assert check("K5", at_init(synthetic(3, 5, 5, covariance=kind, seed=1))).verdict == "holds"


@pytest.mark.parametrize("name", ["usual", "printed", "after_training"])
def test_k5_holds_only_under_isotropy(name, request):
    study = request.getfixturevalue(name)
    found = check("K5", study)
    assert found.verdict == "holds under: every S_i = s_i I"
    V, exact = (study.kernel(study.online, projection=p).V for p in ("printed", "exact"))
    assert found.lhs == pytest.approx(((V - exact).norm() / exact.norm()).item())
    assert found.lhs > 0.05
    assert found.evidence["relative_error_if_isotropic"] < 1e-12


def test_k5_fails_for_a_projection_that_is_wrong_everywhere(usual, monkeypatch):
    def wrong(problem, weights, *, projection="exact", **options):
        return (1.01 if projection == "printed" else 1.0) * original(problem, weights, projection=projection, **options)

    original = kernels.kernel
    monkeypatch.setattr(kernels, "kernel", wrong)
    assert check("K5", usual).verdict == "fails"


# O1-O4: the orderings


def test_orderings_hold(usual, isotropic, printed):
    for study in (usual, isotropic, printed):
        on, off, mean = (eigenvalues(k.V) for k in (study.on, study.off, study.co2))
        found = {name: check(name, study) for name in ("O1", "O2", "O3", "O4")}
        assert {one.verdict for one in found.values()} == {"holds"}
        assert found["O1"].lhs < 1e-12
        assert (found["O2"].lhs, found["O2"].rhs) == pytest.approx((off[0], on[0]))
        assert (found["O3"].lhs, found["O3"].rhs) == pytest.approx((mean[0], on[0]))
        assert (found["O4"].lhs, found["O4"].rhs) == pytest.approx((mean[-1], on[-1]))
        assert found["O2"].margin == pytest.approx(off[0] - on[0])
        assert found["O3"].margin == pytest.approx(min(mean[0] - (on[0] + off[0]) / 2, (off[0] - on[0]) / 2))
        assert found["O4"].margin == pytest.approx(on[-1] - mean[-1])
        clients = [eigenvalues(study.off.V[rows, rows])[0] for rows in study.problem.blocks]
        assert found["O2"].evidence["clients"] == pytest.approx(clients)
        assert found["O4"].evidence["condition"] == pytest.approx({"V": mean[-1] / mean[0], "V_on": on[-1] / on[0]})


def test_orderings_are_equalities_for_one_client(alone, usual):
    for name in ("O1", "O2", "O3", "O4"):
        assert check(name, alone).verdict == "holds"
    assert check("O2", alone).margin == pytest.approx(0, abs=1e-12)
    assert check("O3", alone).evidence["strict"] is False
    assert check("O3", usual).evidence["strict"] is True


def test_o1_fails_once_the_networks_have_moved_apart(after_training):
    found = check("O1", after_training)
    assert found.verdict == "fails"
    assert found.lhs == found.evidence["largest_difference"] > 1e-3


def test_o1_fails_for_other_offline_weights(usual):
    other = initial_weights(usual.problem, 512, 0.5, seed=2).made_personal()
    found = check("O1", Study(usual.problem, usual.online, other))
    assert found.verdict == "fails"
    same = usual.problem.owner[:, None] == usual.problem.owner[None, :]
    apart = (usual.kernel(other).V - usual.on.V * same).abs().max().item()
    assert found.lhs == pytest.approx(apart)


def test_o1_fails_where_nothing_is_cut(usual):
    assert check("O1", tampered(usual, off=usual.on)).verdict == "fails"


@pytest.mark.parametrize(("name", "factor", "verdict"), [
    ("O1", 0.1, "fails"), ("O1", 3, "fails"),
    ("O2", 0.1, "fails"), ("O2", 3, "holds"),
    ("O3", 0.1, "fails"), ("O3", 3, "holds"),
    ("O4", 0.1, "holds"), ("O4", 3, "fails"),
])  # fmt: skip
def test_orderings_with_a_weaker_or_stronger_offline_network(usual, name, factor, verdict):
    assert check(name, offline_scaled(usual, factor)).verdict == verdict


def test_o2_fails_where_the_offline_kernel_couples_clients(usual):
    """Its least eigenvalue is above V_on's, but no client's own."""
    found = check("O2", tampered(usual, off=2.0 * usual.on))
    assert found.verdict == "fails"
    assert found.lhs > found.rhs
    assert min(found.evidence["clients"]) > found.lhs


def test_o3_fails_where_the_mean_is_too_small(usual):
    """The first half of the chain is concavity: only a wrong mean can break it."""
    between = eigenvalues(usual.co2.V)[0] - (eigenvalues(usual.on.V)[0] + eigenvalues(usual.off.V)[0]) / 2
    eye = torch.eye(len(usual.on.V), dtype=torch.float64)
    lowered = {share: replace(usual.co2, V=usual.co2.V - share * between * eye) for share in (0.9, 1.1)}
    assert check("O3", tampered(usual, co2=lowered[0.9])).verdict == "holds"
    assert check("O3", tampered(usual, co2=lowered[1.1])).verdict == "fails"


def test_o4_fails_where_the_mean_is_steeper(usual):
    steeper = {f: f * eigenvalues(usual.on.V)[-1] / eigenvalues(usual.co2.V)[-1] for f in (0.999, 1.001)}
    assert check("O4", tampered(usual, co2=float(steeper[0.999]) * usual.co2)).verdict == "holds"
    assert check("O4", tampered(usual, co2=float(steeper[1.001]) * usual.co2)).verdict == "fails"


def test_o4_fails_where_the_condition_number_rises(usual):
    """λ_max of the mean is no larger, but its λ_min is."""
    eye = torch.eye(len(usual.on.V), dtype=torch.float64)
    low = eigenvalues(usual.co2.V)[0] - 0.5 * eigenvalues(usual.on.V)[0]
    found = check("O4", tampered(usual, co2=replace(usual.co2, V=usual.co2.V - low * eye)))
    assert found.lhs < found.rhs
    assert found.verdict == "fails"
    assert found.margin < 0
    assert "condition number rises" in found.words


def test_o4_does_not_speak_of_a_fall_for_one_client(alone):
    assert check("O4", alone).words.startswith("the condition number stays at ")
    assert check("O2", alone).words.endswith(" online and offline")


def test_o4_has_no_condition_number_for_singular_kernels():
    problem = synthetic(2, 3, 4, seed=1)
    problem.x[1] = problem.x[0]
    found = check("O4", at_init(problem, 64))
    assert found.verdict == "holds"
    assert found.evidence["condition"] == {"V": None, "V_on": None}
    assert found.words.startswith("λ_max falls from ")
    assert found.words.endswith("no condition number to compare")


# B1: FedBN above FedAvg


def test_b1_holds(isotropic):
    found = check("B1", isotropic)
    assert found.verdict == "holds"
    assert found.lhs == pytest.approx(eigenvalues(isotropic.on.G)[0])
    assert found.rhs == pytest.approx(eigenvalues(isotropic.kernel(isotropic.online, share_gamma=True).G)[0])
    assert found.margin == pytest.approx(found.lhs - found.rhs)
    ladder = found.evidence["ladder"]
    assert list(ladder) == ["FedAvg", "FedBN", "Fed-CO2", "SingleSet"]
    kernels_of = (isotropic.avg, isotropic.on, isotropic.co2, isotropic.off)
    assert list(ladder.values()) == pytest.approx([eigenvalues(k.Lambda)[0] for k in kernels_of])


def test_b1_fails_for_a_fedbn_below_fedavg(usual):
    assert check("B1", tampered(usual, on=replace(usual.on, G=0.01 * usual.on.G))).verdict == "fails"


def test_b1_is_about_g_and_the_ladder_of_lambda_only_evidence():
    """G's blocks always lie above G. But V + G's blocks need not lie above V + G, and on some draws do not."""
    climbs = []
    for seed in range(20):
        found = check("B1", at_init(synthetic(3, 1, 5, seed=seed), 64, seed=seed))
        assert found.verdict == "holds"
        ladder = list(found.evidence["ladder"].values())
        assert found.evidence["ladder_climbs"] == all(a <= b for a, b in pairwise(ladder))
        assert all(a <= b for a, b in pairwise(ladder[1:]))
        climbs.append(found.evidence["ladder_climbs"])
    assert set(climbs) == {True, False}


# D1: what drives the fused network


def test_d1_holds_only_if_each_branch_has_its_own_loss(usual):
    found = check("D1", usual)
    assert found.verdict == "holds under: each branch is trained on its own loss, at t = 0"
    assert found.lhs == pytest.approx(0.5)
    assert found.evidence["error_of_half"] == pytest.approx(0.5)
    assert found.evidence["error_of_quarter"] < 1e-13
    large, small, limit, part = found.evidence["separate_step_error"].values()
    assert small < 1e-4
    assert 5 < large / small < 20
    assert limit < part < 1e-6


def test_d1_holds_for_the_fusion_that_gives_a_half(usual):
    found = check("D1", Study(usual.problem, usual.online, fusion=0.5**0.5))
    assert found.verdict == "holds"
    assert found.lhs == pytest.approx(1)
    assert found.evidence["error_of_half"] < 1e-13


@pytest.mark.parametrize("name", ["printed", "after_training"])
def test_d1_fails(name, request):
    """With the printed projection no step follows the kernel; after t = 0 the branches have residuals of their own."""
    found = check("D1", request.getfixturevalue(name))
    assert found.verdict == "fails"
    large, small, _, _ = found.evidence["separate_step_error"].values()
    assert small == pytest.approx(large, rel=0.1)  # does not vanish with the step


@pytest.mark.parametrize(("factor", "times"), [(2**0.5, 1.0), (2.0, 2.0)])
def test_d1_measures_the_fused_network_itself(usual, monkeypatch, factor, times):
    """Other outputs than F = (F_on + F_off)/2, with nothing else told of it."""
    original = dynamics.Fused.forward
    monkeypatch.setattr(dynamics.Fused, "forward", lambda self, x: factor * original(self, x))
    found = check("D1", usual)
    assert found.lhs == pytest.approx(times)
    assert (found.verdict == "holds") == (times == 1.0)


def test_d1_fails_for_an_offline_network_of_its_own(usual):
    assert check("D1", offline_scaled(usual, 0.5)).verdict == "fails"


# D2: who converges faster


def outputs(problem, v, gamma, c):
    """Both branches from the formula of the paper, sample by sample's client."""
    i = problem.owner
    v = v.expand(problem.clients, *v.shape[-2:])
    size = torch.einsum("imd,ide,ime->im", v, problem.S, v).sqrt()
    hidden = torch.einsum("nd,nmd->nm", problem.x, v[i]) * (gamma / size)[i]
    return (hidden.relu() * c).sum(1) / v.shape[1] ** 0.5


def descent_by_autograd(study, reading, step):
    """|F - y| of FedBN and of Fed-CO2 after the study's steps, by torch.autograd; ``step`` for Σ(F-y)²/2."""
    problem, c = study.problem, study.online.c
    on, off = ([w.v.clone(), w.gamma.clone()] for w in (study.online, study.offline))
    for _ in range(study.steps):
        for tensor in (*on, *off):
            tensor.requires_grad_()
        F_on, F_off = outputs(problem, *on, c), outputs(problem, *off, c)
        if reading == "joint":
            loss = ((F_on + F_off) / 2 - problem.y).square().sum() / 2
        else:
            loss = (F_on - problem.y).square().sum() / 2 + (F_off - problem.y).square().sum() / 2
        grads = torch.autograd.grad(loss, (*on, *off))
        steps = [step] * 4
        if reading == "federated":  # equal clients: the mean of N local copies moves by a part in N of the sum
            steps[0] = step / problem.clients
        on, off = ([(t - s * g).detach() for t, s, g in zip(ts, ss, gs, strict=True)]
                   for ts, ss, gs in ((on, steps[:2], grads[:2]), (off, steps[2:], grads[2:])))  # fmt: skip
    F_on, F_off = outputs(problem, *on, c), outputs(problem, *off, c)
    return (F_on - problem.y).norm().item(), ((F_on + F_off) / 2 - problem.y).norm().item()


def test_d2_measures_what_autograd_trains():
    study = at_init(synthetic(3, 4, 5, seed=3), 48, steps=12)
    finding = check("D2", study)
    found = finding.evidence
    assert found["steps"] == 12
    assert set(found["compared_at_step"].values()) == {12}
    assert "after 12 steps" in finding.words
    assert "at step" not in finding.words
    on, off = study.on.Lambda, study.off.Lambda
    common, own_on, own_joint = (
        1 / eigenvalues(on)[-1],
        1.8 / eigenvalues(on)[-1],
        1.8 / eigenvalues((on + off) / 4)[-1],
    )
    fedbn, separate = descent_by_autograd(study, "separate", common)
    expected = {
        "joint": (descent_by_autograd(study, "joint", common)[1], fedbn),
        "joint, own step": (
            descent_by_autograd(study, "joint", own_joint)[1],
            descent_by_autograd(study, "separate", own_on)[0],
        ),
        "separate": (separate, fedbn),
        "federated": descent_by_autograd(study, "federated", 1 / eigenvalues(off)[-1])[::-1],
    }
    for reading, (fedco2, bn) in expected.items():
        assert found["residual"][reading] == pytest.approx({"fedco2": fedco2, "fedbn": bn}, rel=1e-6)
        assert found["log10_gain"][reading] == pytest.approx(math.log10(bn / fedco2), abs=1e-6)


def test_d2_reproduces_the_evidence():
    """The literal reading is slower, the step that each model can bear makes it faster."""
    found = check("D2", at_init(synthetic(5, 8, 10, seed=0), 1000, steps=120))
    gains = found.evidence["log10_gain"]
    assert found.margin == gains["joint"] < -0.1
    assert min(gains["joint, own step"], gains["separate"], gains["federated"]) > 0.05
    assert found.verdict == (
        "holds under: each model takes its own largest stable step; each branch descends its own loss; "
        "each branch descends its own loss in federated rounds"
    )
    assert (found.lhs, found.rhs) == tuple(found.evidence["residual"]["joint"].values())


def test_d2_holds_where_clients_contradict_each_other(twins):
    on, off = (eigenvalues(k.Lambda)[0] for k in (twins.on, twins.off))
    assert off > 3 * on
    found = check("D2", twins)
    assert found.verdict == "holds"
    assert found.margin == found.evidence["log10_gain"]["joint"] > 0.1


def test_d2_fails_for_one_client(alone):
    """Online and offline are one network then: every reading is a tie, but for the joint loss, which is slower."""
    found = check("D2", alone)
    assert found.verdict == "fails"
    gains = found.evidence["log10_gain"]
    assert gains.pop("joint") < -0.1
    assert list(gains.values()) == pytest.approx([0, 0, 0], abs=1e-6)


@pytest.mark.parametrize("only", ["joint, own step", "separate", "federated"])
def test_d2_names_the_readings_that_hold(alone, only):
    """One reading made faster by hand: Fed-CO2 has half of FedBN's residual. The others stay as they are."""
    paths = {name: copy.copy(path) for name, path in alone.descents.items()}
    path, fedbn = paths[only], paths["separate, own step" if only == "joint, own step" else only].online
    path.offline = 2 * (path.y + 0.5 * (fedbn - path.y)) - path.online
    words = {
        "joint, own step": "each model takes its own largest stable step",
        "separate": "each branch descends its own loss",
        "federated": "each branch descends its own loss in federated rounds",
    }
    found = CLAIMS["D2"].check(tampered(alone, descents=paths))
    assert found.verdict == f"holds under: {words[only]}"


@pytest.mark.parametrize(("dtype", "steps"), [(torch.float64, 200), (torch.float32, 90)])
def test_d2_compares_before_rounding_takes_over(dtype, steps):
    """After so many steps every residual is noise, and more steps must not change who was faster on the way there."""
    long = at_init(synthetic(2, 1, 10, covariance="isotropic", seed=2).to(dtype), 64, steps=steps + 50)
    paths = {name: Trajectory(p.y, p.online[: steps + 1], p.offline[: steps + 1]) for name, p in long.descents.items()}
    first, second = check("D2", tampered(long, descents=paths)), check("D2", long)
    assert first.verdict == second.verdict
    assert first.evidence["log10_gain"] == second.evidence["log10_gain"]
    assert second.margin < -1
    at = second.evidence["compared_at_step"]
    assert max(at.values()) < steps
    for reading, gain in second.evidence["log10_gain"].items():
        assert f"{reading} {gain:+.2f} (at step {at[reading]}, before rounding)" in second.words
    start = (long.descents["joint"].online[0] - long.problem.y).norm().item()
    assert min(second.lhs, second.rhs) > 50 * torch.finfo(dtype).eps * start


def test_d2_a_run_that_diverges_loses(usual):
    def with_fused(reading, value):
        paths = {name: copy.copy(path) for name, path in usual.descents.items()}
        paths[reading].offline = paths[reading].offline.clone()
        paths[reading].offline[-1] = value
        return CLAIMS["D2"].check(tampered(usual, descents=paths)).evidence["log10_gain"]

    for value in (math.nan, math.inf):
        assert with_fused("joint", value)["joint"] == -math.inf
        assert with_fused("separate", value)["separate"] == -math.inf
    paths = {name: copy.copy(path) for name, path in usual.descents.items()}
    paths["separate"].online = paths["separate"].online.clone()
    paths["separate"].online[-1] = math.inf
    assert CLAIMS["D2"].check(tampered(usual, descents=paths)).evidence["log10_gain"]["joint"] == math.inf


# D3: the federated step


def test_d3_holds_for_one_client(alone):
    found = check("D3", alone)
    assert found.verdict == "holds"
    assert found.lhs < 1e-4
    assert found.margin > 0


@pytest.mark.parametrize("samples", [5, [2, 6, 3]])
def test_d3_holds_only_if_the_shared_part_is_divided(samples):
    found = check("D3", at_init(synthetic(3, samples, 5, seed=1)))
    assert found.verdict == "holds under: the shared part is divided by N and the personal part is not"
    errors = found.evidence["relative_error"]
    assert errors["pooled"]["0.0001"] > 0.01
    for name in ("pulled", "offline"):
        large, small, limit, part = errors[name].values()
        assert small < 1e-4
        assert 5 < large / small < 20
        assert limit < part < 1e-6


@pytest.mark.parametrize("alpha", [1.0, 0.1, 0.03, 0.003, 0.001])
def test_d3_sees_the_personal_part_however_small_it_is(alpha):
    """Pooled descent has (1 - 1/N) G too little. Of the whole step that is a share of α², of G's own it is 2/3."""
    found = check("D3", at_init(synthetic(3, 5, 5, seed=1), alpha=alpha))
    assert found.verdict == "holds under: the shared part is divided by N and the personal part is not"
    error = found.evidence["relative_error"]["pooled"]["limit_in_personal_part"]
    assert error == pytest.approx(2 / 3, rel=1e-2)
    assert found.margin < 0
    assert f"or {100 * error:.3g} % of the personal part" in found.words
    alone = check("D3", at_init(synthetic(1, 5, 5, seed=1), alpha=alpha))
    assert alone.verdict == "holds"
    assert alone.margin > 0


@pytest.mark.parametrize("seed", range(8))
def test_d1_and_d3_are_laws_of_one_unit_too(seed):
    """A network so small bends most, and a gate that opens counts most."""
    for clients, verdict in ((1, "holds"), (2, "holds under")):
        study = at_init(synthetic(clients, 3, 3, seed=seed), 1, seed=seed)
        expected = (verdict, "holds under") if study.on.G.any() else ("holds", "holds")  # a closed gate moves nothing
        assert tuple(check(name, study).verdict.split(":")[0] for name in ("D3", "D1")) == expected


def test_d3_does_not_decide_what_no_step_can_tell():
    """The personal part is 1e-10 of the step here, below its curvature: neither kernel can be told from the other."""
    found = check("D3", at_init(synthetic(3, 5, 5, seed=1), alpha=1e-5))
    assert found.verdict == "undecided"
    assert found.margin < 0


def test_d3_fails_for_the_printed_projection(printed):
    found = check("D3", printed)
    assert found.verdict == "fails"
    assert min(found.evidence["relative_error"][name]["0.0001"] for name in ("pooled", "pulled", "offline")) > 0.01


@pytest.mark.parametrize("factor", [1.1, 1.001])
@pytest.mark.parametrize("model", ["on", "off"])
def test_d3_fails_for_a_wrong_kernel(usual, model, factor):
    assert check("D3", tampered(usual, **{model: factor * getattr(usual, model)})).verdict == "fails"


# C1: λ_min(Λ(t)) stays up


def test_c1_holds_for_a_wide_network():
    study = at_init(synthetic(2, 4, 5, seed=1), 2048, steps=16)
    found = check("C1", study)
    assert found.verdict == "holds"
    e = found.evidence
    assert list(e["lambda_min"]) == ["128", "512", "2048"]
    V, same = study.limit.kernel.V, study.problem.owner[:, None] == study.problem.owner[None, :]
    kernels_of = {"online": V, "offline": V * same, "fused": (V + V * same) / 2}
    assert e["mu"] == pytest.approx({name: eigenvalues(K)[0] for name, K in kernels_of.items()})
    for track in e["lambda_min"].values():
        assert track["t"] == [0, 2, 4, 6, 8, 10, 12, 14, 16]
        assert {len(values) for values in track.values()} == {9}
    track = e["lambda_min"]["2048"]
    for branch, k in (("online", study.on), ("offline", study.off), ("fused", study.co2)):
        assert track[branch][0] == pytest.approx(eigenvalues(k.Lambda)[0])
    last_online, last_offline = study.descents["separate"].snapshots[-1][1:]
    on, off = (study.kernel(w).Lambda for w in (last_online, last_offline))
    assert track["online"][-1] == pytest.approx(eigenvalues(on)[0])
    assert track["fused"][-1] == pytest.approx(eigenvalues((on + off) / 2)[0])
    least = min(v / (e["mu"][b] / (2 * 0.5**2)) for b in e["mu"] for v in track[b])
    assert found.margin == pytest.approx(least - 1)
    assert e["least_ratio"]["2048"] == pytest.approx(least)


def test_c1_fails_for_a_network_narrower_than_the_data():
    """Two units of dimension 5, γ included, cannot tell 30 samples of one client apart."""
    found = check("C1", at_init(synthetic(1, 30, 5, seed=1), 2, steps=4))
    assert found.verdict == "fails"
    assert found.margin == pytest.approx(-1, abs=1e-6)


@pytest.mark.parametrize(("online", "offline"), [(0.3, 1.0), (1.0, 0.3)])
@pytest.mark.parametrize("when", [0, 4, 8])
def test_c1_fails_if_one_branch_sinks_once(usual, online, offline, when):
    path = copy.copy(usual.descents["separate"])
    path.snapshots = list(path.snapshots)
    t, on, off = path.snapshots[when]
    path.snapshots[when] = (t, *(
        replace(w, gamma=f * w.gamma, c=f * w.c) for f, w in ((online, on), (offline, off))
    ))  # fmt: skip
    assert check("C1", usual).verdict == "holds"
    assert check("C1", tampered(usual, descents=usual.descents | {"separate": path})).verdict == "fails"


def test_c1_wants_half_of_mu_over_alpha_squared(usual):
    """A limit just so large that the least ratio is 1."""
    ratio = check("C1", usual).margin + 1
    other = {f: {b: f * ratio * k for b, k in usual.limits.items()} for f in (0.99, 1.01)}
    shared = {"descents": usual.descents}
    assert check("C1", tampered(usual, limits=other[0.99], **shared)).verdict == "holds"
    assert check("C1", tampered(usual, limits=other[1.01], **shared)).verdict == "fails"


@pytest.mark.parametrize("seed", range(6))
def test_c1_does_not_toss_a_coin_where_mu_is_zero(seed):
    """A sample twice: μ and λ_min(Λ(t)) are both 0, and come out as rounding of either sign."""
    problem = synthetic(2, 3, 4, seed=seed)
    problem.x[1] = problem.x[0]
    found = check("C1", at_init(problem, 64, seed=seed, steps=4))
    assert found.verdict == "holds"
    assert found.rhs == 0
    assert abs(found.margin) < 1e-9
    assert "μ is 0 to rounding" in found.words


def test_c1_compares_the_two_sides_of_one_model(usual):
    found = check("C1", usual)
    assert found.margin == pytest.approx(found.lhs / found.rhs - 1)
    track, mu = found.evidence["lambda_min"]["512"], found.evidence["mu"]
    assert any(found.lhs == min(track[b]) and found.rhs == mu[b] / (2 * usual.alpha**2) for b in mu)


# C2: the residual stays under its bound


def test_c2_holds(usual):
    found = check("C2", usual)
    assert found.verdict == "holds"
    assert set(found.evidence["violations"].values()) == {0}
    assert set(found.evidence["violations"]) == {"online", "offline", "fused", "fused, joint"}
    assert found.evidence["rate"] == pytest.approx(1 / eigenvalues(usual.on.Lambda)[-1])
    assert found.margin == pytest.approx(1 - max(found.evidence["largest_ratio_to_bound"].values()))


def test_c2_fails_for_a_step_far_too_large(usual):
    found = check("C2", tampered(usual, rate=100 / eigenvalues(usual.on.Lambda)[-1]))
    assert found.verdict == "fails"
    assert min(found.evidence["violations"].values()) > 10


@pytest.mark.parametrize(("value", "ratio"), [(100.0, 100), (math.nan, 1e300)])
def test_c2_sees_one_violation_on_the_way(usual, value, ratio):
    path = copy.copy(usual.descents["joint"])
    path.online = path.online.clone()
    path.online[7] = value
    found = check("C2", tampered(usual, descents=usual.descents | {"joint": path}))
    assert found.evidence["violations"] == {"online": 0, "offline": 0, "fused": 0, "fused, joint": 1}
    assert found.verdict == "holds under: only online; only offline; only fused"
    assert found.evidence["largest_ratio_to_bound"]["fused, joint"] == found.lhs > ratio
    assert found.margin < 0


def frozen(path):
    """A descent that never moves."""
    return Trajectory(path.y, path.online[:1].expand_as(path.online), path.offline[:1].expand_as(path.offline))


def test_c2_counts_a_negative_bound_as_violated(usual):
    """With so large a step 1 - rate μ/(2α²) is below -1: no square lies under that, nor under its even powers."""
    rate = 1e4 / eigenvalues(usual.on.Lambda)[-1]
    assert 1 - rate * min(check("C2", usual).evidence["mu"].values()) / (2 * 0.5**2) < -1
    still = {name: frozen(path) for name, path in usual.descents.items()}
    for parts in ({}, {"descents": still}):
        found = CLAIMS["C2"].check(tampered(usual, rate=rate, **parts))
        assert set(found.evidence["violations"].values()) == {usual.steps}


def test_c2_fails_for_networks_that_do_not_learn(usual):
    found = check("C2", tampered(usual, descents={name: frozen(path) for name, path in usual.descents.items()}))
    assert found.verdict == "fails"
    assert set(found.evidence["violations"].values()) == {usual.steps}
    assert found.words.startswith(f"{4 * usual.steps} violations")


def test_c2_holds_only_for_those_that_learn(usual):
    separate = usual.descents["separate"]
    found = check("C2", tampered(usual, descents=usual.descents | {"separate": frozen(separate)}))
    assert found.verdict == "holds under: only fused, joint"
    found = check("C2", tampered(usual, descents=usual.descents | {"joint": frozen(separate)}))
    assert found.verdict == "holds under: only online; only offline; only fused"


@pytest.mark.parametrize(("share", "violations"), [(0.999, 0), (1.001, 40)])
def test_c2_knows_its_bound(usual, share, violations):
    """Residuals that follow (1 - rate μ/(2α²))^t times 0.999 and times 1.001."""
    y, t = usual.problem.y, torch.arange(41, dtype=torch.float64)
    mu = {branch: eigenvalues(usual.limits[branch].V)[0] for branch in ("online", "offline")}
    curves = {}
    for branch in mu:
        factor = 1 - usual.rate * mu[branch] / (2 * usual.alpha**2)
        curve = (share * factor**t).sqrt()
        curve[0] = 1
        curves[branch] = y + curve[:, None] * y
    path = Trajectory(y, curves["online"], curves["offline"])
    found = CLAIMS["C2"].check(tampered(usual, descents=usual.descents | {"separate": path}))
    for branch in mu:
        assert found.evidence["violations"][branch] == violations
        assert found.evidence["largest_ratio_to_bound"][branch] == pytest.approx(share)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_c2_does_not_blame_rounding(dtype):
    """One sample is learnt at once; from then on its residual is rounding, while the bound goes on falling."""
    x, S = torch.tensor([[1.0, 2.0, -1.0]]), torch.eye(3)[None]
    problem = Problem(x, torch.tensor([1.0]), torch.tensor([0]), S).to(dtype)
    found = check("C2", at_init(problem, 64, steps=200))
    assert found.verdict == "holds"


# X1: deep networks


def conv_net(seed, outputs=3):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 9, outputs),
        )  # fmt: skip
        for _ in range(3):
            net(torch.randn(16, 1, 6, 6))  # running statistics other than 0 and 1
    return net.double().eval()


IMAGES = [drawn(3, 1, 6, 6, seed=10), drawn(2, 1, 6, 6, seed=11)]


def sgd(nets, steps=4):
    """A few steps of each network on one client's images, batch norm in training mode, then back."""
    for net, x in zip(nets, IMAGES, strict=False):
        optimiser = torch.optim.SGD(net.train().parameters(), lr=0.1)
        for _ in range(steps):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(x), torch.arange(len(x)) % 3).backward()
            optimiser.step()
        net.eval()
    return nets


def test_x1_deep_kernels_agree_with_plain_autograd():
    net = conv_net(0)
    found = deep_kernels(net, IMAGES)
    rows = []
    for x in torch.cat(IMAGES):
        for value in net(x[None])[0]:
            grads = torch.autograd.grad(value, list(net.parameters()), retain_graph=True)
            rows.append(torch.cat([g.flatten() for g in grads]))
    J = torch.stack(rows)
    assert found.owner.tolist() == [0] * 9 + [1] * 6
    assert torch.allclose(found.on, J @ J.T, rtol=1e-10)
    same = found.owner[:, None] == found.owner[None, :]
    assert torch.allclose(found.off, J @ J.T * same, rtol=1e-10)
    assert torch.allclose(deep_kernels(net, IMAGES, chunk=1).on, found.on, rtol=1e-10)


def test_x1_deep_kernels_keep_no_graph():
    """A graph would hold every Jacobian in memory, which taking one parameter at a time is meant to avoid."""
    found = deep_kernels(conv_net(0), IMAGES)
    assert not found.on.requires_grad
    assert not found.off.requires_grad


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("copies", [False, True])
def test_x1_holds_for_equal_weights(trained, copies):
    """At the start, and at a checkpoint from which the offline networks are copied."""
    net = conv_net(0)
    if trained:
        sgd([net])
    offline = [copy.deepcopy(net) for _ in IMAGES] if copies else None
    kernel = deep_kernels(net, IMAGES, offline)
    found = judged(judge_deep(kernel))
    assert found.verdict == "holds"
    assert found.evidence["holds"] == {"O1": True, "O2": True, "O3": True}
    on, off, mean = (eigenvalues(K)[0] for K in (kernel.on, kernel.off, (kernel.on + kernel.off) / 2))
    assert found.evidence["lambda_min"] == pytest.approx({"off": off, "mean": mean, "on": on})
    assert (found.lhs, found.rhs) == pytest.approx((off, on))
    assert found.margin > 0


def test_x1_holds_in_single_precision():
    assert judged(judge_deep(deep_kernels(conv_net(0).float(), [x.float() for x in IMAGES]))).verdict == "holds"


def test_x1_fails_for_offline_networks_of_other_weights():
    found = judged(judge_deep(deep_kernels(conv_net(0), IMAGES, [conv_net(1), conv_net(2)])))
    assert found.verdict == "fails"
    assert found.evidence["holds"]["O1"] is False
    assert found.evidence["relative_difference_from_blocks"] > 0.01


def test_x1_fails_at_a_checkpoint_where_each_client_has_trained_alone():
    net = conv_net(0)
    own = sgd([copy.deepcopy(net) for _ in IMAGES])
    assert judged(judge_deep(deep_kernels(net, IMAGES, own))).verdict == "fails"


def test_x1_judges_each_ordering():
    """Kernels by hand, as no two networks would give them."""
    kernel = deep_kernels(conv_net(0), IMAGES)
    weaker = judged(judge_deep(replace(kernel, off=0.01 * kernel.off)))
    assert weaker.evidence["holds"] == {"O1": False, "O2": False, "O3": False}
    assert weaker.verdict == "fails"
    stronger = judged(judge_deep(replace(kernel, off=2 * kernel.off)))
    assert stronger.evidence["holds"] == {"O1": False, "O2": True, "O3": True}
    assert stronger.verdict == "fails"


def test_x1_refuses_batch_norm_in_training_mode():
    with pytest.raises(InputError, match=r"batch norm '1' is in training mode.*eval\(\)"):
        deep_kernels(conv_net(0).train(), IMAGES)
    with pytest.raises(InputError, match="training mode"):
        deep_kernels(conv_net(0), IMAGES, [conv_net(0), conv_net(0).train()])


def test_x1_fails_on_the_study_if_its_networks_differ(usual, monkeypatch):
    def with_other_weights(net, inputs):
        return deep_kernels(net, inputs, [deep.small_conv_net(5, torch.Generator().manual_seed(9)) for _ in inputs])

    monkeypatch.setattr(deep, "deep_kernels", with_other_weights)
    assert check("X1", usual).verdict == "fails"


def test_x1_on_the_study_is_the_same_each_time(usual):
    first, second = check("X1", usual), check("X1", usual)
    assert first == second
    assert first.verdict == "holds"
    assert first.margin > 0
    assert "O1 is an identity" in first.words
