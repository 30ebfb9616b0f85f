"""How much sharing predicts best: the leave-one-out error of kernel regression with w K_on + (1 - w) K_off.

λ_min says how fast training data are fitted, and by it no sharing is best (claim O5). What is learned from others shows
in the error on samples that were left out. With A(w) = w K_on + (1 - w) K_off + ridge·I and B = K_on - K_off, one
generalised eigenproblem, B W = (K_off + ridge·I) W diag(b) with W'(K_off + ridge·I)W = I, diagonalises A(w) for all w:

    A(w)^(-1) = W diag(1 / (1 + w b)) W',   error of p if it is left out: [A^(-1) y]_p / [A^(-1)]_pp.

So the errors are rational functions of w in closed form, and so are their derivatives. The least mean square on [0, 1]
is at an end or where its derivative vanishes: every change of sign on a fine grid is refined by bisection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from theory.errors import InputError
from theory.kernels.mixture import validate_kernels

RIDGES = (1e-6, 1e-4, 1e-2, 1e-1, 1.0)
"""Candidates, as shares of the mean diagonal of K_off; the one that predicts best over all samples is taken."""
NOISE_RIDGE = 0.1
"""The noise of expected targets, as a share of the mean diagonal of K_off."""
GRID_STEPS = 96
"""Cells of [0, 1] in which a change of sign of the derivative is looked for; finer towards both ends."""
BISECTIONS = 50
CURVE_POINTS = 33
PAPER_W = 0.5
"""The paper fuses both models in equal parts."""

ErrorFunction = Callable[[Tensor], tuple[Tensor, Tensor]]
"""From w (k) to the squared error of each sample and its derivative by w, (n, k) each."""


@dataclass(frozen=True)
class ClientSharing:
    """The mean square error of one client's samples, each left out once, and the w that makes it least.

    Errors are relative to the mean square of the targets: 1 is what predicting 0 gives.
    """

    best_w: float
    best: float
    singleset: float
    """At w = 0."""
    fedco2: float
    """At w = 1/2, the paper's."""
    fedbn: float
    """At w = 1."""
    slope_at_zero: float
    """The derivative at w = 0: negative if a little sharing helps."""


@dataclass(frozen=True)
class SharingChoice:
    """The best w of each client, and that of all samples together."""

    ridge: float
    """As a share of the mean diagonal of K_off."""
    clients: list[ClientSharing]
    together: ClientSharing
    w: list[float] = field(repr=False)
    errors: list[list[float]] = field(repr=False)
    """The error of each client at each w, for figures."""


class LeaveOneOut:
    """The mixture w K_on + (1 - w) K_off + ridge·I, factored for all w at once."""

    def __init__(self, online: Tensor, owner: Tensor, offline: Tensor | None = None, *, ridge: float = 0.0) -> None:
        """``owner`` names the client of each row; without ``offline`` it is the client blocks of ``online``."""
        offline = validate_kernels(online, owner, offline).double()
        self.owner = owner
        self.base = offline + ridge * torch.eye(len(owner), dtype=torch.float64, device=offline.device)
        self.difference = online.double() - offline
        factor, failed = torch.linalg.cholesky_ex(self.base)
        if failed:
            raise InputError("the offline kernel is not positive definite; give a larger ridge", ["ridge"])
        half = torch.linalg.solve_triangular(factor, self.difference, upper=False)
        inner = torch.linalg.solve_triangular(factor, half.T, upper=False)
        self.b, U = torch.linalg.eigh((inner + inner.T) / 2)
        if not self.b[0] > -1:
            raise InputError("the online kernel is not positive definite; give a larger ridge", ["ridge"])
        self.W = torch.linalg.solve_triangular(factor.T, U, upper=True)
        self.squares = self.W.square()

    def measure_errors(self, targets: Tensor) -> ErrorFunction:
        """The squared errors for targets (n) or (n, k), summed over the k."""
        z = self.W.T @ (targets[:, None] if targets.dim() == 1 else targets).to(self.W)

        def compute(w: Tensor) -> tuple[Tensor, Tensor]:
            shrink = 1 / (1 + self.b[:, None] * w)
            slide = -self.b[:, None] * shrink.square()  # its derivative
            below, below_slope = self.squares @ shrink, self.squares @ slide
            value, slope = torch.zeros_like(below), torch.zeros_like(below)
            for column in z.T.unsqueeze(-1):
                error = (self.W @ (column * shrink)) / below
                value += error.square()
                slope += 2 * error * (self.W @ (column * slide) - error * below_slope) / below
            return value, slope

        return compute

    def expect_errors(self, agreement: float) -> ErrorFunction:
        """The expected squared errors for random targets of covariance A(``agreement``), the ridge being their noise.

        W'A(τ)W = diag(1 + τ b), so these too are in closed form. Regression with A(τ) itself is then the best linear
        predictor of every sample: the least error is at w = τ, for every client.
        """
        part = (1 + agreement * self.b)[:, None]

        def compute(w: Tensor) -> tuple[Tensor, Tensor]:
            shrink = 1 / (1 + self.b[:, None] * w)
            slide = -self.b[:, None] * shrink.square()
            below, below_slope = self.squares @ shrink, self.squares @ slide
            above, above_slope = self.squares @ (part * shrink.square()), self.squares @ (2 * part * shrink * slide)
            value = above / below.square()
            return value, above_slope / below.square() - 2 * value * below_slope / below

        return compute

    def get_target_variances(self, agreement: float) -> Tensor:
        """The expected square of each target."""
        return (self.base + agreement * self.difference).diagonal()

    def minimise(self, compute: ErrorFunction, power: Tensor, ridge: float) -> SharingChoice:
        """The best w of each client and of all; ``power`` is the square of each sample's target."""
        owner = self.owner
        groups = torch.stack([*(owner == i for i in owner.unique()), torch.ones_like(owner, dtype=torch.bool)]).double()
        share = groups / (groups @ power.double())[:, None].clamp_min(torch.finfo(torch.float64).tiny)
        # Chebyshev points: towards the ends errors may change fast, as K_on or K_off may be nearly singular.
        angle = torch.linspace(0, torch.pi, GRID_STEPS + 1, dtype=torch.float64, device=owner.device)
        w = (1 - angle.cos()) / 2
        w[0], w[-1] = 0, 1
        slope = share @ compute(w)[1]
        found = [_minimise_group(compute, one, w, slope[k]) for k, one in enumerate(share)]
        shown = torch.linspace(0, 1, CURVE_POINTS, dtype=torch.float64, device=owner.device)
        curves = share[:-1] @ compute(shown)[0]
        return SharingChoice(ridge, found[:-1], found[-1], shown.tolist(), curves.tolist())


