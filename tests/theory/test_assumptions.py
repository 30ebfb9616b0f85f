"""Parallel samples: that they are named, measured and refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from theory import InputError, Problem, Study, build_user_data, draw_synthetic_problem
from theory.assumptions import describe_parallel_effect, describe_parallel_samples, refuse_parallel_samples
from theory.config import TheoryConfig


def compute_spectrum(K):
    return np.linalg.eigvalsh(K.double().numpy())


def make_parallel(problem, p, q, factor=2.0):
    x = problem.x.clone()
    x[q] = factor * x[p]
    return replace(problem, x=x)


def test_parallel_samples_are_broken_assumptions():
    problem = draw_synthetic_problem(2, 3, 4, seed=1)
    assert describe_parallel_samples(problem) == []
    (line,) = describe_parallel_samples(make_parallel(problem, 1, 5))
    assert line.startswith("samples 1 and 5 are parallel (cosine +1.0000")


def test_no_more_than_five_pairs_are_listed():
    assert len(describe_parallel_samples(draw_synthetic_problem(2, 5, 1, seed=0))) == 5


def test_the_effect_of_parallel_samples_is_measured():
    problem = make_parallel(draw_synthetic_problem(2, 3, 4, seed=1), 0, 2)
    message = describe_parallel_effect(problem, problem.find_parallel_samples()[0])
    keep = torch.tensor([0, 1, 3, 4, 5])
    without = Problem(problem.x[keep], problem.y[keep], problem.owner[keep], problem.S)
    after = compute_spectrum(Study.at_init(without, 2048).online_kernel.V)[0]
    assert after > 1e-3
    assert message.startswith("samples 0 and 2 are parallel (cosine +1.000000000000), which Assumption 4.1 forbids: ")
    assert message.endswith(f" with both and {after:.3g} without sample 2")
    before = float(message.split("λ_min(V_on) is ")[1].split()[0])
    assert abs(before) < 1e-12


def test_a_client_may_lose_its_only_sample():
    problem = make_parallel(draw_synthetic_problem(3, [2, 1, 2], 4, covariance="scaled", seed=1), 0, 2)
    message = describe_parallel_effect(problem, (0, 2, 1.0))
    keep = torch.tensor([0, 1, 3, 4])
    without = Problem(problem.x[keep], problem.y[keep], torch.tensor([0, 0, 1, 1]), problem.S[[0, 2]])
    assert message.endswith(
        f" and {compute_spectrum(Study.at_init(without, 2048).online_kernel.V)[0]:.3g} without sample 2"
    )


@pytest.mark.parametrize("factor", [3.0, -3.0])
def test_samples_of_one_direction_are_refused_and_opposite_ones_pass(factor):
    x = np.random.default_rng(0).normal(size=(6, 3))
    x[1] = factor * x[0]
    x[2:] -= x.sum(0) / 4  # the mean is zero already, so that centring moves nothing
    settings = [TheoryConfig(dataset=build_user_data(x, np.arange(6.0), ["a"] * 6))]
    if factor < 0:
        refuse_parallel_samples(settings)
        return
    with pytest.raises(
        InputError, match=r"X\[0\] \(client a\) and X\[1\].*drop one of them, or go on with allow_p"
    ) as caught:
        refuse_parallel_samples(settings)
    assert caught.value.options == ("allow_parallel",)


def test_in_one_dimension_the_way_out_is_another_one():
    with pytest.raises(InputError, match="raise dim, or go on with allow_parallel") as caught:
        refuse_parallel_samples([TheoryConfig(dim=1)])
    assert caught.value.options == ("dim", "allow_parallel")
