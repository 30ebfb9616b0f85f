"""D1 to D3 both ways: what drives the fused network, who is faster, what a federated step is."""

import copy
import math

import pytest
import torch
from studies import build_study, check_claim, compute_eigenvalues, override_study, scale_offline

from theory import CLAIMS, Study, draw_synthetic_problem
from theory.claims import dynamics
from theory.training.descent import Trajectory

# D1: what drives the fused network


def test_d1_holds_only_if_each_branch_has_its_own_loss(usual):
    found = check_claim("D1", usual)
    assert found.verdict == "holds under: each branch is trained on its own loss, at t = 0"
    assert found.lhs == pytest.approx(0.5)
    assert found.evidence["error_of_half"] == pytest.approx(0.5)
    assert found.evidence["error_of_quarter"] < 1e-13
    large, small, limit, part = found.evidence["separate_step_error"].values()
    assert small < 1e-4
    assert 5 < large / small < 20
    assert limit < part < 1e-6


def test_d1_holds_for_the_fusion_that_gives_a_half(usual):
    found = check_claim("D1", Study(usual.problem, usual.online, fusion=0.5**0.5))
    assert found.verdict == "holds"
    assert found.lhs == pytest.approx(1)
    assert found.evidence["error_of_half"] < 1e-13


@pytest.mark.parametrize("name", ["printed", "after_training"])
def test_d1_fails(name, request):
    """With the printed projection no step follows the kernel; after t = 0 the branches have residuals of their own."""
    found = check_claim("D1", request.getfixturevalue(name))
    assert found.verdict == "fails"
    large, small, _, _ = found.evidence["separate_step_error"].values()
    assert small == pytest.approx(large, rel=0.1)  # does not vanish with the step


@pytest.mark.parametrize(("factor", "times"), [(2**0.5, 1.0), (2.0, 2.0)])
def test_d1_measures_the_fused_network_itself(usual, monkeypatch, factor, times):
    """Other outputs than F = (F_on + F_off)/2, with nothing else told of it."""
    original = dynamics.FusedNetwork.forward
    monkeypatch.setattr(dynamics.FusedNetwork, "forward", lambda self, x: factor * original(self, x))
    found = check_claim("D1", usual)
    assert found.lhs == pytest.approx(times)
    assert (found.verdict == "holds") == (times == 1.0)


def test_d1_fails_for_an_offline_network_of_its_own(usual):
    assert check_claim("D1", scale_offline(usual, 0.5)).verdict == "fails"


# D2: who converges faster


def compute_paper_outputs(problem, v, gamma, c):
    """Both branches from the formula of the paper, sample by sample's client."""
    i = problem.owner
    v = v.expand(problem.clients, *v.shape[-2:])
    size = torch.einsum("imd,ide,ime->im", v, problem.S, v).sqrt()
    hidden = torch.einsum("nd,nmd->nm", problem.x, v[i]) * (gamma / size)[i]
    return (hidden.relu() * c).sum(1) / v.shape[1] ** 0.5


def descend_with_autograd(study, reading, step):
    """|F - y| of FedBN and of Fed-CO2 after the study's steps, by torch.autograd; ``step`` for Σ(F-y)²/2."""
    problem, c = study.problem, study.online.c
    on, off = ([w.v.clone(), w.gamma.clone()] for w in (study.online, study.offline))
    for _ in range(study.steps):
        for tensor in (*on, *off):
            tensor.requires_grad_()
        F_on, F_off = compute_paper_outputs(problem, *on, c), compute_paper_outputs(problem, *off, c)
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
    F_on, F_off = compute_paper_outputs(problem, *on, c), compute_paper_outputs(problem, *off, c)
    return (F_on - problem.y).norm().item(), ((F_on + F_off) / 2 - problem.y).norm().item()


def test_d2_measures_what_autograd_trains():
    study = build_study(draw_synthetic_problem(3, 4, 5, seed=3), 48, steps=12)
    finding = check_claim("D2", study)
    found = finding.evidence
    assert found["steps"] == 12
    assert set(found["compared_at_step"].values()) == {12}
    assert "after 12 steps" in finding.words
    assert "at step" not in finding.words
    on, off = study.online_kernel.Lambda, study.offline_kernel.Lambda
    common, own_on, own_joint = (
        1 / compute_eigenvalues(on)[-1],
        1.8 / compute_eigenvalues(on)[-1],
        1.8 / compute_eigenvalues((on + off) / 4)[-1],
    )
    fedbn, separate = descend_with_autograd(study, "separate", common)
    expected = {
        "joint": (descend_with_autograd(study, "joint", common)[1], fedbn),
        "joint, own step": (
            descend_with_autograd(study, "joint", own_joint)[1],
            descend_with_autograd(study, "separate", own_on)[0],
        ),
        "separate": (separate, fedbn),
        "federated": descend_with_autograd(study, "federated", 1 / compute_eigenvalues(off)[-1])[::-1],
    }
    for reading, (fedco2, bn) in expected.items():
        assert found["residual"][reading] == pytest.approx({"fedco2": fedco2, "fedbn": bn}, rel=1e-6)
        assert found["log10_gain"][reading] == pytest.approx(math.log10(bn / fedco2), abs=1e-6)


