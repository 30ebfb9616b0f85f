"""Predict which method will win before anything is trained, by kernel regression with each method's kernel.

This goes beyond the paper. Apart from the noise of its initial output, a wide network learns what kernel regression
with its tangent kernel learns. So the clients' data alone suggest how well each method will generalise, and which
clients federation will hurt: the target of each sample is predicted from the samples in the other folds. SingleSet's
kernel couples no clients; FedBN's is V/(N α²) + G, the kernel of averaging with equal weights (claim D3); Fed-CO2 adds
the predictions of both models, each trained on its own; "one kernel" is the mean of the two kernels (Eq. 20). The ridge
plays the role of early stopping: each method uses the one that predicts best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from theory.errors import InputError
from theory.kernels.closed_form import compute_kernel, draw_initial_weights
from theory.kernels.federated import keep_client_blocks
from theory.problem import Problem
from theory.rng import check_seed, make_fold_rng

RIDGES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Candidates, as shares of the kernel's mean diagonal; each method uses the one that predicts best."""
FOLDS = 4
"""Number of folds; each is predicted from the others."""
SINGLESET, FEDBN, FEDCO2, ONE_KERNEL = "SingleSet", "FedBN", "Fed-CO2", "Fed-CO2, one kernel"
SIGNIFICANCE_THRESHOLD = 2.0
"""A difference counts if it exceeds this many standard errors."""
MIN_DIFFERING_SAMPLES = 6
"""Samples on which two methods must differ: with fewer, even a unanimous result may be chance."""
MATRICES_IN_MEMORY = 12
"""How many n x n matrices of float64 are in memory at the same time."""

Effect = Literal["helps", "hurts", "undecided"]


@dataclass(frozen=True)
class RidgeFit:
    """Kernel regression at its best ridge."""

    ridge: float
    predicted: Tensor
    """(n, k): the prediction for each sample from the other folds."""


@dataclass(frozen=True)
class Gain:
    """The mean of the second method's scores minus the first's, paired by sample."""

    mean: float
    standard_error: float
    """The standard error over samples, taken as independent; it does not cover other random networks."""
    differing_samples: int
    """The number of samples on which the two methods differ."""

    @property
    def effect(self) -> Effect:
        """Whether the second method helps or hurts compared with the first."""
        if (
            self.differing_samples < MIN_DIFFERING_SAMPLES
            or abs(self.mean) <= SIGNIFICANCE_THRESHOLD * self.standard_error
        ):
            return "undecided"
        return "helps" if self.mean > 0 else "hurts"


@dataclass(frozen=True)
class Forecast:
    """For each method the score of each sample, predicted from the other folds."""

    owner: Tensor
    scores: dict[str, Tensor]
    """Classes: 1 if correct, else 0. Numbers: 1 minus the squared error over the client's variance."""
    ridges: dict[str, float]

    def compute_client_scores(self, method: str) -> list[float]:
        """The mean score of each client."""
        return [self.scores[method][rows].mean().item() for rows in self._select_clients()]

    def compute_mean_score(self, method: str) -> float:
        """The mean over clients, all weighted equally."""
        each = self.compute_client_scores(method)
        return sum(each) / len(each)

    def compute_client_gains(self, first: str = SINGLESET, second: str = FEDBN) -> list[Gain]:
        """The gain of the second method over the first, for each client."""
        gap = self.scores[second] - self.scores[first]
        return [_compute_gain(gap[rows]) for rows in self._select_clients()]

    def compute_mean_gain(self, first: str, second: str) -> Gain:
        """The gain in the mean over clients, all weighted equally."""
        each = self.compute_client_gains(first, second)
        mean, error = (
            sum(values) / len(each) for values in ([g.mean for g in each], [g.standard_error**2 for g in each])
        )
        return Gain(mean, (error / len(each)) ** 0.5, sum(one.differing_samples for one in each))

    def _select_clients(self) -> list[Tensor]:
        return [self.owner == i for i in range(int(self.owner.max()) + 1)]


def _compute_gain(gaps: Tensor) -> Gain:
    return Gain(gaps.mean().item(), gaps.std().item() / len(gaps) ** 0.5, int(gaps.count_nonzero()))


def forecast_methods(
    problem: Problem,
    labels: Tensor | None = None,
    *,
    width: int = 2048,
    alpha: float = 0.5,
    seed: int = 0,
    names: Sequence[str] | None = None,
) -> Forecast:
    """Forecast classes if ``labels`` (n) are given, else the numbers ``problem.y``; ``names`` are for errors."""
    check_seed(seed)
    _validate_problem(problem, labels, names or [str(i) for i in range(problem.clients)])
    owner = problem.owner
    targets = problem.y.double()[:, None] if labels is None else encode_centered_one_hot(labels)
    fold = assign_folds(owner, torch.zeros_like(owner) if labels is None else labels, seed)
    single, fedbn = compute_method_kernels(rescale_inputs(problem), width, alpha, seed, bias=True)
    whole = [slice(0, len(owner))]
    fits = {SINGLESET: regress(single, targets, fold, problem.blocks), FEDBN: regress(fedbn, targets, fold, whole)}
    fits[ONE_KERNEL] = regress(single.add_(fedbn).div_(2), targets, fold, whole)
    predicted = {name: fit.predicted for name, fit in fits.items()}
    predicted[FEDCO2] = (predicted[SINGLESET] + predicted[FEDBN]) / 2
    order = (SINGLESET, FEDBN, FEDCO2, ONE_KERNEL)
    if labels is None:
        variance = torch.stack([problem.y.double()[rows].var() for rows in problem.blocks])[owner]
        scores = {name: 1 - (predicted[name] - targets).squeeze(1) ** 2 / variance for name in order}
    else:
        scores = {name: score_classes(predicted[name], labels) for name in order}
    return Forecast(owner, scores, {name: fit.ridge for name, fit in fits.items()})