def choose_sharing(
    online: Tensor,
    owner: Tensor,
    targets: Tensor,
    offline: Tensor | None = None,
    *,
    ridges: Sequence[float] = RIDGES,
) -> SharingChoice | None:
    """The w that predicts left-out targets best, for each client; None where no ridge makes the kernels definite.

    Of the ``ridges``, shares of the mean diagonal of K_off, the one with the least error of all samples at its best w
    is taken. Kernels of any networks will do, as in `theory.kernels.mixture.trace_mixture`.
    """
    level = _compute_level(online, offline)
    power = targets.double().square().reshape(len(targets), -1).sum(1)
    best: SharingChoice | None = None
    for ridge in ridges if level > 0 and power.any() else ():
        try:
            mixture = LeaveOneOut(online, owner, offline, ridge=ridge * level)
        except InputError:  # a ridge too small for this kernel
            continue
        found = mixture.minimise(mixture.measure_errors(targets), power, ridge)
        if best is None or found.together.best < best.together.best:
            best = found
    return best


def expect_sharing(
    online: Tensor, owner: Tensor, agreement: float, offline: Tensor | None = None, *, ridge: float = NOISE_RIDGE
) -> SharingChoice | None:
    """The same in expectation, for clients whose targets have as much in common as ``agreement`` in [0, 1] says.

    They are drawn from a Gaussian process with the kernel of that mixture, with noise of variance ``ridge``, a share of
    the mean diagonal of K_off. None where that leaves the kernels indefinite.
    """
    if not 0 <= agreement <= 1:
        raise InputError(f"agreement is {agreement}; it must be in [0, 1]")
    try:
        mixture = LeaveOneOut(online, owner, offline, ridge=ridge * _compute_level(online, offline))
    except InputError:
        return None
    return mixture.minimise(mixture.expect_errors(agreement), mixture.get_target_variances(agreement), ridge)


def _compute_level(online: Tensor, offline: Tensor | None) -> float:
    return (online if offline is None else offline).diagonal().double().mean().item()


def _minimise_group(compute: ErrorFunction, share: Tensor, w: Tensor, slope: Tensor) -> ClientSharing:
    """The least of the ends and of all points where the derivative turns from negative to positive."""
    turns = ((slope[:-1] < 0) & (slope[1:] >= 0)).nonzero().flatten()
    low, high = w[turns], w[turns + 1]
    for _ in range(BISECTIONS if len(turns) else 0):
        middle = (low + high) / 2
        falling = share @ compute(middle)[1] < 0
        low, high = torch.where(falling, middle, low), torch.where(falling, high, middle)
    candidates = torch.cat([w.new_tensor([0.0, PAPER_W, 1.0]), (low + high) / 2])
    at = share @ compute(candidates)[0]
    k = int(at.argmin())
    singleset, fedco2, fedbn = at[:3].tolist()
    return ClientSharing(candidates[k].item(), at[k].item(), singleset, fedco2, fedbn, slope[0].item())
