"""The round that the kernel predicts for a run's own batches: training of the networks' tangents at the checkpoint.

f(x) + J(x) δ with J at the checkpoint, and gradient steps on δ. Its outputs are what the kernel over *all* of a
client's training data predicts for these batches, and that matrix is never built: with 743 images and ten outputs it
would have 7,430 rows for each client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vjp

from theory.networks.kernels import ClientSamples
from theory.networks.next_round import RoundForecast, compare_changes

Batches = Callable[[], Iterable[tuple[Tensor, Tensor]]]
"""The batches of a client's round, in their order."""
Entries = dict[str, Tensor]


def foretell_round(
    networks: Sequence[nn.Module], batches: Sequence[Batches], samples: ClientSamples, shared: Set[str], lr: float
) -> list[Tensor]:
    """The change of the outputs on the samples, after each client's steps on its batches and the server's average."""
    moves = [move_tangent(net, own(), lr) for net, own in zip(networks, batches, strict=True)]
    for name in moves[0].keys() & shared:
        average = torch.stack([w * move[name] for w, move in zip(samples.weights, moves, strict=True)]).sum(0)
        for move in moves:
            move[name] = average
    return [linearise(net, x)[1](move) for net, x, move in zip(networks, samples.inputs, moves, strict=True)]


def move_tangent(net: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], lr: float) -> Entries:
    """δ after plain SGD on the cross entropy of f + Jδ."""
    move = {name: torch.zeros_like(p) for name, p in get_trained(net).items()}
    for x, y in batches:
        outputs, push, pull = linearise(net, x)
        linear = outputs + push(move)
        gradient = (linear.softmax(-1) - F.one_hot(y, linear.shape[-1])) / len(y)
        for name, one in pull(gradient.to(outputs)).items():
            move[name] = move[name] - lr * one
    return move


def linearise(net: nn.Module, x: Tensor) -> tuple[Tensor, Callable[[Entries], Tensor], Callable[[Tensor], Entries]]:
    """f(x), δ -> Jδ, and v -> J'v. As J'v is linear in v, its own derivative backwards is J."""
    outputs, back, *_ = vjp(partial(call, net, x), get_trained(net))

    def pull(v: Tensor) -> Entries:
        found: Entries = back(v)[0]
        return found

    def push(move: Entries) -> Tensor:
        change: Tensor = vjp(pull, torch.zeros_like(outputs))[1](move)[0]
        return change

    return outputs, push, pull


def get_trained(net: nn.Module) -> Entries:
    """What training moves."""
    return {name: p.detach() for name, p in net.named_parameters() if p.requires_grad}


def call(net: nn.Module, x: Tensor, entries: Entries) -> Tensor:
    """The outputs with these entries."""
    made: Tensor = functional_call(net, entries, (x,))
    return made


def compare_real_round(
    networks: Sequence[nn.Module],
    after: Sequence[Tensor],
    batches: Sequence[Batches],
    samples: ClientSamples,
    shared: Set[str],
    lr: float,
) -> RoundForecast:
    """The run's real next round, which led to the outputs ``after``, beside the one that the kernel predicts."""
    with torch.no_grad():
        before = [net(x) for net, x in zip(networks, samples.inputs, strict=True)]
        predicted = foretell_round(networks, batches, samples, shared, lr)
    steps = max(sum(1 for _ in own()) for own in batches)
    return compare_changes(before, after, predicted, lr, steps)