def test_d2_reproduces_the_evidence():
    """The literal reading is slower, the step that each model can bear makes it faster."""
    found = check_claim("D2", build_study(draw_synthetic_problem(5, 8, 10, seed=0), 1000, steps=120))
    gains = found.evidence["log10_gain"]
    assert found.margin == gains["joint"] < -0.1
    assert min(gains["joint, own step"], gains["separate"], gains["federated"]) > 0.05
    assert found.verdict == (
        "holds under: each model takes its own largest stable step; each branch descends its own loss; "
        "each branch descends its own loss in federated rounds"
    )
    assert (found.lhs, found.rhs) == tuple(found.evidence["residual"]["joint"].values())


def test_d2_holds_where_clients_contradict_each_other(twins):
    on, off = (compute_eigenvalues(k.Lambda)[0] for k in (twins.online_kernel, twins.offline_kernel))
    assert off > 3 * on
    found = check_claim("D2", twins)
    assert found.verdict == "holds"
    assert found.margin == found.evidence["log10_gain"]["joint"] > 0.1


def test_d2_fails_for_one_client(alone):
    """Online and offline are one network then: every reading is a tie, but for the joint loss, which is slower."""
    found = check_claim("D2", alone)
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
    found = CLAIMS["D2"].check(override_study(alone, descents=paths))
    assert found.verdict == f"holds under: {words[only]}"


@pytest.mark.parametrize(("dtype", "steps"), [(torch.float64, 200), (torch.float32, 90)])
def test_d2_compares_before_rounding_takes_over(dtype, steps):
    """After so many steps every residual is noise, and more steps must not change who was faster on the way there."""
    long = build_study(draw_synthetic_problem(2, 1, 10, covariance="isotropic", seed=2).to(dtype), 64, steps=steps + 50)
    paths = {name: Trajectory(p.y, p.online[: steps + 1], p.offline[: steps + 1]) for name, p in long.descents.items()}
    first, second = check_claim("D2", override_study(long, descents=paths)), check_claim("D2", long)
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
        return CLAIMS["D2"].check(override_study(usual, descents=paths)).evidence["log10_gain"]

    for value in (math.nan, math.inf):
        assert with_fused("joint", value)["joint"] == -math.inf
        assert with_fused("separate", value)["separate"] == -math.inf
    paths = {name: copy.copy(path) for name, path in usual.descents.items()}
    paths["separate"].online = paths["separate"].online.clone()
    paths["separate"].online[-1] = math.inf
    assert CLAIMS["D2"].check(override_study(usual, descents=paths)).evidence["log10_gain"]["joint"] == math.inf


# D3: the federated step


def test_d3_holds_for_one_client(alone):
    found = check_claim("D3", alone)
    assert found.verdict == "holds"
    assert found.lhs < 1e-4
    assert found.margin > 0


@pytest.mark.parametrize("samples", [5, [2, 6, 3]])
def test_d3_holds_only_if_the_shared_part_is_divided(samples):
    found = check_claim("D3", build_study(draw_synthetic_problem(3, samples, 5, seed=1)))
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
    found = check_claim("D3", build_study(draw_synthetic_problem(3, 5, 5, seed=1), alpha=alpha))
    assert found.verdict == "holds under: the shared part is divided by N and the personal part is not"
    error = found.evidence["relative_error"]["pooled"]["limit_in_personal_part"]
    assert error == pytest.approx(2 / 3, rel=1e-2)
    assert found.margin < 0
    assert f"or {100 * error:.3g} % of the personal part" in found.words
    alone = check_claim("D3", build_study(draw_synthetic_problem(1, 5, 5, seed=1), alpha=alpha))
    assert alone.verdict == "holds"
    assert alone.margin > 0


@pytest.mark.parametrize("seed", range(8))
def test_d1_and_d3_are_laws_of_one_unit_too(seed):
    """A network so small bends most, and a gate that opens counts most."""
    for clients, verdict in ((1, "holds"), (2, "holds under")):
        study = build_study(draw_synthetic_problem(clients, 3, 3, seed=seed), 1, seed=seed)
        moves = study.online_kernel.G.any()  # a closed gate moves nothing
        expected = (verdict, "holds under") if moves else ("holds", "holds")
        assert tuple(check_claim(name, study).verdict.split(":")[0] for name in ("D3", "D1")) == expected


def test_d3_does_not_decide_what_no_step_can_tell():
    """The personal part is 1e-10 of the step here, below its curvature: neither kernel can be told from the other."""
    found = check_claim("D3", build_study(draw_synthetic_problem(3, 5, 5, seed=1), alpha=1e-5))
    assert found.verdict == "undecided"
    assert found.margin < 0


def test_d3_fails_for_the_printed_projection(printed):
    found = check_claim("D3", printed)
    assert found.verdict == "fails"
    assert min(found.evidence["relative_error"][name]["0.0001"] for name in ("pooled", "pulled", "offline")) > 0.01


@pytest.mark.parametrize("factor", [1.1, 1.001])
@pytest.mark.parametrize("attribute", ["online_kernel", "offline_kernel"])
def test_d3_fails_for_a_wrong_kernel(usual, attribute, factor):
    wrong = override_study(usual, **{attribute: factor * getattr(usual, attribute)})
    assert check_claim("D3", wrong).verdict == "fails"
