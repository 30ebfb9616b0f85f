"""Proofs about the kernels of the formula, in real numbers: O2, O3 and O5 for the given data and weights.

``theory.certify`` speaks of matrices as computed. Here V is computed anew in ball arithmetic, as R R' with a row

    R_p = (α c_k γ_k / (|v_k|_S √m)) 1_pk P x_p   for all hidden units k side by side,

so that |V - V̂| is bounded entry by entry: with r_p >= |R_p| and e_p >= the error of R_p (Euclidean norms),
|V_pq - V̂_pq| <= (r_p + e_p)(r_q + e_q) - r_p r_q + γ r_p r_q, and the norm of the difference by that of the bound.
Gates are decided exactly: where the sign of v.x is in doubt, in rational numbers. Both networks are taken as they are
given, float64 numbers that mean what they say; that γ = |v|/α was rounded when it was drawn is part of the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch

from theory.ball_arithmetic import ENLARGE, TINY, Array, Ball, bound_sum_error, multiply_matrices
from theory.certify import Enclosure, Ordering, enclose_least_eigenvalue, enclose_mean, widen
from theory.kernels.closed_form import Projection, Weights
from theory.problem import Problem

CHUNK_ENTRIES, MAX_CHUNK_ENTRIES, MIN_CHUNK_UNITS = 2**17, 2**22, 32
"""Entries of R at a time, n times hidden units times d: short sums round less, but few units at a time take longer."""
FIRST_W, PAPER_W = 0.125, 0.5
"""From λ_min(0) > λ_min(1/8) and concavity it follows that λ_min falls strictly on [1/8, 1]."""


@dataclass(frozen=True)
class EnclosedKernel:
    """V̂, and a bound on |V - V̂| for each entry, V being the formula's value in real numbers."""

    mid: Array
    radius: Array
    exact_gates: int
    """How many gates had to be decided in rational numbers."""

    def bound_norm(self) -> float:
        """A bound on the spectral norm of V - V̂: that of a nonnegative matrix is at most its largest row sum."""
        return float(ENLARGE * (1 + bound_sum_error(len(self.mid))) * self.radius.sum(1).max())

    def keep_client_blocks(self, owner: Array) -> EnclosedKernel:
        """The blocks of clients, which are known just as well."""
        same = owner[:, None] == owner[None, :]
        return EnclosedKernel(self.mid * same, self.radius * same, self.exact_gates)


@dataclass(frozen=True)
class FormulaCertificates:
    """What is proved of the kernels in real numbers."""

    orderings: dict[str, Ordering]
    pinched: bool
    """Whether both networks have the same weights: V_off is then exactly the client blocks of V_on (O1)."""
    rounding: dict[str, float]
    """A bound on the spectral norm of V - V̂, for V_on and V_off."""
    exact_gates: int


def certify_formula(
    problem: Problem, online: Weights, offline: Weights, projection: Projection = "exact"
) -> FormulaCertificates:
    """Prove O2, O3 and O5 for the real-number matrices of these data and weights, as far as float64 suffices."""
    owner = problem.owner.cpu().numpy()
    V_on, pinched = enclose_kernel(problem, online, projection), _have_equal_weights(online, offline)
    V_off = V_on.keep_client_blocks(owner) if pinched else enclose_kernel(problem, offline, projection)
    on, first, half, off = (_enclose_mixture(V_on, V_off, w) for w in (1.0, FIRST_W, PAPER_W, 0.0))
    middle = enclose_mean(on, off)
    orderings = {
        "O2": Ordering(off, on),
        "O3 (mean)": Ordering(half, middle),
        "O3 (strict)": Ordering(middle, on, strict=True),
        "O5 (w = 0 over 1/8)": Ordering(off, first, strict=True),
        "O5 (w = 0 over 1/2)": Ordering(off, half, strict=True),
        "O5 (w = 1/2 over 1)": Ordering(half, on, strict=True),
    }
    rounding = {"V_on": V_on.bound_norm(), "V_off": V_off.bound_norm()}
    exact_gates = V_on.exact_gates if pinched else V_on.exact_gates + V_off.exact_gates
    return FormulaCertificates(orderings, pinched, rounding, exact_gates)


