"""The infinite-width kernels by quasi-Monte Carlo over the sphere: an independent estimate with error bars."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from theory.errors import InputError
from theory.kernels.closed_form import Kernel, Weights, compute_kernel
from theory.kernels.infinite_width import compute_infinite_width_limit
from theory.problem import Problem


@dataclass(frozen=True)
class ConfidenceInterval:
    """low <= λ <= high with 99 % confidence."""

    low: float
    value: float
    high: float


@dataclass(frozen=True)
class SphereEstimate:
    """Independent scramblings V (R, n, n) and G (R, n, n, with all clients coupled) of the same sphere average."""

    V: Tensor
    G: Tensor
    alpha: float

    @property
    def mean(self) -> Kernel:
        """The estimate."""
        return Kernel(self.V.mean(0), self.G.mean(0), self.alpha)

    @property
    def standard_error(self) -> Kernel:
        """Of each entry of the mean."""
        root = len(self.V) ** 0.5
        return Kernel(self.V.std(0) / root, self.G.std(0) / root, self.alpha)

    def estimate_least_eigenvalue(self, select: Callable[[Kernel], Tensor]) -> ConfidenceInterval:
        """λ_min of a linear function of the kernel, e.g. ``lambda k: k.V``, with a 99 % interval.

        λ_min is concave, so by Jensen its mean over unbiased estimates lies below (groups of four scramblings); a
        Rayleigh quotient lies above (the eigenvector of one half of the scramblings, evaluated on the other half).
        Both ends are moved outwards by the error of their means.
        """
        if len(self.V) < 8:
            raise InputError(f"{len(self.V)} replicates; an interval needs at least 8")
        selected = torch.stack([select(Kernel(V, G, self.alpha)) for V, G in zip(self.V, self.G, strict=True)])
        lowest = torch.stack([torch.linalg.eigvalsh(group.mean(0))[0] for group in selected.split(4)])
        vector = torch.linalg.eigh(selected[::2].mean(0)).eigenvectors[:, 0]
        above = selected[1::2] @ vector @ vector
        value = torch.linalg.eigvalsh(selected.mean(0))[0].item()
        return ConfidenceInterval(
            lowest.mean().item() - _compute_half_width(lowest), value, above.mean().item() + _compute_half_width(above)
        )


def _compute_half_width(sample: Tensor) -> float:
    """How far the mean of a normal sample may lie from its expectation, at 99.5 % one-sided."""
    from scipy.stats import t as student_t  # slow to import, and training imports this file too

    return float(student_t.ppf(0.995, len(sample) - 1)) * sample.std().item() / len(sample) ** 0.5


def estimate_sphere_average(
    problem: Problem, alpha: float, points: int = 1024, replicates: int = 16, seed: int = 0
) -> SphereEstimate:
    """Average over ``points`` Sobol directions (a power of two) and their opposites, scrambled ``replicates`` times.

    The same directions with every S_i = I have a known average (arc-cosine kernels): a control variate. Its
    coefficient is fitted for each pair of clients over all their entries, so that fitting it adds next to no bias.
    """
    problem = problem.to(torch.float64, "cpu")
    plain = replace(problem, S=torch.eye(problem.dim, dtype=torch.float64).expand_as(problem.S))
    known = compute_infinite_width_limit(plain, alpha).kernel
    draws = [_draw_directions(problem.dim, points, np.random.default_rng([seed, r])) for r in range(replicates)]
    raw, control = (
        [compute_kernel(p, _build_unit_weights(p, v, alpha), share_gamma=True) for v in draws] for p in (problem, plain)
    )
    return SphereEstimate(
        _apply_control_variate(torch.stack([k.V for k in raw]), torch.stack([k.V for k in control]), known.V, problem),
        _apply_control_variate(torch.stack([k.G for k in raw]), torch.stack([k.G for k in control]), known.G, problem),
        alpha,
    )


def _apply_control_variate(raw: Tensor, control: Tensor, known: Tensor, problem: Problem) -> Tensor:
    spread = control - control.mean(0)
    for rows in problem.blocks:
        for columns in problem.blocks:
            block = (slice(None), rows, columns)
            spread_here, size = spread[block].square().sum(), control[block].square().sum()
            if spread_here > 1e-20 * size:  # else the control is exact here, and there is nothing to correct
                beta = (spread[block] * raw[block]).sum() / spread_here
                raw[block] -= beta * (control[block] - known[rows, columns])
    return raw


def _draw_directions(dim: int, points: int, rng: np.random.Generator) -> Tensor:
    from scipy.special import ndtri
    from scipy.stats.qmc import Sobol

    uniform = Sobol(dim, scramble=True, rng=rng).random(points)
    v = torch.from_numpy(ndtri(np.clip(uniform, 1e-12, 1 - 1e-12)))
    return torch.cat([v, -v])  # antithetic: the gates of v and -v are complementary


def _build_unit_weights(problem: Problem, v: Tensor, alpha: float) -> Weights:
    gamma = (v.norm(dim=1) / alpha).expand(problem.clients, -1)
    return Weights(v, torch.ones(len(v), dtype=v.dtype), gamma, alpha)
