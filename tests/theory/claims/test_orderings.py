"""O1 to O5 and B1 both ways: the orderings of least and greatest eigenvalues."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from studies import build_study, check_claim, compute_eigenvalues, override_study, scale_offline

from theory import Study, draw_initial_weights, draw_synthetic_problem

# O1-O4: the orderings


def test_orderings_hold(usual, isotropic, printed):
    for study in (usual, isotropic, printed):
        kernels = (study.online_kernel, study.offline_kernel, study.fused_kernel)
        on, off, mean = (compute_eigenvalues(k.V) for k in kernels)
        found = {name: check_claim(name, study) for name in ("O1", "O2", "O3", "O4")}
        assert {one.verdict for one in found.values()} == {"holds"}
        assert found["O1"].lhs < 1e-12
        assert (found["O2"].lhs, found["O2"].rhs) == pytest.approx((off[0], on[0]))
        assert (found["O3"].lhs, found["O3"].rhs) == pytest.approx((mean[0], on[0]))
        assert (found["O4"].lhs, found["O4"].rhs) == pytest.approx((mean[-1], on[-1]))
        assert found["O2"].margin == pytest.approx(off[0] - on[0])
        assert found["O3"].margin == pytest.approx(min(mean[0] - (on[0] + off[0]) / 2, (off[0] - on[0]) / 2))
        assert found["O4"].margin == pytest.approx(on[-1] - mean[-1])
        clients = [compute_eigenvalues(study.offline_kernel.V[rows, rows])[0] for rows in study.problem.blocks]
        assert found["O2"].evidence["clients"] == pytest.approx(clients)
        assert found["O4"].evidence["condition"] == pytest.approx({"V": mean[-1] / mean[0], "V_on": on[-1] / on[0]})


def test_orderings_are_equalities_for_one_client(alone, usual):
    for name in ("O1", "O2", "O3", "O4"):
        assert check_claim(name, alone).verdict == "holds"
    assert check_claim("O2", alone).margin == pytest.approx(0, abs=1e-12)
    assert check_claim("O3", alone).evidence["strict"] is False
    assert check_claim("O3", usual).evidence["strict"] is True


def test_o1_fails_once_the_networks_have_moved_apart(after_training):
    found = check_claim("O1", after_training)
    assert found.verdict == "fails"
    assert found.lhs == found.evidence["largest_difference"] > 1e-3


def test_o1_fails_for_other_offline_weights(usual):
    other = draw_initial_weights(usual.problem, 512, 0.5, seed=2).copy_per_client()
    found = check_claim("O1", Study(usual.problem, usual.online, other))
    assert found.verdict == "fails"
    same = usual.problem.owner[:, None] == usual.problem.owner[None, :]
    apart = (usual.compute_kernel(other).V - usual.online_kernel.V * same).abs().max().item()
    assert found.lhs == pytest.approx(apart)


def test_o1_fails_where_nothing_is_cut(usual):
    assert check_claim("O1", override_study(usual, offline_kernel=usual.online_kernel)).verdict == "fails"


@pytest.mark.parametrize(("name", "factor", "verdict"), [
    ("O1", 0.1, "fails"), ("O1", 3, "fails"),
    ("O2", 0.1, "fails"), ("O2", 3, "holds"),
    ("O3", 0.1, "fails"), ("O3", 3, "holds"),
    ("O4", 0.1, "holds"), ("O4", 3, "fails"),
    ("O5", 0.1, "fails"), ("O5", 3, "holds"),
])  # fmt: skip
def test_orderings_with_a_weaker_or_stronger_offline_network(usual, name, factor, verdict):
    assert check_claim(name, scale_offline(usual, factor)).verdict == verdict


def test_o2_fails_where_the_offline_kernel_couples_clients(usual):
    """Its least eigenvalue is above V_on's, but no client's own."""
    found = check_claim("O2", override_study(usual, offline_kernel=2.0 * usual.online_kernel))
    assert found.verdict == "fails"
    assert found.lhs > found.rhs
    assert min(found.evidence["clients"]) > found.lhs


def test_o3_fails_where_the_mean_is_too_small(usual):
    """The first half of the chain is concavity: only a wrong mean can break it."""
    between = (
        compute_eigenvalues(usual.fused_kernel.V)[0]
        - (compute_eigenvalues(usual.online_kernel.V)[0] + compute_eigenvalues(usual.offline_kernel.V)[0]) / 2
    )
    eye = torch.eye(len(usual.online_kernel.V), dtype=torch.float64)
    fused = usual.fused_kernel
    lowered = {share: replace(fused, V=fused.V - share * between * eye) for share in (0.9, 1.1)}
    assert check_claim("O3", override_study(usual, fused_kernel=lowered[0.9])).verdict == "holds"
    assert check_claim("O3", override_study(usual, fused_kernel=lowered[1.1])).verdict == "fails"


def test_o4_fails_where_the_mean_is_steeper(usual):
    online, fused = usual.online_kernel, usual.fused_kernel
    steeper = {f: f * compute_eigenvalues(online.V)[-1] / compute_eigenvalues(fused.V)[-1] for f in (0.999, 1.001)}
    assert check_claim("O4", override_study(usual, fused_kernel=float(steeper[0.999]) * fused)).verdict == "holds"
    assert check_claim("O4", override_study(usual, fused_kernel=float(steeper[1.001]) * fused)).verdict == "fails"


def test_o4_fails_where_the_condition_number_rises(usual):
    """λ_max of the mean is no larger, but its λ_min is."""
    online, fused = usual.online_kernel, usual.fused_kernel
    eye = torch.eye(len(online.V), dtype=torch.float64)
    low = compute_eigenvalues(fused.V)[0] - 0.5 * compute_eigenvalues(online.V)[0]
    found = check_claim("O4", override_study(usual, fused_kernel=replace(fused, V=fused.V - low * eye)))
    assert found.lhs < found.rhs
    assert found.verdict == "fails"
    assert found.margin < 0
    assert "condition number rises" in found.words


def test_o4_does_not_speak_of_a_fall_for_one_client(alone):
    assert check_claim("O4", alone).words.startswith("the condition number stays at ")
    assert check_claim("O2", alone).words.endswith(" online and offline")


def test_o4_has_no_condition_number_for_singular_kernels():
    problem = draw_synthetic_problem(2, 3, 4, seed=1)
    problem.x[1] = problem.x[0]
    found = check_claim("O4", build_study(problem, 64))
    assert found.verdict == "holds"
    assert found.evidence["condition"] == {"V": None, "V_on": None}
    assert found.words.startswith("λ_max falls from ")
    assert found.words.endswith("no condition number to compare")


# O5: no sharing is best by λ_min


def test_o5_holds(usual, isotropic, printed):
    for study in (usual, isotropic, printed):
        found = check_claim("O5", study)
        assert found.verdict == "holds"
        assert found.lhs == pytest.approx(compute_eigenvalues(study.offline_kernel.V)[0])
        curve = found.evidence["curve"]
        assert found.evidence["best_w"] == 0
        assert curve["lambda_min"][len(curve["w"]) // 2] == pytest.approx(compute_eigenvalues(study.fused_kernel.V)[0])
        assert curve["lambda_min"][-1] == pytest.approx(compute_eigenvalues(study.online_kernel.V)[0])
        ends = found.evidence["federated_reading"]
        assert ends["w = 0"] == pytest.approx(found.lhs)
        assert ends["w = 1"] == pytest.approx(compute_eigenvalues(study.online_kernel.V)[0] / study.problem.clients)


def test_o5_fails_once_the_offline_kernel_is_not_the_client_blocks(usual):
    """Other weights of the same kind: whether sharing wins is then a matter of luck, and of no law."""
    weak = override_study(usual, offline_kernel=0.2 * usual.offline_kernel)
    found = check_claim("O5", weak)
    assert found.verdict == "fails"
    assert found.evidence["best_w"] > 0
    assert "largest at w = " in found.words
    verdicts = set()
    for seed in range(30):
        other = draw_initial_weights(usual.problem, 64, 0.5, seed=seed).copy_per_client()
        verdicts.add(check_claim("O5", Study(usual.problem, usual.online, other)).verdict)
    assert verdicts == {"holds", "fails"}


def test_o5_sees_a_curve_that_is_not_concave(usual, monkeypatch):
    from theory.claims import orderings

    def bend(*kernels):
        curve = original(*kernels)
        f = list(curve.lambda_min)
        f[1] = f[2]  # still falling
        return replace(curve, lambda_min=f)

    original = orderings.trace_mixture
    monkeypatch.setattr(orderings, "trace_mixture", bend)
    found = check_claim("O5", usual)
    assert found.verdict == "fails"
    assert found.evidence["smallest_fall"] >= 0


def test_o5_is_an_equality_for_one_client(alone):
    found = check_claim("O5", alone)
    assert found.verdict == "holds"
    assert found.margin == pytest.approx(0, abs=1e-12)


# B1: FedBN above FedAvg


def test_b1_holds(isotropic):
    found = check_claim("B1", isotropic)
    assert found.verdict == "holds"
    assert found.lhs == pytest.approx(compute_eigenvalues(isotropic.online_kernel.G)[0])
    shared = isotropic.compute_kernel(isotropic.online, share_gamma=True)
    assert found.rhs == pytest.approx(compute_eigenvalues(shared.G)[0])
    assert found.margin == pytest.approx(found.lhs - found.rhs)
    ladder = found.evidence["ladder"]
    assert list(ladder) == ["FedAvg", "FedBN", "Fed-CO2", "SingleSet"]
    kernels_of = (isotropic.fedavg_kernel, isotropic.online_kernel, isotropic.fused_kernel, isotropic.offline_kernel)
    assert list(ladder.values()) == pytest.approx([compute_eigenvalues(k.Lambda)[0] for k in kernels_of])


def test_b1_fails_for_a_fedbn_below_fedavg(usual):
    online = usual.online_kernel
    wrong = override_study(usual, online_kernel=replace(online, G=0.01 * online.G))
    assert check_claim("B1", wrong).verdict == "fails"


def test_b1_is_about_g_and_the_ladder_of_lambda_only_evidence():
    """G's blocks always lie above G. But V + G's blocks need not lie above V + G, and on some draws do not."""
    climbs = []
    for seed in range(20):
        found = check_claim("B1", build_study(draw_synthetic_problem(3, 1, 5, seed=seed), 64, seed=seed))
        assert found.verdict == "holds"
        ladder = list(found.evidence["ladder"].values())
        assert found.evidence["ladder_climbs"] == all(a <= b for a, b in pairwise(ladder))
        assert all(a <= b for a, b in pairwise(ladder[1:]))
        climbs.append(found.evidence["ladder_climbs"])
    assert set(climbs) == {True, False}
