"""Which method will win, before anything is trained: kernel regression with the kernel of each (beyond the paper).

A wide network that is trained to its end predicts what kernel regression with its tangent kernel predicts. So the
clients' data alone say how well each method will generalise, and whom federation will hurt: every sample is predicted
from all others. SingleSet's kernel knows no other client; FedBN's is V/(N α²) + G, what averaging really descends
(claim D3); Fed-CO2 adds up both models, each trained on its own; "one kernel" is the mean of the two, as in Eq. 20.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from theory.errors import InputError
from theory.federated import pinch
from theory.gram import initial_weights, kernel
from theory.problem import Problem

RIDGES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Shares of the kernel's mean diagonal, of which each method takes the one that predicts left-out samples best."""
SINGLESET, FEDBN, FEDCO2, ONE_KERNEL = "SingleSet", "FedBN", "Fed-CO2", "Fed-CO2, one kernel"
SURE = 2.0
"""Standard errors beyond which a difference is called one."""

Word = Literal["helps", "hurts", "undecided"]


@dataclass(frozen=True)
class Fit:
    """Kernel regression at its best ridge."""

    ridge: float
    left_out: Tensor
    """(n, k): what all other samples say of each."""


@dataclass(frozen=True)
class Gain:
    """The mean of the second method's scores less the first one's, paired sample by sample."""

    mean: float
    error: float
    """Its standard error over samples; it knows nothing of other networks."""

    @property
    def word(self) -> Word:
        """Of the second method."""
        if abs(self.mean) <= SURE * self.error:
            return "undecided"
        return "helps" if self.mean > 0 else "hurts"


@dataclass(frozen=True)
class Forecast:
    """For each method the score of each sample, predicted from all others."""

    owner: Tensor
    scores: dict[str, Tensor]
    """Right or not (classes); or one less the squared error in units of the client's variance (numbers)."""
    ridges: dict[str, float]

    def of(self, method: str) -> list[float]:
        """The mean score of each client."""
        return [self.scores[method][rows].mean().item() for rows in self._clients()]

    def mean(self, method: str) -> float:
        """Over clients, each counted alike."""
        each = self.of(method)
        return sum(each) / len(each)

    def gains(self, first: str = SINGLESET, second: str = FEDBN) -> list[Gain]:
        """What the second method is ahead of the first, for each client."""
        gap = self.scores[second] - self.scores[first]
        return [_gain(gap[rows]) for rows in self._clients()]

    def gain(self, first: str, second: str) -> Gain:
        """Of the mean over clients."""
        each = self.gains(first, second)
        return Gain(sum(one.mean for one in each) / len(each), sum(one.error**2 for one in each) ** 0.5 / len(each))

    def _clients(self) -> list[Tensor]:
        return [self.owner == i for i in range(int(self.owner.max()) + 1)]


def _gain(gaps: Tensor) -> Gain:
    spread = gaps.std().item() if len(gaps) > 1 else float("inf")
    return Gain(gaps.mean().item(), spread / len(gaps) ** 0.5)


def forecast(
    problem: Problem, labels: Tensor | None = None, *, width: int = 2048, alpha: float = 0.5, seed: int = 0
) -> Forecast:
    """Of classes if there are labels (n), else of the numbers ``problem.y``; every client needs two samples."""
    if min(problem.sizes) < 2:
        raise InputError("a client has one sample, which nothing of its own can predict; give each at least two")
    owner = problem.owner
    single, fedbn, mean = kernels(problem, width, alpha, seed)
    targets = problem.y.double()[:, None] if labels is None else one_hot(labels)
    centre = torch.stack([targets[rows].mean(0) for rows in problem.blocks])[owner] if labels is None else 0.0
    whole = [slice(0, len(owner))]
    fits = {
        SINGLESET: regress(single, targets - centre, problem.blocks),
        FEDBN: regress(fedbn, targets - centre, whole),
        ONE_KERNEL: regress(mean, targets - centre, whole),
    }
    said = {name: fit.left_out for name, fit in fits.items()}
    said[FEDCO2] = (said[SINGLESET] + said[FEDBN]) / 2
    order = (SINGLESET, FEDBN, FEDCO2, ONE_KERNEL)
    if labels is None:
        variance = torch.stack([problem.y.double()[rows].var() for rows in problem.blocks])[owner]
        scores = {name: 1 - (said[name] - targets + centre).squeeze(1) ** 2 / variance for name in order}
    else:
        scores = {name: (said[name].argmax(1) == labels).double() for name in order}
    return Forecast(owner, scores, {name: fit.ridge for name, fit in fits.items()})


def kernels(problem: Problem, width: int, alpha: float, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Of SingleSet, of FedBN as rounds really train it, and the mean of the two, in double precision."""
    found = kernel(problem, initial_weights(problem, width, alpha, seed))
    V, G = found.V.double() / alpha**2, found.G.double()  # G couples no clients: γ is personal
    single, fedbn = pinch(V, problem.owner) + G, V / problem.clients + G
    return single, fedbn, (single + fedbn) / 2


def one_hot(labels: Tensor) -> Tensor:
    """(n, classes), each row adding up to zero, so that a prediction of nothing is one of no class."""
    found = torch.nn.functional.one_hot(labels).double()
    return found - 1 / found.shape[1]


def regress(K: Tensor, targets: Tensor, parts: list[slice]) -> Fit:
    """Predict each sample from all others by K, which couples nothing across ``parts``; the best ridge of those tried.

    Nobody is fitted anew: with A = (K + r)⁻¹ the prediction of sample p without p is y_p - (A y)_p / A_pp.
    """
    level, best = K.diagonal().mean().item(), None
    for ridge in RIDGES:
        said = torch.cat([left_out(K[rows, rows], targets[rows], ridge * level) for rows in parts])
        error = (said - targets).square().mean().item()
        if best is None or error < best[0]:
            best = (error, Fit(ridge, said))
    assert best is not None
    return best[1]


def left_out(K: Tensor, targets: Tensor, ridge: float) -> Tensor:
    """What kernel ridge regression on all other samples says of each."""
    factor, failed = torch.linalg.cholesky_ex(K + ridge * torch.eye(len(K), dtype=K.dtype, device=K.device))
    if failed:  # not positive definite but for rounding: this ridge is too small to be of use
        return torch.zeros_like(targets)
    A = torch.cholesky_inverse(factor)
    return targets - (A @ targets) / A.diagonal()[:, None]
