"""K1, K2, K5, K7 both ways: the tangent kernel, its definiteness and parts, the printed projection."""

from types import SimpleNamespace

import pytest
import torch
from studies import build_study, check_claim, compute_eigenvalues, draw_normal, override_study

from theory import Kernel, draw_synthetic_problem
from theory.claims import kernels

# K1: Λ = V/α² + G


@pytest.mark.parametrize("name", ["usual", "isotropic", "after_training"])
def test_k1_holds(name, request):
    found = check_claim("K1", request.getfixturevalue(name))
    assert found.verdict == "holds"
    assert set(found.evidence["relative_error"]) == {"online", "offline"}
    assert max(found.evidence["relative_error"].values()) == found.lhs < 1e-13


def test_k1_fails_for_the_printed_projection(printed):
    found = check_claim("K1", printed)
    assert found.verdict == "fails"
    assert all(error > 0.05 for error in found.evidence["relative_error"].values())


def test_k1_holds_for_the_printed_projection_on_isotropic_clients(isotropic):
    assert check_claim("K1", build_study(isotropic.problem, projection="printed")).verdict == "holds"


@pytest.mark.parametrize("wrong", ["online", "offline"])
def test_k1_looks_at_both_models(usual, wrong):
    study = override_study(usual)
    study.compute_kernel = lambda weights: (
        (1.001 if weights is getattr(usual, wrong) else 1.0) * usual.compute_kernel(weights)
    )
    found = check_claim("K1", study)
    assert found.verdict == "fails"
    assert found.evidence["relative_error"][wrong] == pytest.approx(1e-3)


def test_k1_takes_the_first_units_where_a_jacobian_has_no_room(usual, monkeypatch):
    monkeypatch.setattr(kernels, "MAX_JACOBIAN_ENTRIES", 15 * 6 * 100)
    found = check_claim("K1", usual)
    assert found.evidence["hidden_units"] == 100
    assert found.verdict == "holds"


# K2: positive semidefinite, and Λ above its parts


@pytest.mark.parametrize("name", ["usual", "printed", "after_training"])
def test_k2_holds(name, request):
    study = request.getfixturevalue(name)
    found = check_claim("K2", study)
    assert found.verdict == "holds"
    for part, value in found.evidence["lambda_min"].items():
        letter, _, model = part.rpartition("_")
        kernel = {"on": study.online_kernel, "off": study.offline_kernel}[model]
        assert value == pytest.approx(compute_eigenvalues(getattr(kernel, letter))[0], abs=1e-12)


@pytest.mark.parametrize(("attribute", "model"), [("online_kernel", "on"), ("offline_kernel", "off")])
@pytest.mark.parametrize("letter", ["V", "G"])
def test_k2_fails_for_an_indefinite_part(usual, attribute, model, letter):
    """Λ stays positive: the other part makes up for it."""
    k = getattr(usual, attribute)
    eye, low = torch.eye(len(k.V), dtype=torch.float64), 0.01
    V, G = k.V + eye, k.G + 4 * eye
    broken = Kernel(V - (compute_eigenvalues(V)[0] + low) * eye, G, k.alpha)
    if letter == "G":
        broken = Kernel(V, G - (compute_eigenvalues(G)[0] + low) * eye, k.alpha)
    assert compute_eigenvalues(broken.Lambda)[0] > 0
    found = check_claim("K2", override_study(usual, **{attribute: broken}))
    assert found.verdict == "fails"
    assert found.margin < 0
    assert found.evidence["lambda_min"][f"{letter}_{model}"] == pytest.approx(-low)


@pytest.mark.parametrize("attribute", ["online_kernel", "offline_kernel"])
def test_k2_fails_where_the_whole_lies_below_a_part(usual, attribute):
    k = getattr(usual, attribute)
    broken = SimpleNamespace(V=k.V, G=k.G, Lambda=0.5 * k.Lambda, alpha=k.alpha)
    found = check_claim("K2", override_study(usual, **{attribute: broken}))
    assert found.verdict == "fails"
    assert min(found.evidence["lambda_min"].values()) > 0


# K5: the printed projection


@pytest.mark.parametrize("kind", ["isotropic", "scaled"])
def test_k5_holds_where_covariances_are_multiples_of_the_identity(kind):
    assert check_claim("K5", build_study(draw_synthetic_problem(3, 5, 5, covariance=kind, seed=1))).verdict == "holds"


