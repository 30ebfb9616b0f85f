"""Everyone's data: what is refused and in which words, how it is drawn, and which samples are parallel."""

import math
from dataclasses import replace

import pytest
import torch

from theory import InputError, Problem, Study, draw_synthetic_problem

KINDS = ["isotropic", "scaled", "anisotropic"]


def build_parts(**changed):
    """A sound problem of 2 + 3 samples in the plane, with something changed."""
    sound = {
        "x": torch.tensor([[1.0, 2.0], [3.0, -1.0], [0.5, 0.5], [-1.0, 4.0], [2.0, 2.5]], dtype=torch.float64),
        "y": torch.arange(5, dtype=torch.float64),
        "owner": torch.tensor([0, 0, 1, 1, 1]),
        "S": torch.stack([torch.eye(2), 2 * torch.eye(2)]).double(),
    }
    return sound | changed


def alter_entry(name, index, value):
    """The sound problem with one entry altered."""
    tensor = build_parts()[name].clone()
    tensor[index] = value
    return build_parts(**{name: tensor})


def test_a_sound_problem_knows_its_shape():
    problem = Problem(**build_parts())
    assert (problem.dim, problem.clients, problem.sizes) == (2, 2, [2, 3])
    assert problem.blocks == [slice(0, 2), slice(2, 5)]


# ---- what is refused

SKEWED = torch.tensor([[1.0, 0.5], [0.0, 1.0]]).double()
BAD = {
    "no samples": (build_parts(x=torch.empty(0, 2)), r"X has shape \(0, 2\)"),
    "no dimension": (build_parts(x=torch.empty(5, 0)), r"X has shape \(5, 0\)"),
    "a vector for X": (build_parts(x=torch.ones(5)), r"X has shape \(5,\)"),
    "a cube for X": (build_parts(x=torch.ones(5, 2, 1)), r"X has shape \(5, 2, 1\)"),
    "too few targets": (build_parts(y=torch.ones(4)), r"y has shape \(4,\).*5 rows"),
    "a column of targets": (build_parts(y=torch.ones(5, 1)), r"y has shape \(5, 1\)"),
    "too many owners": (build_parts(owner=torch.zeros(6, dtype=torch.long)), r"owner has shape \(6,\)"),
    "NaN in X": (alter_entry("x", (3, 1), math.nan), r"X\[3, 1\] is nan"),
    "infinity in X": (alter_entry("x", (0, 0), -math.inf), r"X\[0, 0\] is -inf"),
    "NaN in y": (alter_entry("y", 2, math.nan), r"y\[2\] is nan"),
    "a zero sample": (alter_entry("x", 4, 0.0), r"sample 4 is all zeros"),
    "owners out of order": (build_parts(owner=torch.tensor([0, 1, 0, 1, 1])), "ordered by client"),
    "a client without samples": (
        build_parts(owner=torch.tensor([0, 0, 2, 2, 2]), S=torch.eye(2).double().expand(3, 2, 2)),
        "owner skips a client number",
    ),
    "a negative client": (
        build_parts(owner=torch.tensor([-1, -1, 0, 0, 0]), S=torch.eye(2).double()[None]),
        "owner skips",
    ),
    "no client": (build_parts(owner=torch.full((5,), -1), S=torch.empty(0, 2, 2)), "owner skips"),
    "too few covariances": (build_parts(S=torch.eye(2)[None]), r"covariances have shape \(1, 2, 2\)"),
    "covariances of another dimension": (
        build_parts(S=torch.eye(3).expand(2, 3, 3)),
        r"covariances have shape \(2, 3, 3\)",
    ),
    "NaN in a covariance": (alter_entry("S", (1, 0, 0), math.nan), "covariance of client 1 is not finite"),
    "an asymmetric covariance": (alter_entry("S", 0, SKEWED), "covariance of client 0 is not symmetric"),
    "a singular covariance": (alter_entry("S", 1, 1.0), r"client 1 is not positive definite \(λ_min = .*, λ_max = 2\)"),
    "a negative covariance": (alter_entry("S", 1, -torch.eye(2).double()), r"client 1 is not positive definite.*-1"),
    "a covariance of zeros": (alter_entry("S", 0, 0.0), "client 0 is not positive definite"),
    "a condition number of 1e13": (alter_entry("S", (1, 0, 0), 2e13), "client 1 is not positive definite"),
}


