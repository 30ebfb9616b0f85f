"""Assumption 4.1 forbids parallel samples: which there are, and what they do to λ_min."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from theory.config import TheoryConfig
from theory.errors import InputError
from theory.problem import Problem
from theory.study import Study, compute_min_eigenvalue


def describe_parallel_samples(problem: Problem, name: Callable[[int], str] = str) -> list[str]:
    """Describe the first few pairs of parallel samples."""
    pairs = problem.find_parallel_samples()[:5]
    return [f"samples {name(p)} and {name(q)} are parallel (cosine {cosine:+.15f})" for p, q, cosine in pairs]


def describe_parallel_effect(problem: Problem, pair: tuple[int, int, float], name: Callable[[int], str] = str) -> str:
    """Describe λ_min of V_on with both samples and without the second, measured at a moderate width."""
    p, q, cosine = pair
    keep = torch.arange(len(problem.x)) != q
    before = compute_min_eigenvalue(Study.at_init(problem, 2048, steps=1).online_kernel.V)
    owner = problem.owner[keep].unique(return_inverse=True)[1]
    present = problem.owner[keep].unique()
    without = Problem(problem.x[keep], problem.y[keep], owner, problem.S[present])
    after = compute_min_eigenvalue(Study.at_init(without, 2048, steps=1).online_kernel.V)
    return (
        f"samples {name(p)} and {name(q)} are parallel (cosine {cosine:+.12f}), which Assumption 4.1 forbids: "
        f"λ_min(V_on) is {before:.3g} with both and {after:.3g} without sample {name(q)}"
    )


def refuse_parallel_samples(settings: Iterable[TheoryConfig]) -> None:
    """Refuse samples of one direction. Opposite ones pass: no gate is open to both, so V is zero between them."""
    for setting in settings:
        problem, data = setting.build_problem(), setting.load_data()
        pairs = [pair for pair in problem.find_parallel_samples() if pair[2] > 0]
        if pairs:
            effect = describe_parallel_effect(problem, pairs[0], data.describe_sample if data else str)
            more = f" (and {len(pairs) - 1} more pairs)" if len(pairs) > 1 else ""
            remedy, options = ("raise dim", ["dim"]) if problem.dim == 1 else ("drop one of them", [])
            raise InputError(f"{effect}{more}; {remedy}, or go on with allow_parallel", [*options, "allow_parallel"])