@pytest.mark.parametrize("name", ["usual", "printed", "after_training"])
def test_k5_holds_only_under_isotropy(name, request):
    study = request.getfixturevalue(name)
    found = check_claim("K5", study)
    assert found.verdict == "holds under: every S_i = s_i I"
    V, exact = (study.compute_kernel(study.online, projection=p).V for p in ("printed", "exact"))
    assert found.lhs == pytest.approx(((V - exact).norm() / exact.norm()).item())
    assert found.lhs > 0.05
    assert found.evidence["relative_error_if_isotropic"] < 1e-12


def test_k5_fails_for_a_projection_that_is_wrong_everywhere(usual, monkeypatch):
    def wrong(problem, weights, *, projection="exact", **options):
        return (1.01 if projection == "printed" else 1.0) * original(problem, weights, projection=projection, **options)

    original = kernels.compute_kernel
    monkeypatch.setattr(kernels, "compute_kernel", wrong)
    assert check_claim("K5", usual).verdict == "fails"


def test_k5_states_every_reading(usual, isotropic):
    """Of the projections that the client index may mean, only the one along S_i v is the derivative."""
    euclidean, orthogonal, along = kernels.PROJECTIONS
    for study, verdicts in ((usual, ["fails", "fails", "holds"]), (isotropic, ["holds"] * 3)):
        readings = check_claim("K5", study).evidence["readings"]
        assert [readings[name]["verdict"] for name in (euclidean, orthogonal, along)] == verdicts
        assert readings[along]["relative_error"] < 1e-13
    readings = check_claim("K5", usual).evidence["readings"]
    V, exact = (
        build_study(usual.problem, 128).compute_kernel(kernels.truncate_width(usual.online, 128), projection=p).V
        for p in ("printed", "exact")
    )
    assert readings[euclidean]["relative_error"] == pytest.approx(((V - exact).norm() / exact.norm()).item())


def test_projections_are_what_they_are_called():
    """Each removes v in its own sense, and the last is the adjoint of the second."""
    S = draw_synthetic_problem(1, 1, 4, seed=3).S[0]
    v, x = draw_normal(6, 4, seed=1), draw_normal(5, 1, 4, seed=2)
    euclidean, orthogonal, along = (project(x, v, S) for project in kernels.PROJECTIONS.values())
    for found, dual in ((euclidean, v), (orthogonal, v @ S), (along, v)):
        assert (found * dual).sum(-1).abs().max() < 1e-12
    y = draw_normal(5, 1, 4, seed=4)
    again = kernels.PROJECTIONS["I - vv'S_i/|v|²_{S_i}"](y, v, S)
    assert torch.allclose((again * x).sum(-1), (y * along).sum(-1))


# K7: V dominates


def test_k7_holds_on_usual_clients(usual):
    found = check_claim("K7", usual)
    assert found.verdict == "holds"
    V, G = (compute_eigenvalues(getattr(usual.online_kernel, part))[0] for part in ("V", "G"))
    turns = found.evidence["turning_alpha"]
    assert turns["online"] == pytest.approx((V / G) ** 0.5)
    assert found.lhs == min(turns.values()) > 1
    assert set(found.evidence["synthetic_clients"]) == {"dimension", "heterogeneity", "clients_x_samples"}


def test_k7_turns_for_many_clients_with_few_samples():
    """G couples no clients, so their number does not lower its λ_min; that of V_on sinks as the space fills up."""
    found = check_claim("K7", build_study(draw_synthetic_problem(60, 1, 3, seed=1)))
    assert found.verdict == "holds under: α below sqrt(λ_min(V)/λ_min(G))"
    at = found.evidence["turning_alpha"]["online"]
    assert 0 < at < 1
    for alpha, dominates in ((0.9 * at, True), (1.1 * at, False)):
        k = build_study(draw_synthetic_problem(60, 1, 3, seed=1), alpha=alpha).online_kernel
        assert (compute_eigenvalues(k.V)[0] / alpha**2 > compute_eigenvalues(k.G)[0]) == dominates


def test_k7_fails_where_v_vanishes():
    found = check_claim("K7", build_study(draw_synthetic_problem(2, 2, 1, seed=1)))
    assert found.verdict == "fails"
    assert found.lhs == 0


def test_k7_holds_where_only_g_is_singular(usual):
    flat = Kernel(usual.online_kernel.V, 0 * usual.online_kernel.G, usual.alpha)
    found = check_claim("K7", override_study(usual, online_kernel=flat, offline_kernel=flat, fused_kernel=flat))
    assert found.verdict == "holds"
    assert found.lhs == kernels.MAX_TURNING_ALPHA
