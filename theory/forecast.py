"""Which method will win, before anything is trained: kernel regression with the kernel of each (beyond the paper).

What a wide network learns, beside the noise of its first output, is what kernel regression with its tangent kernel
learns. So the clients' data alone say how well each method will generalise, and whom federation will hurt: the targets
of every sample are predicted from those of other folds. SingleSet's kernel knows no other client; FedBN's is
V/(N α²) + G, what averaging with equal weights descends (claim D3); Fed-CO2 adds up both models, each trained on its
own; "one kernel" is the mean of the two (Eq. 20). The ridge stands for stopping where it predicts best.
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
"""Shares of the kernel's mean diagonal, of which each method takes the one that predicts best."""
FOLDS = 4
"""Each is predicted from the others."""
SINGLESET, FEDBN, FEDCO2, ONE_KERNEL = "SingleSet", "FedBN", "Fed-CO2", "Fed-CO2, one kernel"
SIGNIFICANCE_THRESHOLD = 2.0
"""Standard errors beyond which a difference is called one."""
MIN_DIFFERING_SAMPLES = 6
"""Samples on which two methods must differ: of fewer even a unanimous verdict may be chance."""
MATRICES_IN_MEMORY = 12
"""Of n x n numbers, in double precision, that are in memory at a time."""

Effect = Literal["helps", "hurts", "undecided"]


@dataclass(frozen=True)
class RidgeFit:
    """Kernel regression at its best ridge."""

    ridge: float
    predicted: Tensor
    """(n, k): what is said of each sample without the targets of its fold."""


@dataclass(frozen=True)
class Gain:
    """The mean of the second method's scores less the first one's, paired sample by sample."""

    mean: float
    standard_error: float
    """Its standard error over samples, as if they were independent; it knows nothing of other networks."""
    differing_samples: int
    """On how many samples the two differ."""

    @property
    def effect(self) -> Effect:
        """Of the second method."""
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
    """Right or not (classes); or one less the squared error in units of the client's variance (numbers)."""
    ridges: dict[str, float]

    def compute_client_scores(self, method: str) -> list[float]:
        """The mean score of each client."""
        return [self.scores[method][rows].mean().item() for rows in self._select_clients()]

    def compute_mean_score(self, method: str) -> float:
        """Over clients, each counted alike."""
        each = self.compute_client_scores(method)
        return sum(each) / len(each)

    def compute_client_gains(self, first: str = SINGLESET, second: str = FEDBN) -> list[Gain]:
        """What the second method is ahead of the first, for each client."""
        gap = self.scores[second] - self.scores[first]
        return [_compute_gain(gap[rows]) for rows in self._select_clients()]

    def compute_mean_gain(self, first: str, second: str) -> Gain:
        """Of the mean over clients."""
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
    """Of classes if there are labels (n), else of the numbers ``problem.y``; ``names`` are the clients', for errors."""
    check_seed(seed)
    _validate_problem(problem, labels, names or [str(i) for i in range(problem.clients)])
    owner = problem.owner
    targets = problem.y.double()[:, None] if labels is None else encode_centered_one_hot(labels)
    fold = assign_folds(owner, torch.zeros_like(owner) if labels is None else labels, seed)
    single, fedbn = compute_method_kernels(rescale_inputs(problem), width, alpha, seed, bias=True)
    whole = [slice(0, len(owner))]
    fits = {SINGLESET: regress(single, targets, fold, problem.blocks), FEDBN: regress(fedbn, targets, fold, whole)}
    fits[ONE_KERNEL] = regress(single.add_(fedbn).div_(2), targets, fold, whole)
    said = {name: fit.predicted for name, fit in fits.items()}
    said[FEDCO2] = (said[SINGLESET] + said[FEDBN]) / 2
    order = (SINGLESET, FEDBN, FEDCO2, ONE_KERNEL)
    if labels is None:
        variance = torch.stack([problem.y.double()[rows].var() for rows in problem.blocks])[owner]
        scores = {name: 1 - (said[name] - targets).squeeze(1) ** 2 / variance for name in order}
    else:
        scores = {name: (said[name].argmax(1) == labels).double() for name in order}
    return Forecast(owner, scores, {name: fit.ridge for name, fit in fits.items()})