@pytest.mark.parametrize(("given_parts", "words"), BAD.values(), ids=BAD)
def test_bad_data_are_refused_and_named(given_parts, words):
    with pytest.raises(InputError, match=words) as caught:
        Problem(**given_parts)
    assert "\n" not in str(caught.value)


def test_a_condition_number_of_1e11_is_not_refused():
    assert Problem(**alter_entry("S", (1, 0, 0), 2e11)).isotropic_scales is None


def test_rounding_is_not_taken_for_asymmetry():
    """Zeros of a covariance that was computed come out as 1e-17 here and 3e-17 there."""
    S = build_parts()["S"]
    S[0, 0, 1], S[0, 1, 0] = 1e-17, 3e-17
    assert Problem(**build_parts(S=S)).clients == 2


BAD_DRAWS = {
    "no client": ({"clients": 0}, "clients is 0"),
    "a negative number of clients": ({"clients": -2}, "clients is -2"),
    "no samples": ({"samples": 0}, "samples is 0"),
    "a client without samples": ({"clients": 3, "samples": [2, 0, 1]}, "samples is 0"),
    "counts for other clients": ({"clients": 3, "samples": [2, 2]}, "2 sample counts for 3 clients"),
    "no dimension": ({"dim": 0}, "dim is 0"),
    "an unknown covariance": ({"covariance": "round"}, "unknown covariance 'round'.*isotropic, scaled, anisotropic"),
    "negative heterogeneity": ({"heterogeneity": -0.1}, r"heterogeneity is -0\.1"),
    "too much heterogeneity": ({"heterogeneity": 5.01}, r"heterogeneity is 5\.01"),
    "heterogeneity that is no number": ({"heterogeneity": math.nan}, "heterogeneity is nan"),
}


@pytest.mark.parametrize(("options", "words"), BAD_DRAWS.values(), ids=BAD_DRAWS)
def test_bad_options_of_a_draw_are_refused_and_named(options, words):
    with pytest.raises(InputError, match=words):
        draw_synthetic_problem(**options)


BAD_NETWORKS = {
    "no width": ({"width": 0}, "width is 0"),
    "negative width": ({"width": -3}, "width is -3"),
    "alpha zero": ({"alpha": 0.0}, r"alpha is 0\.0"),
    "alpha above one": ({"alpha": 1.5}, r"alpha is 1\.5"),
    "alpha negative": ({"alpha": -0.5}, r"alpha is -0\.5"),
    "alpha that is no number": ({"alpha": math.nan}, "alpha is nan"),
    "no steps": ({"steps": 0}, "steps is 0"),
}


@pytest.mark.parametrize(("options", "words"), BAD_NETWORKS.values(), ids=BAD_NETWORKS)
def test_bad_options_of_a_network_are_refused_and_named(options, words):
    with pytest.raises(InputError, match=words):
        Study.at_init(draw_synthetic_problem(2, 2, 2), **options)


# ---- drawing


@pytest.mark.parametrize("kind", KINDS)
def test_a_draw_is_repeated_by_its_seed(kind):
    one, two, other = (draw_synthetic_problem(3, 4, 5, covariance=kind, seed=seed) for seed in (7, 7, 8))
    for name in ("x", "y", "owner", "S"):
        assert torch.equal(getattr(one, name), getattr(two, name))
    assert not torch.equal(one.x, other.x)
    assert not torch.equal(one.y, other.y)


def test_a_draw_does_not_touch_the_global_generator():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    draw_synthetic_problem()
    assert torch.equal(torch.rand(1), expected)


def test_samples_may_differ_among_clients():
    problem = draw_synthetic_problem(3, [4, 1, 2], 5)
    assert problem.sizes == [4, 1, 2]
    assert problem.owner.tolist() == [0, 0, 0, 0, 1, 2, 2]
    assert {t.dtype for t in (problem.x, problem.y, problem.S)} == {torch.float64}


def test_inputs_have_the_covariance_they_were_drawn_with():
    problem = draw_synthetic_problem(2, 40_000, 3, seed=1)
    for i, rows in enumerate(problem.blocks):
        x = problem.x[rows]
        assert torch.allclose(x.T @ x / len(x), problem.S[i], rtol=0, atol=0.05 * problem.S[i].norm().item())