def enclose_kernel(problem: Problem, weights: Weights, projection: Projection = "exact") -> EnclosedKernel:
    """Enclose V of the formula; a personal v leaves only the client blocks."""
    x, S = (tensor.double().cpu().numpy() for tensor in (problem.x, problem.S))
    n, d = x.shape
    chunk = max(1, min(max(CHUNK_ENTRIES // (n * d), MIN_CHUNK_UNITS), MAX_CHUNK_ENTRIES // (n * d)))
    V, square, error_square = np.zeros((n, n)), np.zeros(n), np.zeros(n)
    exact_gates, chunks = 0, 0
    for part in range(0, weights.width, chunk):
        units, chunks = slice(part, part + chunk), chunks + 1
        rows = []
        for i, block in enumerate(problem.blocks):
            v, gamma, c = (one.double().cpu().numpy() for one in weights.get_client_weights(i))
            R, doubtful = _enclose_features(
                x[block], S[i], v[units], gamma[units], c[units], weights.alpha, weights.width, projection
            )
            rows.append(R)
            exact_gates += doubtful
        mid = np.concatenate([one.mid for one in rows])
        rad = np.concatenate([one.rad for one in rows])
        V += mid @ mid.T
        square += np.square(mid).sum(1)
        error_square += np.square(rad).sum(1)
    # Each product passes through the sum within its chunk, the sum over chunks, and the symmetrisation.
    terms = min(chunk, weights.width) * d + chunks + 2
    norm, error = (
        np.sqrt(ENLARGE * (1 + 2 * bound_sum_error(terms)) * one) * ENLARGE + TINY for one in (square, error_square)
    )
    outer = np.multiply.outer
    radius = ENLARGE * (
        outer(norm, error) + outer(error, norm) + outer(error, error) + bound_sum_error(terms) * outer(norm, norm)
    )
    found = EnclosedKernel((V + V.T) / 2, ENLARGE * radius + TINY, exact_gates)
    return found.keep_client_blocks(problem.owner.cpu().numpy()) if weights.is_personal else found


def _enclose_features(
    x: Array, S: Array, v: Array, gamma: Array, c: Array, alpha: float, width: int, projection: Projection
) -> tuple[Ball, int]:
    """The rows of R for one client and some hidden units, (M, units · d), and how many gates were in doubt."""
    data, weights = Ball.exact(x), Ball.exact(v)
    h = multiply_matrices(data, Ball.exact(v.T))  # (M, k)
    Sv = multiply_matrices(weights, Ball.exact(S))
    q = _sum_last(Sv * weights)  # |v|²_S: (k)
    scale = Ball.exact(alpha) * Ball.exact(c) * Ball.exact(gamma) / (q * Ball.exact(float(width))).sqrt()
    if projection == "printed":
        Sv, q = weights, _sum_last(weights * weights)
    along = h / q[None, :]
    gate, doubtful = _decide_gates(h, x, v, gamma)
    projected = data[:, None, :] - Sv[None, :, :] * along[:, :, None]
    rows = projected * scale[None, :, None]
    open_gate = gate[:, :, None]
    shape = (len(x), -1)
    return Ball((rows.mid * open_gate).reshape(shape), (rows.rad * open_gate).reshape(shape)), doubtful


def _sum_last(terms: Ball) -> Ball:
    """The sum over the last dimension."""
    error = bound_sum_error(terms.mid.shape[-1])
    size = (np.abs(terms.mid) + terms.rad).sum(-1)
    rad = ENLARGE * (1 + 2 * error) * (terms.rad.sum(-1) + error * size) + TINY
    return Ball(terms.mid.sum(-1), rad)


def _decide_gates(h: Ball, x: Array, v: Array, gamma: Array) -> tuple[Array, int]:
    """1 where γ v.x > 0, exactly."""
    sign = np.sign(h.mid)
    doubtful = np.argwhere(np.abs(h.mid) <= h.rad)
    for p, k in doubtful:
        exact = sum((Fraction(a) * Fraction(b) for a, b in zip(x[p].tolist(), v[k].tolist(), strict=True)), Fraction(0))
        sign[p, k] = (exact > 0) - (exact < 0)
    return (sign * np.sign(gamma) > 0).astype(np.float64), len(doubtful)


def _have_equal_weights(online: Weights, offline: Weights) -> bool:
    """Whether every client's offline network is the online one."""
    return online.alpha == offline.alpha and all(
        torch.equal(a, b)
        for i in range(len(online.gamma))
        for a, b in zip(online.get_client_weights(i), offline.get_client_weights(i), strict=True)
    )


def _enclose_mixture(on: EnclosedKernel, off: EnclosedKernel, w: float) -> Enclosure:
    """Enclose λ_min(w V_on + (1 - w) V_off) in real numbers; w and 1 - w are exact."""
    mixture = Ball(on.mid, on.radius) * Ball.exact(w) + Ball(off.mid, off.radius) * Ball.exact(1 - w)
    kernel = on if w == 1 else off if w == 0 else EnclosedKernel(mixture.mid, mixture.rad, 0)
    return widen(enclose_least_eigenvalue(kernel.mid), kernel.bound_norm())