def _validate_problem(problem: Problem, labels: Tensor | None, names: Sequence[str]) -> None:
    """What nothing could be said of, before hours are spent on it."""
    if labels is not None and len(labels.unique()) < 2:
        raise InputError("all samples are of one class, so there is nothing to foretell")
    for name, rows in zip(names, problem.blocks, strict=True):
        y = problem.y[rows]
        if len(y) < FOLDS:
            raise InputError(
                f"client {name} has {len(y)} samples; it needs {FOLDS}, one for each fold: give it more or leave it out"
            )
        if labels is None and y.max() == y.min():
            raise InputError(
                f"client {name}: its targets are all the same, so there is nothing to foretell of it; leave it out"
            )


def rescale_inputs(problem: Problem) -> Problem:
    """Every client's inputs in units of their own spread: the kernels are the same, and no power of them overflows."""
    size = problem.S.diagonal(dim1=1, dim2=2).mean(1).sqrt()
    x, S = problem.x / size[problem.owner][:, None], problem.S / size[:, None, None] / size[:, None, None]
    return Problem(x, problem.y, problem.owner, S)


def compute_method_kernels(
    problem: Problem, width: int, alpha: float, seed: int = 0, *, bias: bool = False
) -> tuple[Tensor, Tensor]:
    """Of SingleSet, and of FedBN as rounds with equal weights train it, in double precision.

    The paper's networks have no output bias. With one, shared wherever v is, a lone model can know how common a class
    is on its client, most of what there is to know under label skew. It has the weight of all the rest.
    """
    found = compute_kernel(problem, draw_initial_weights(problem, width, alpha, seed))
    V, G = found.V.double().div_(alpha**2), found.G.double()  # G couples no clients: γ is personal
    if not (V.isfinite().all() and G.isfinite().all()):
        raise InputError("a kernel is not finite: the inputs are too large or too small for their precision")
    if bias:
        V += (V + G).diagonal().mean()
    return keep_client_blocks(V, problem.owner).add_(G), V.div_(problem.clients).add_(G)


def encode_centered_one_hot(labels: Tensor) -> Tensor:
    """(n, classes), each row adding up to zero, so that a prediction of nothing is one of no class."""
    found = torch.nn.functional.one_hot(labels).double()
    return found - 1 / found.shape[1]


def assign_folds(owner: Tensor, labels: Tensor, seed: int = 0) -> Tensor:
    """Which fold each sample is in (n), drawn so that every class of every client is spread evenly over them.

    Else a class would be rarer among a client's other samples for its being left out, and taken for the less likely.
    """
    order = torch.from_numpy(make_fold_rng(seed).permutation(len(owner))).to(owner.device)
    for key in (labels, owner):
        order = order[torch.argsort(key[order], stable=True)]
    found = torch.empty_like(owner)
    found[order] = torch.arange(len(owner), device=owner.device) % FOLDS
    return found


def regress(K: Tensor, targets: Tensor, fold: Tensor, parts: Sequence[slice]) -> RidgeFit:
    """Kernel ridge regression of each fold (n) on the others, within each part; the ridge tried that predicts best.

    The ridge is chosen by the samples that are then scored: one number for all of them, and alike for all methods.
    """
    level, best = K.diagonal().mean().item(), None
    for ridge in RIDGES:
        each = [predict_held_out(K[rows, rows], targets[rows], fold[rows], ridge * level) for rows in parts]
        whole = [one for one in each if one is not None]
        if len(whole) < len(each):  # K is singular but for rounding, and this ridge is too small to be of use
            continue
        said = torch.cat(whole)
        error = (said - targets).square().mean().item()
        if best is None or error < best[0]:
            best = (error, RidgeFit(ridge, said))
    if best is None:
        raise InputError("no ridge makes a kernel definite: the samples are too much alike")
    return best[1]


def predict_held_out(K: Tensor, targets: Tensor, fold: Tensor, ridge: float) -> Tensor | None:
    """What the other folds say of each sample; None if K with this ridge is not positive definite."""
    said = torch.zeros_like(targets)
    for one in fold.unique():
        held, rest = fold == one, fold != one
        among = K[rest][:, rest]
        among.diagonal().add_(ridge)
        factor, failed = torch.linalg.cholesky_ex(among)
        if failed:
            return None
        said[held] = K[held][:, rest] @ torch.cholesky_solve(targets[rest], factor)
    return said