def score_classes(predicted: Tensor, labels: Tensor) -> Tensor:
    """1 for each sample whose class has the largest prediction, else 0."""
    return (predicted.argmax(1) == labels).double()


def validate_classes(labels: Tensor | None, sizes: Sequence[int], names: Sequence[str]) -> None:
    """Refuse samples that allow no forecast, before hours are spent on them."""
    if labels is not None and len(labels.unique()) < 2:
        raise InputError("all samples are of one class, so there is nothing to forecast")
    for name, size in zip(names, sizes, strict=True):
        if size < FOLDS:
            raise InputError(
                f"client {name} has {size} samples; it needs {FOLDS}, one for each fold: give it more or leave it out"
            )


def _validate_problem(problem: Problem, labels: Tensor | None, names: Sequence[str]) -> None:
    validate_classes(labels, problem.sizes, names)
    for name, rows in zip(names, problem.blocks, strict=True):
        y = problem.y[rows]
        if labels is None and y.max() == y.min():
            raise InputError(
                f"client {name}: its targets are all the same, so there is nothing to forecast for it; leave it out"
            )


def rescale_inputs(problem: Problem) -> Problem:
    """Scale each client's inputs to unit variance: the kernels stay the same, and no power of the inputs overflows."""
    size = problem.S.diagonal(dim1=1, dim2=2).mean(1).sqrt()
    x, S = problem.x / size[problem.owner][:, None], problem.S / size[:, None, None] / size[:, None, None]
    return Problem(x, problem.y, problem.owner, S)


def compute_method_kernels(
    problem: Problem, width: int, alpha: float, seed: int = 0, *, bias: bool = False
) -> tuple[Tensor, Tensor]:
    """The kernels of SingleSet, and of FedBN trained in rounds with equal weights, in double precision.

    The paper's networks have no output bias. With ``bias`` (shared wherever v is) a local model can learn how common
    each class is on its client, which is most of what there is to learn under label skew. The bias gets the same weight
    as all other parameters together.
    """
    found = compute_kernel(problem, draw_initial_weights(problem, width, alpha, seed))
    V, G = found.V.double().div_(alpha**2), found.G.double()  # G couples no clients: γ is personal
    if not (V.isfinite().all() and G.isfinite().all()):
        raise InputError("a kernel is not finite: the inputs are too large or too small for their precision")
    if bias:
        V += (V + G).diagonal().mean()
    return keep_client_blocks(V, problem.owner).add_(G), V.div_(problem.clients).add_(G)


def encode_centered_one_hot(labels: Tensor) -> Tensor:
    """(n, classes) with rows that sum to zero, so that a prediction of 0 favours no class."""
    found = torch.nn.functional.one_hot(labels).double()
    return found - 1 / found.shape[1]


def assign_folds(owner: Tensor, labels: Tensor, seed: int = 0) -> Tensor:
    """The fold of each sample (n), drawn so that every class of every client is spread evenly over the folds.

    Otherwise leaving out a fold would make its classes rarer among the client's other samples, and seem less likely.
    """
    order = torch.from_numpy(make_fold_rng(seed).permutation(len(owner))).to(owner.device)
    for key in (labels, owner):
        order = order[torch.argsort(key[order], stable=True)]
    found = torch.empty_like(owner)
    found[order] = torch.arange(len(owner), device=owner.device) % FOLDS
    return found


def regress(K: Tensor, targets: Tensor, fold: Tensor, parts: Sequence[slice]) -> RidgeFit:
    """Kernel ridge regression of each fold on the others, within each part, with the ridge that predicts best.

    The ridge is chosen on the samples that are then scored, but it is a single number, and chosen so for every method.
    """
    level, best = K.diagonal().mean().item(), None
    for ridge in RIDGES:
        each = [predict_held_out(K[rows, rows], targets[rows], fold[rows], ridge * level) for rows in parts]
        whole = [one for one in each if one is not None]
        if len(whole) < len(each):  # K is numerically singular, and this ridge is too small
            continue
        predicted = torch.cat(whole)
        error = (predicted - targets).square().mean().item()
        if best is None or error < best[0]:
            best = (error, RidgeFit(ridge, predicted))
    if best is None:
        raise InputError("no ridge makes a kernel definite: the samples are too much alike")
    return best[1]


def predict_held_out(K: Tensor, targets: Tensor, fold: Tensor, ridge: float) -> Tensor | None:
    """Predict each sample from the other folds; None if K with this ridge is not positive definite."""
    predicted = torch.zeros_like(targets)
    for one in fold.unique():
        held, rest = fold == one, fold != one
        among = K[rest][:, rest]
        among.diagonal().add_(ridge)
        factor, failed = torch.linalg.cholesky_ex(among)
        if failed:
            return None
        predicted[held] = K[held][:, rest] @ torch.cholesky_solve(targets[rest], factor)
    return predicted
