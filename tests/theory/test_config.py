"""The settings of a verification: which are refused, and what they make."""

import math

import numpy as np
import pytest
import torch

from theory import InputError
from theory.config import TheoryConfig

BAD = {
    "clients": (0, "clients is 0"),
    "samples": (-1, "samples is -1"),
    "dim": (0, "dim is 0"),
    "width": (0, "width is 0"),
    "draws": (0, "draws is 0"),
    "steps": (0, "steps is 0"),
    "chunk": (0, "chunk is 0"),
    "seed": (-1, "seed is -1; choose it between 0 and 2147483648"),
    "alpha": (1.01, r"alpha is 1\.01"),
    "heterogeneity": (5.5, r"heterogeneity is 5\.5"),
    "dtype": ("float16", "unknown dtype 'float16'"),
}


@pytest.mark.parametrize(("option", "value", "words"), [(name, *bad) for name, bad in BAD.items()], ids=BAD)
def test_bad_options_are_refused_and_named(option, value, words):
    with pytest.raises(InputError, match=words):
        TheoryConfig(**{option: value})


@pytest.mark.parametrize("alpha", [0.0, -0.5, math.nan, math.inf])
def test_alpha_lies_between_nothing_and_one(alpha):
    with pytest.raises(InputError, match="alpha is"):
        TheoryConfig(alpha=alpha)


@pytest.mark.parametrize("heterogeneity", [-1e-9, math.nan, math.inf])
def test_heterogeneity_lies_between_nothing_and_five(heterogeneity):
    with pytest.raises(InputError, match="heterogeneity is"):
        TheoryConfig(heterogeneity=heterogeneity)


def test_a_seed_leaves_room_for_the_draws_that_count_on_from_it():
    assert TheoryConfig(seed=2**31).build_problem(20).clients == 5
    with pytest.raises(InputError, match="seed is 2147483649"):
        TheoryConfig(seed=2**31 + 1)


def test_an_unknown_covariance_is_refused_before_anything_is_computed():
    with pytest.raises(InputError, match="unknown covariance 'round'"):
        TheoryConfig(covariance="round").build_problem()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(InputError, match="device 'cuda:1' is not there"):
        TheoryConfig(device="cuda:1")


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*nothing\.npz"):
        TheoryConfig(dataset=str(tmp_path / "nothing.npz")).build_problem()


# ---- what a setting makes


def test_draws_differ_and_are_repeated_by_their_seed():
    setting = TheoryConfig(clients=2, samples=3, dim=4, width=16, seed=5)
    first, second = setting.build_study(0), setting.build_study(1)
    assert torch.equal(first.problem.x, setting.build_study(0).problem.x)
    assert torch.equal(first.online.v, setting.build_study(0).online.v)
    assert not torch.equal(first.problem.x, second.problem.x)
    assert not torch.equal(first.online.v, second.online.v)
    assert torch.equal(second.problem.x, TheoryConfig(clients=2, samples=3, dim=4, width=16, seed=6).build_problem().x)


def test_options_reach_the_study():
    setting = TheoryConfig(
        clients=2, samples=3, dim=4, width=16, alpha=0.3, covariance="scaled", steps=7, projection="printed",
        dtype="float32", chunk=5,
    )  # fmt: skip
    study = setting.build_study()
    assert (study.problem.clients, study.problem.sizes, study.problem.dim) == (2, [3, 3], 4)
    assert (study.online.width, study.alpha, study.steps, study.chunk) == (16, 0.3, 7, 5)
    assert study.projection == "printed"
    assert study.problem.isotropic_scales is not None
    assert study.online_kernel.V.dtype == torch.float32


def test_the_users_data_take_the_place_of_synthetic_ones(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "mine.npz"
    np.savez(path, X=rng.standard_normal((20, 3)), y=rng.standard_normal(20), owner=np.repeat([0, 1], 10))
    setting = TheoryConfig(dataset=str(path), clients=7, width=8)
    assert setting.build_problem().sizes == [10, 10]
    assert torch.equal(setting.build_problem(0).x, setting.build_problem(1).x)
    assert not torch.equal(setting.build_study(0).online.v, setting.build_study(1).online.v)
    assert TheoryConfig().load_data() is None


def test_the_size_is_that_of_the_problem(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "mine.npz", X=rng.normal(size=(9, 3)), y=rng.normal(size=9), owner=[0] * 4 + [1] * 5)
    kinds = [TheoryConfig(covariance=kind, dim=d) for kind in ("isotropic", "scaled", "anisotropic") for d in (1, 4)]
    for setting in (*kinds, TheoryConfig(dataset=str(tmp_path / "mine.npz"))):
        problem, size = setting.build_problem(), setting.size
        assert (size.n, size.N, size.d) == (len(problem.x), problem.clients, problem.dim)
        assert size.isotropic == (problem.isotropic_scales is not None)
