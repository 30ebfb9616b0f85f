"""A federation's training images as the theory sees data, small enough for kernels of all of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from fedtrain.data.client_data import Federation, Samples
from theory.forecast import FOLDS
from theory.problem import Problem
from theory.rng import make_data_rng
from theory.user_data import DEFAULT_RIDGE, compute_covariance

IMAGE_SIDES = (28, 16, 8)
"""Pixels a side, the first that the covariances have room for."""
MAX_COVARIANCE_NUMBERS = 2**28
"""Numbers in all clients' covariances."""
MAX_TOTAL_SAMPLES = 4000
"""Samples of all clients together: kernel regression takes the cube of it."""


@dataclass(frozen=True)
class KernelProblem:
    """What is left of the images."""

    problem: Problem
    labels: Tensor
    side: int
    """Pixels a side, 0 if inputs are no images."""


def count_used_samples(federation: Federation, samples: int | None) -> list[int]:
    """How many training images of each client are looked at: so many, or as many as are quick."""
    most = samples or max(FOLDS, MAX_TOTAL_SAMPLES // len(federation.clients))
    return [min(most, len(client.train)) for client in federation.clients]


def build_kernel_problem(federation: Federation, samples: int | None = None, seed: int = 0) -> KernelProblem:
    """Training images of each client, drawn at random, made small, less their client's mean."""
    clients, counts = federation.clients, count_used_samples(federation, samples)
    side = choose_side(clients[0].train.inputs, len(clients))
    x, labels = [], []
    for number, (client, count) in enumerate(zip(clients, counts, strict=True)):
        chosen = torch.from_numpy(make_data_rng(seed, number).permutation(len(client.train))[:count]).sort().values
        flat = downsample_images(client.train, chosen, side) if side else client.train.inputs[chosen].float().flatten(1)
        x.append(flat - flat.mean(0))
        labels.append(client.train.labels[chosen])
    owner = torch.repeat_interleave(torch.arange(len(clients)), torch.tensor(counts))
    S = torch.stack(
        [compute_covariance(one, DEFAULT_RIDGE, client.name) for one, client in zip(x, clients, strict=True)]
    )
    whole = torch.cat(x)
    return KernelProblem(Problem(whole, torch.zeros(len(whole)), owner, S), torch.cat(labels), side)


def choose_side(inputs: Tensor, clients: int) -> int:
    """Pixels a side of what is left of images; 0 for inputs that are no images, which are taken whole."""
    if inputs.ndim != 4 or inputs.dtype != torch.uint8:
        return 0
    channels, height = inputs.shape[1], min(inputs.shape[2:])
    fits = [s for s in IMAGE_SIDES if clients * (channels * min(s, height) ** 2) ** 2 <= MAX_COVARIANCE_NUMBERS]
    return min((fits or IMAGE_SIDES[-1:])[0], height)


def downsample_images(data: Samples, chosen: Tensor, side: int) -> Tensor:
    """Images as rows of numbers from 0 to 1, averaged down to so many pixels a side."""
    images = data.inputs[chosen].float() / 255
    return adaptive_avg_pool2d(images, side).flatten(1)
