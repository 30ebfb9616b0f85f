"""C1 to C3 both ways: kernels that stay positive, residuals that stay under their bound, and from which width on."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from studies import build_study, check_claim, compute_eigenvalues, override_study

from theory import CLAIMS, Problem, draw_synthetic_problem
from theory.training.descent import Trajectory

# C1: λ_min(Λ(t)) stays up


def test_c1_holds_for_a_wide_network():
    study = build_study(draw_synthetic_problem(2, 4, 5, seed=1), 2048, steps=16)
    found = check_claim("C1", study)
    assert found.verdict == "holds"
    e = found.evidence
    assert list(e["lambda_min"]) == ["128", "512", "2048"]
    V, same = study.limit.kernel.V, study.problem.owner[:, None] == study.problem.owner[None, :]
    kernels_of = {"online": V, "offline": V * same, "fused": (V + V * same) / 2}
    assert e["mu"] == pytest.approx({name: compute_eigenvalues(K)[0] for name, K in kernels_of.items()})
    for track in e["lambda_min"].values():
        assert track["t"] == [0, 2, 4, 6, 8, 10, 12, 14, 16]
        assert {len(values) for values in track.values()} == {9}
    track = e["lambda_min"]["2048"]
    first = {"online": study.online_kernel, "offline": study.offline_kernel, "fused": study.fused_kernel}
    for branch, k in first.items():
        assert track[branch][0] == pytest.approx(compute_eigenvalues(k.Lambda)[0])
    last_online, last_offline = study.descents["separate"].snapshots[-1][1:]
    on, off = (study.compute_kernel(w).Lambda for w in (last_online, last_offline))
    assert track["online"][-1] == pytest.approx(compute_eigenvalues(on)[0])
    assert track["fused"][-1] == pytest.approx(compute_eigenvalues((on + off) / 2)[0])
    least = min(v / (e["mu"][b] / (2 * 0.5**2)) for b in e["mu"] for v in track[b])
    assert found.margin == pytest.approx(least - 1)
    assert e["least_ratio"]["2048"] == pytest.approx(least)


def test_c1_fails_for_a_network_narrower_than_the_data():
    """Two units of dimension 5, γ included, cannot tell 30 samples of one client apart."""
    found = check_claim("C1", build_study(draw_synthetic_problem(1, 30, 5, seed=1), 2, steps=4))
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
    assert check_claim("C1", usual).verdict == "holds"
    assert check_claim("C1", override_study(usual, descents=usual.descents | {"separate": path})).verdict == "fails"


def test_c1_wants_half_of_mu_over_alpha_squared(usual):
    """A limit just so large that the least ratio is 1."""
    ratio = check_claim("C1", usual).margin + 1
    other = {f: {b: f * ratio * k for b, k in usual.limit_kernels.items()} for f in (0.99, 1.01)}
    shared = {"descents": usual.descents}
    assert check_claim("C1", override_study(usual, limit_kernels=other[0.99], **shared)).verdict == "holds"
    assert check_claim("C1", override_study(usual, limit_kernels=other[1.01], **shared)).verdict == "fails"


@pytest.mark.parametrize("seed", range(6))
def test_c1_does_not_toss_a_coin_where_mu_is_zero(seed):
    """A sample twice: μ and λ_min(Λ(t)) are both 0, and come out as rounding of either sign."""
    problem = draw_synthetic_problem(2, 3, 4, seed=seed)
    problem.x[1] = problem.x[0]
    found = check_claim("C1", build_study(problem, 64, seed=seed, steps=4))
    assert found.verdict == "holds"
    assert found.rhs == 0
    assert abs(found.margin) < 1e-9
    assert "μ is 0 to rounding" in found.words


def test_c1_compares_the_two_sides_of_one_model(usual):
    found = check_claim("C1", usual)
    assert found.margin == pytest.approx(found.lhs / found.rhs - 1)
    track, mu = found.evidence["lambda_min"]["512"], found.evidence["mu"]
    assert any(found.lhs == min(track[b]) and found.rhs == mu[b] / (2 * usual.alpha**2) for b in mu)


# C2: the residual stays under its bound


def test_c2_holds(usual):
    found = check_claim("C2", usual)
    assert found.verdict == "holds"
    assert set(found.evidence["violations"].values()) == {0}
    assert set(found.evidence["violations"]) == {"online", "offline", "fused", "fused, joint"}
    assert found.evidence["rate"] == pytest.approx(1 / compute_eigenvalues(usual.online_kernel.Lambda)[-1])
    assert found.margin == pytest.approx(1 - max(found.evidence["largest_ratio_to_bound"].values()))


def test_c2_fails_for_a_step_far_too_large(usual):
    found = check_claim("C2", override_study(usual, rate=100 / compute_eigenvalues(usual.online_kernel.Lambda)[-1]))
    assert found.verdict == "fails"
    assert min(found.evidence["violations"].values()) > 10


@pytest.mark.parametrize(("value", "ratio"), [(100.0, 100), (math.nan, 1e300)])
def test_c2_sees_one_violation_on_the_way(usual, value, ratio):
    path = copy.copy(usual.descents["joint"])
    path.online = path.online.clone()
    path.online[7] = value
    found = check_claim("C2", override_study(usual, descents=usual.descents | {"joint": path}))
    assert found.evidence["violations"] == {"online": 0, "offline": 0, "fused": 0, "fused, joint": 1}
    assert found.verdict == "holds under: only online; only offline; only fused"
    assert found.evidence["largest_ratio_to_bound"]["fused, joint"] == found.lhs > ratio
    assert found.margin < 0


def freeze_trajectory(path):
    """A descent that never moves."""
    return Trajectory(path.y, path.online[:1].expand_as(path.online), path.offline[:1].expand_as(path.offline))


def test_c2_counts_a_negative_bound_as_violated(usual):
    """With so large a step 1 - rate μ/(2α²) is below -1: no square lies under that, nor under its even powers."""
    rate = 1e4 / compute_eigenvalues(usual.online_kernel.Lambda)[-1]
    assert 1 - rate * min(check_claim("C2", usual).evidence["mu"].values()) / (2 * 0.5**2) < -1
    still = {name: freeze_trajectory(path) for name, path in usual.descents.items()}
    for parts in ({}, {"descents": still}):
        found = CLAIMS["C2"].check(override_study(usual, rate=rate, **parts))
        assert set(found.evidence["violations"].values()) == {usual.steps}


def test_c2_fails_for_networks_that_do_not_learn(usual):
    found = check_claim(
        "C2", override_study(usual, descents={name: freeze_trajectory(path) for name, path in usual.descents.items()})
    )
    assert found.verdict == "fails"
    assert set(found.evidence["violations"].values()) == {usual.steps}
    assert found.words.startswith(f"{4 * usual.steps} violations")


def test_c2_holds_only_for_those_that_learn(usual):
    separate = usual.descents["separate"]
    found = check_claim(
        "C2", override_study(usual, descents=usual.descents | {"separate": freeze_trajectory(separate)})
    )
    assert found.verdict == "holds under: only fused, joint"
    found = check_claim("C2", override_study(usual, descents=usual.descents | {"joint": freeze_trajectory(separate)}))
    assert found.verdict == "holds under: only online; only offline; only fused"


@pytest.mark.parametrize(("share", "violations"), [(0.999, 0), (1.001, 40)])
def test_c2_knows_its_bound(usual, share, violations):
    """Residuals that follow (1 - rate μ/(2α²))^t times 0.999 and times 1.001."""
    y, t = usual.problem.y, torch.arange(41, dtype=torch.float64)
    mu = {branch: compute_eigenvalues(usual.limit_kernels[branch].V)[0] for branch in ("online", "offline")}
    curves = {}
    for branch in mu:
        factor = 1 - usual.rate * mu[branch] / (2 * usual.alpha**2)
        curve = (share * factor**t).sqrt()
        curve[0] = 1
        curves[branch] = y + curve[:, None] * y
    path = Trajectory(y, curves["online"], curves["offline"])
    found = CLAIMS["C2"].check(override_study(usual, descents=usual.descents | {"separate": path}))
    for branch in mu:
        assert found.evidence["violations"][branch] == violations
        assert found.evidence["largest_ratio_to_bound"][branch] == pytest.approx(share)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_c2_does_not_blame_rounding(dtype):
    """One sample is learnt at once; from then on its residual is rounding, while the bound goes on falling."""
    x, S = torch.tensor([[1.0, 2.0, -1.0]]), torch.eye(3)[None]
    problem = Problem(x, torch.tensor([1.0]), torch.tensor([0]), S).to(dtype)
    found = check_claim("C2", build_study(problem, 64, steps=200))
    assert found.verdict == "holds"


# C3: the width of the theorem


def test_c3_holds_and_says_by_how_much(usual):
    found = check_claim("C3", usual)
    assert found.verdict == "holds"
    n, mu = len(usual.problem.y), min(found.evidence["mu"].values())
    assert found.rhs == pytest.approx(n**4 * math.log(n / 0.05) / mu**4)
    width = found.evidence["smallest_width"]
    assert found.margin == pytest.approx(math.log10(found.rhs / width))
    assert found.margin > 3
    ratios = found.evidence["least_ratio_to_the_bounds"]
    assert list(ratios) == [str(2**k) for k in range(width.bit_length())]
    assert [ratio >= 1 for ratio in ratios.values()] == [False] * (len(ratios) - 1) + [True]


def test_c3_finds_the_width_at_which_c1_and_c2_hold(usual):
    """C1 and C2 themselves, on the network of that width and on the one before."""
    width = check_claim("C3", usual).evidence["smallest_width"]
    for one, holds in ((width, True), (width // 2, False)):
        narrow = usual.with_width(one, seed=usual.seed + one)
        narrow.limit = usual.limit
        above = check_claim("C1", narrow).verdict == "holds"
        violations = check_claim("C2", narrow).evidence["violations"]
        below = not any(violations[branch] for branch in ("online", "offline", "fused"))
        assert (above and below) == holds


def test_c3_fails_where_the_theorem_asks_for_too_little(usual):
    """μ grows with the square of the inputs, and no network has less than one unit."""
    one = draw_synthetic_problem(1, 1, 3, seed=2)
    found = check_claim("C3", build_study(replace(one, x=100 * one.x), 256))
    assert found.verdict == "fails"
    assert found.rhs < 1 <= found.lhs


def test_c3_is_undecided_where_no_width_suffices(usual):
    eye = torch.eye(len(usual.problem.y), dtype=torch.float64)
    limit = usual.limit
    large = replace(limit, kernel=replace(limit.kernel, V=limit.kernel.V + 1e3 * eye))
    found = check_claim("C3", override_study(usual, limit=large))
    assert found.verdict == "undecided"
    assert found.evidence["smallest_width"] is None


def test_c3_is_undecided_where_mu_is_zero():
    found = check_claim("C3", build_study(draw_synthetic_problem(2, 2, 1, seed=1), 64))
    assert found.verdict == "undecided"
    assert found.rhs == math.inf
    assert found.evidence["width_of_the_theorem"] is None
