"""A federation's training images as the theory sees data, small enough for kernels of all of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from fedtrain.data.clients import Federation, Samples
from theory.chance import data_stream
from theory.forecast import FOLDS
from theory.problem import Problem
from theory.userdata import RIDGE, covariance

SIDES = (28, 16, 8)
"""Pixels a side, the first that the covariances have room for."""
ROOM = 2**28
"""Numbers in all clients' covariances."""
MOST = 4000
"""Samples of all clients together: kernel regression takes the cube of it."""


@dataclass(frozen=True)
class Seen:
    """What is left of the images."""

    problem: Problem
    labels: Tensor
    side: int


def sizes(federation: Federation, samples: int | None) -> list[int]:
    """How many training images of each client are looked at: so many, or as many as are quick."""
    most = samples or max(FOLDS, MOST // len(federation.clients))
    return [min(most, len(client.train)) for client in federation.clients]


def seen(federation: Federation, samples: int | None = None, seed: int = 0) -> Seen:
    """Training images of each client, drawn at random, made small, less their client's mean."""
    clients, counts = federation.clients, sizes(federation, samples)
    channels, height = clients[0].train.inputs.shape[1:3]
    fits = [side for side in SIDES if len(clients) * (channels * min(side, height) ** 2) ** 2 <= ROOM]
    side = min((fits or SIDES[-1:])[0], height)
    x, labels = [], []
    for number, (client, count) in enumerate(zip(clients, counts, strict=True)):
        chosen = torch.from_numpy(data_stream(seed, number).permutation(len(client.train))[:count]).sort().values
        flat = small(client.train, chosen, side)
        x.append(flat - flat.mean(0))
        labels.append(client.train.labels[chosen])
    owner = torch.repeat_interleave(torch.arange(len(clients)), torch.tensor(counts))
    S = torch.stack([covariance(one, RIDGE, client.name) for one, client in zip(x, clients, strict=True)])
    whole = torch.cat(x)
    return Seen(Problem(whole, torch.zeros(len(whole)), owner, S), torch.cat(labels), side)


def small(data: Samples, chosen: Tensor, side: int) -> Tensor:
    """Images as rows of numbers from 0 to 1, averaged down to so many pixels a side."""
    images = data.inputs[chosen].float() / 255
    return adaptive_avg_pool2d(images, side).flatten(1)