def test_the_kinds_of_covariance_are_what_they_are_called():
    identity = torch.eye(4).double().expand(3, 4, 4)
    isotropic, scaled, general = (draw_synthetic_problem(3, 2, 4, covariance=kind) for kind in KINDS)
    assert torch.equal(isotropic.S, identity)
    assert torch.equal(isotropic.isotropic_scales, torch.ones(3).double())
    assert torch.equal(scaled.S, scaled.isotropic_scales[:, None, None] * identity)
    assert len(scaled.isotropic_scales.unique()) == 3
    assert general.isotropic_scales is None
    assert torch.equal(general.S, general.S.mT)


def test_heterogeneity_is_the_spread_of_the_log_variances():
    """Their standard deviation is h and the mean variance is one."""
    S = draw_synthetic_problem(300, 1, 5, heterogeneity=0.5, seed=3).S
    values = torch.linalg.eigvalsh(S)
    assert values.log().std().item() == pytest.approx(0.5, rel=0.05)
    assert values.mean().item() == pytest.approx(1, abs=0.05)
    none = draw_synthetic_problem(3, 1, 5, heterogeneity=0.0)
    assert torch.allclose(none.S, torch.eye(5).double().expand(3, 5, 5), atol=1e-14)


@pytest.mark.parametrize("kind", KINDS)
def test_another_precision_is_the_same_problem_rounded(kind):
    problem = draw_synthetic_problem(2, [2, 3], 3, covariance=kind)
    single = problem.to(torch.float32)
    assert torch.equal(single.x, problem.x.float())
    assert torch.equal(single.S, problem.S.float())
    assert single.owner.dtype == torch.int64
    assert (single.isotropic_scales is None) == (problem.isotropic_scales is None)


def test_almost_multiples_of_the_identity_are_not_taken_for_them():
    problem = draw_synthetic_problem(2, 2, 3, covariance="scaled")
    S = problem.S.clone()
    S[1, 0, 0] *= 1 + 1e-15
    assert replace(problem, S=S).isotropic_scales is None


# ---- parallel samples


def build_problem(*x):
    x = torch.tensor(x, dtype=torch.float64)
    owner = torch.arange(len(x)) * 2 // len(x)
    return Problem(x, torch.zeros(len(x)).double(), owner, torch.eye(x.shape[1]).double().expand(2, -1, -1))


def test_parallel_samples_are_found_within_and_across_clients():
    problem = build_problem([1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 0.0], [0.1, 0.2, 0.3])
    found = problem.find_parallel_samples()
    assert [(p, q) for p, q, _ in found] == [(0, 1), (0, 3), (1, 3)]
    assert all(cosine == pytest.approx(1, abs=1e-15) for _, _, cosine in found)


def test_opposite_samples_are_found_by_their_sign():
    found = build_problem([1.0, 2.0], [0.0, 1.0], [-3.0, -6.0]).find_parallel_samples()
    assert [(p, q) for p, q, _ in found] == [(0, 2)]
    assert found[0][2] == pytest.approx(-1, abs=1e-15)


@pytest.mark.parametrize("kind", KINDS)
def test_drawn_samples_are_not_parallel(kind):
    assert draw_synthetic_problem(5, 20, 3, covariance=kind).find_parallel_samples() == []


def test_the_length_of_samples_does_not_hide_that_they_are_parallel():
    assert len(build_problem([1e-100, 1e-100], [1.0, 1.0], [1e100, 1e100], [1.0, -1.0]).find_parallel_samples()) == 3


def test_a_tilt_of_a_hundred_thousandth_is_not_parallel_but_a_hundred_millionth_is():
    """The cosine of an angle t falls short of 1 by t²/2, and 1e-12 of that counts as nothing."""
    assert build_problem([1.0, 0.0], [1.0, 1e-5], [0.0, 1.0]).find_parallel_samples() == []
    assert len(build_problem([1.0, 0.0], [1.0, 1e-8], [0.0, 1.0]).find_parallel_samples()) == 1


def test_in_one_dimension_all_samples_are_parallel():
    assert len(draw_synthetic_problem(2, 3, 1).find_parallel_samples()) == 15
