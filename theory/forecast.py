"""Which method will win, before anything is trained: kernel regression with the kernel of each (beyond the paper).

A wide network that is trained to its end predicts what kernel regression with its tangent kernel predicts. So the
clients' data alone say how well each method will generalise, and whom federation will hurt: every sample is predicted
by those of the other folds. SingleSet's kernel knows no other client; FedBN's is V/(N α²) + G, what averaging really
descends (claim D3); Fed-CO2 adds up both models, each trained on its own; "one kernel" is the mean of the two (Eq. 20).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from theory.chance import fold_stream
from theory.errors import InputError
from theory.federated import pinch
from theory.gram import initial_weights, kernel
from theory.problem import Problem

RIDGES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Shares of the kernel's mean diagonal, of which each method takes the one that predicts unseen samples best."""
FOLDS = 4
"""Each is predicted from the others."""
SINGLESET, FEDBN, FEDCO2, ONE_KERNEL = "SingleSet", "FedBN", "Fed-CO2", "Fed-CO2, one kernel"
SURE = 2.0
"""Standard errors beyond which a difference is called one."""

Word = Literal["helps", "hurts", "undecided"]


@dataclass(frozen=True)
class Fit:
    """Kernel regression at its best ridge."""

    ridge: float
    said: Tensor
    """(n, k): what is said of each sample without having seen its fold."""


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
    """For each method the score of each sample, predicted from the other folds."""

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
    return Gain(gaps.mean().item(), gaps.std().item() / len(gaps) ** 0.5)


def forecast(
    problem: Problem, labels: Tensor | None = None, *, width: int = 2048, alpha: float = 0.5, seed: int = 0
) -> Forecast:
    """Of classes if there are labels (n), else of the numbers ``problem.y``; a client needs a sample for each fold."""
    if min(problem.sizes) < FOLDS:
        raise InputError(f"a client has {min(problem.sizes)} samples; give each at least {FOLDS}, one for each fold")
    owner = problem.owner
    single, fedbn, mean = kernels(problem, width, alpha, seed, bias=True)
    fold = folds(owner, torch.zeros_like(owner) if labels is None else labels, seed)
    targets = problem.y.double()[:, None] if labels is None else one_hot(labels)
    by_name = {SINGLESET: single, FEDBN: fedbn, ONE_KERNEL: mean}
    fits = {name: regress(K, targets, fold) for name, K in by_name.items()}
    said = {name: fit.said for name, fit in fits.items()}
    said[FEDCO2] = (said[SINGLESET] + said[FEDBN]) / 2
    order = (SINGLESET, FEDBN, FEDCO2, ONE_KERNEL)
    if labels is None:
        variance = torch.stack([problem.y.double()[rows].var() for rows in problem.blocks])[owner]
        if not variance.all():
            raise InputError("a client's targets are all the same, so there is nothing to foretell of it; leave it out")
        scores = {name: 1 - (said[name] - targets).squeeze(1) ** 2 / variance for name in order}
    else:
        scores = {name: (said[name].argmax(1) == labels).double() for name in order}
    return Forecast(owner, scores, {name: fit.ridge for name, fit in fits.items()})


def kernels(
    problem: Problem, width: int, alpha: float, seed: int = 0, *, bias: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Of SingleSet, of FedBN as rounds really train it, and the mean of the two, in double precision.

    The paper's networks have no output bias; with one, shared wherever v is, clients may differ in the mean of their
    targets, that is in how common a class is. It is given the weight of all the rest of the network.
    """
    found = kernel(problem, initial_weights(problem, width, alpha, seed))
    V, G = found.V.double() / alpha**2, found.G.double()  # G couples no clients: γ is personal
    shared = V + (V + G).diagonal().mean() if bias else V
    single, fedbn = pinch(shared, problem.owner) + G, shared / problem.clients + G
    return single, fedbn, (single + fedbn) / 2


def one_hot(labels: Tensor) -> Tensor:
    """(n, classes), each row adding up to zero, so that a prediction of nothing is one of no class."""
    found = torch.nn.functional.one_hot(labels).double()
    return found - 1 / found.shape[1]


def folds(owner: Tensor, labels: Tensor, seed: int = 0) -> Tensor:
    """Which fold each sample is in (n), drawn so that every class of every client is spread evenly over them.

    Else a class would be rarer among a client's other samples for its being left out, and taken for the less likely.
    """
    order = torch.from_numpy(fold_stream(seed).permutation(len(owner)))
    for key in (labels, owner):
        order = order[torch.argsort(key[order], stable=True)]
    found = torch.empty_like(owner)
    found[order] = torch.arange(len(owner), device=owner.device) % FOLDS
    return found


def regress(K: Tensor, targets: Tensor, fold: Tensor) -> Fit:
    """Kernel ridge regression of each fold (n) on the others; the ridge of those tried that predicts best."""
    level, best = K.diagonal().mean().item(), None
    for ridge in RIDGES:
        said = predictions(K, targets, fold, ridge * level)
        error = (said - targets).square().mean().item()
        if best is None or error < best[0]:
            best = (error, Fit(ridge, said))
    assert best is not None
    return best[1]


def predictions(K: Tensor, targets: Tensor, fold: Tensor, ridge: float) -> Tensor:
    """What the other folds say of each sample."""
    said = torch.zeros_like(targets)
    for one in fold.unique():
        held, rest = fold == one, fold != one
        among = K[rest][:, rest]
        among.diagonal().add_(ridge)
        factor, failed = torch.linalg.cholesky_ex(among)
        if not failed:  # else K is singular but for rounding, and this ridge is too small to be of use
            said[held] = K[held][:, rest] @ torch.cholesky_solve(targets[rest], factor)
    return said
