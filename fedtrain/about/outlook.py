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
from theory.userdata import covariance

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


def seen(federation: Federation, samples: int | None = None, ridge: float = 1e-3, seed: int = 0) -> Seen:
    """Up to so many training images of each client, drawn at random, made small, less their client's mean."""
    clients = federation.clients
    most = samples or max(FOLDS, MOST // len(clients))
    channels, height = clients[0].train.inputs.shape[1:3]
    side = next(side for side in SIDES if len(clients) * (channels * min(side, height) ** 2) ** 2 <= ROOM or side == 8)
    x, labels = [], []
    for number, client in enumerate(clients):
        chosen = torch.from_numpy(data_stream(seed, number).permutation(len(client.train))[:most]).sort().values
        flat = small(client.train, chosen, min(side, height))
        x.append(flat - flat.mean(0))
        labels.append(client.train.labels[chosen])
    sizes = [len(one) for one in x]
    owner = torch.repeat_interleave(torch.arange(len(clients)), torch.tensor(sizes))
    S = torch.stack([covariance(one, ridge, client.name) for one, client in zip(x, clients, strict=True)])
    whole = torch.cat(x)
    return Seen(Problem(whole, torch.zeros(len(whole)), owner, S), torch.cat(labels), min(side, height))


def small(data: Samples, chosen: Tensor, side: int) -> Tensor:
    """Images as rows of numbers from 0 to 1, averaged down to so many pixels a side."""
    images = data.inputs[chosen].float() / 255
    return adaptive_avg_pool2d(images, side).flatten(1)
