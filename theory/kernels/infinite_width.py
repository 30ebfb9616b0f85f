"""The kernels at infinite width: V^inf and G^inf, exact for every covariance.

At the paper's initialisation every factor is homogeneous of degree 0 in v, so the limit is an average over directions,
the same for every α. There are three deterministic methods, depending on the covariances and the dimension:

- S_i = s_i I: arc-cosine kernels;
- d > 2: a two-dimensional integral over Gaussian quadrant probabilities (see ``_integrate_gaussian``);
- d = 2: one-dimensional integrals over arcs; d = 1: V = 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from theory.kernels.closed_form import Kernel
from theory.problem import Problem

MIN_NODES, MAX_NODES = 24, 192


@dataclass(frozen=True)
class InfiniteWidthLimit:
    """The online kernel at infinite width with all of G (as in FedAvg), and its largest absolute error."""

    kernel: Kernel
    error: float
    nodes: int

    def build_online_kernel(self, owner: Tensor) -> Kernel:
        """The kernel with personal γ: G keeps only its client blocks."""
        return Kernel(self.kernel.V, self.kernel.keep_client_blocks(owner).G, self.kernel.alpha)


def compute_infinite_width_limit(problem: Problem, alpha: float, tolerance: float = 1e-8) -> InfiniteWidthLimit:
    """V^inf, G^inf to ``tolerance`` relative to their largest entry; nodes are doubled until two results agree."""
    problem = problem.to(torch.float64, "cpu")
    if problem.isotropic_scales is not None:
        return InfiniteWidthLimit(Kernel(*_integrate_isotropic(problem, problem.isotropic_scales), alpha), 0.0, 0)
    nodes, (V, G) = MIN_NODES, _integrate(problem, MIN_NODES)
    while True:
        nodes, (coarse_V, coarse_G) = 2 * nodes, (V, G)
        V, G = _integrate(problem, nodes)
        error = max((V - coarse_V).abs().max().item(), (G - coarse_G).abs().max().item())
        if error <= tolerance * max(V.abs().max().item(), G.abs().max().item()) or nodes >= MAX_NODES:
            return InfiniteWidthLimit(Kernel(V, G, alpha), error, nodes)


def _integrate(problem: Problem, nodes: int) -> tuple[Tensor, Tensor]:
    V, G = (torch.zeros(len(problem.x), len(problem.x), dtype=torch.float64) for _ in range(2))
    pair = {1: _integrate_line, 2: _integrate_arcs}.get(problem.dim, _integrate_gaussian)
    for i, rows in enumerate(problem.blocks):
        for j, columns in enumerate(problem.blocks[: i + 1]):
            a, b, S, R = problem.x[rows], problem.x[columns], problem.S[i], problem.S[j]
            V[rows, columns], G[rows, columns] = pair(a, b, S, R, nodes)
    return V.tril() + V.tril(-1).T, G.tril() + G.tril(-1).T


def _build_legendre_rule(nodes: int) -> tuple[Tensor, Tensor]:
    """Gauss-Legendre nodes and weights on (0, 1)."""
    u, w = np.polynomial.legendre.leggauss(nodes)
    return torch.from_numpy(u + 1) / 2, torch.from_numpy(w) / 2


def _compute_angles(a: Tensor, b: Tensor) -> Tensor:
    """Angle between each row of a and each of b, accurate near 0 and π, where arccos loses half the digits."""
    a, b = (x / x.norm(dim=-1, keepdim=True) for x in (a, b))
    apart, together = (torch.cdist(a, x, compute_mode="donot_use_mm_for_euclid_dist") for x in (b, -b))
    return 2 * torch.atan2(apart, together)


def _integrate_isotropic(problem: Problem, s: Tensor) -> tuple[Tensor, Tensor]:
    """Directions u: P(both gates) = (π - θ)/2π, E[(u.a)(u.b) 1 1] = |a||b| J/(2π d), J = sin θ + (π - θ) cos θ."""
    x, theta = problem.x, _compute_angles(problem.x, problem.x)
    root, length = s.sqrt()[problem.owner], x.norm(dim=1)
    both = (math.pi - theta) / (2 * math.pi)
    J = theta.sin() + (math.pi - theta) * theta.cos()
    moment = torch.outer(length, length) * J / (2 * math.pi * problem.dim)
    return (x @ x.T * both - moment) / torch.outer(root, root), moment / torch.outer(root, root)


def _integrate_gaussian(a: Tensor, b: Tensor, S: Tensor, R: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    """V^inf, G^inf between the samples a of a client with covariance S and b of one with R, d > 2.

    The sphere average of a function of degree 0 is (d-2) E_{v~N(0,I)}[· / |v|²], which cancels the |v|² of γγ, and
    q^(-1/2) = 2/√π ∫ exp(-q s²) ds, q^(-3/2) = 4/√π ∫ s² exp(-q s²) ds turn each norm into a Gaussian weight:
    v ~ N(0, Σ), Σ = (I + 2s²S + 2t²R)^(-1). What is left are moments over the quadrant a.v, b.v >= 0. By Stein's
    identity they need no inverse, so parallel samples need no special case: with σ_a, σ_b, θ deviations and angle,
      P                  = (π - θ)/2π
      E[(a.v)(b.v)]      = σ_a σ_b J/2π,                         J = sin θ + (π - θ) cos θ
      E[(b.v)(w.v)]      = w'Σb P + w'Σa (σ_b/σ_a) sin θ/2π
      E[(a.v)(b.v) v'Qv] = tr(QΣ) E[(a.v)(b.v)] + 2 a'ΣQΣb P + (a'ΣQΣa σ_b/σ_a + b'ΣQΣb σ_a/σ_b) sin θ/2π.
    """
    d, eye = a.shape[1], torch.eye(a.shape[1], dtype=torch.float64)
    Q = (S @ R + R @ S) / 2
    # Where a and b are nearly parallel an arccos would lose half the digits: there b's part across a gives the angle.
    p, q = (_compute_angles(a, b).sin() < 1e-3).nonzero(as_tuple=True)
    along = a[p]
    across = b[q] - along * ((along * b[q]).sum(1) / along.square().sum(1)).unsqueeze(1)
    u, w = _build_legendre_rule(nodes)
    V, G = (torch.zeros(len(a), len(b), dtype=torch.float64) for _ in range(2))
    # Polar nodes, s and t in units in which the weight det(Σ)^(1/2) falls off at radius ~ 1. On a plain (s, t) grid the
    # far corner is singular for small d; here the integrand is smooth in the angle, and in u with radius = u/(1-u).
    scale_s, scale_t = ((2 * K.trace().item()) ** -0.5 for K in (S, R))
    radius, angle = torch.meshgrid(u / (1 - u), math.pi / 2 * u, indexing="ij")
    grid_s, grid_t = scale_s * radius * angle.cos(), scale_t * radius * angle.sin()
    measure = scale_s * scale_t * radius * torch.outer(w / (1 - u) ** 2, math.pi / 2 * w)
    step = max(1, 2**17 // max(len(a) * len(b), d * d))  # nodes at once
    for s, t, weight in zip(*(g.flatten().split(step) for g in (grid_s, grid_t, measure)), strict=True):
        s2, t2 = s.square().reshape(-1, 1, 1), t.square().reshape(-1, 1, 1)
        precision = eye + 2 * s2 * S + 2 * t2 * R
        sigma = torch.linalg.inv(precision)
        weight = weight * torch.exp(-0.5 * torch.linalg.slogdet(precision).logabsdet)
        quartic = 4 * s2 * t2 * sigma @ Q @ sigma
        from_s, from_t = 2 * s2 * sigma @ S, 2 * t2 * sigma @ R
        var_a, var_b = ((x @ sigma * x).sum(-1) for x in (a, b))
        sides = torch.sqrt(var_a.unsqueeze(-1) * var_b.unsqueeze(-2))
        covariance = a @ sigma @ b.T
        theta = torch.acos((covariance / sides).clamp(-1, 1))
        mixed, alone = ((across @ sigma * x).sum(-1) for x in (along, across))
        area = (var_a[:, p] * alone - mixed.square()).clamp_min(0).sqrt()
        theta[:, p, q] = torch.atan2(area, covariance[:, p, q])
        sine, rest = theta.sin(), math.pi - theta
        J = sine + rest * theta.cos()
        inner = a @ (eye - from_t.mT - from_s + 2 * quartic) @ b.T
        edge_a, edge_b = ((x @ (quartic - part) * x).sum(-1) for x, part in ((a, from_t), (b, from_s)))
        edges = (edge_a / var_a).unsqueeze(-1) + (edge_b / var_b).unsqueeze(-2)
        trace = 4 * s2 * t2 * (Q * sigma).sum((-2, -1), keepdim=True)
        V += torch.einsum("k,kpq->pq", weight, rest * inner + sides * (sine * edges + trace * J))
        G += torch.einsum("k,kpq->pq", weight, sides * J)
    return (d - 2) * 2 / math.pi**2 * V, 2 / math.pi**2 * G


def _integrate_arcs(a: Tensor, b: Tensor, S: Tensor, R: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    """d = 2: both gates are open on one arc of directions, and the integrand is smooth along it."""
    parts = [_integrate_arc_batch(rows, b, S, R, nodes) for rows in a.split(max(1, 2**17 // (len(b) * nodes)))]
    V, G = (torch.cat(part) for part in zip(*parts, strict=True))
    return V, G


def _integrate_arc_batch(a: Tensor, b: Tensor, S: Tensor, R: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    f, w = _build_legendre_rule(nodes)
    angle_a, angle_b = (torch.atan2(x[:, 1], x[:, 0]) for x in (a, b))
    turn = angle_b[None, :] - angle_a[:, None]
    turn = turn - 2 * math.pi * torch.round(turn / (2 * math.pi))  # the shorter way from a to b
    length = math.pi - turn.abs()
    phi = (angle_a[:, None] + turn / 2)[..., None] + length[..., None] * (f - 0.5)
    direction = torch.stack([phi.cos(), phi.sin()], -1)  # (Ma, Mb, nodes, 2)
    Su, Ru = direction @ S, direction @ R
    q, r = (Su * direction).sum(-1), (Ru * direction).sum(-1)
    A, B = ((direction * x).sum(-1) for x in (a[:, None, None], b[None, :, None]))
    Sb, Ra = (Su * b[None, :, None]).sum(-1), (Ru * a[:, None, None]).sum(-1)
    inner = (a @ b.T)[..., None] - Sb * A / q - Ra * B / r + A * B * (Su * Ru).sum(-1) / (q * r)
    arc = length[..., None] * w / (2 * math.pi) / (q * r).sqrt()
    return (arc * inner).sum(-1), (arc * A * B).sum(-1)


def _integrate_line(a: Tensor, b: Tensor, S: Tensor, R: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    """d = 1: normalising leaves only the sign of v, so V = 0; exact for any number of nodes."""
    product = a @ b.T
    return torch.zeros_like(product), product.clamp_min(0) / (2 * (S * R).sqrt())
