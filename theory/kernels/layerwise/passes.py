"""Forward and backward through a network, all samples and outputs of a chunk at once, each sample on its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import vjp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from theory.errors import InputError
from theory.kernels.layerwise.calls import RuledLayer, intercept_calls, list_ruled_layers
from theory.kernels.layerwise.probe import LayerUse, NetworkProbe


@dataclass(frozen=True)
class Passed:
    """What a chunk of m samples gave: by use (m, ...) and (m, K, ...), by entry the rows (m, K, ...) of autograd."""

    kept: Mapping[int, Tensor]
    cotangents: Mapping[int, Tensor]
    rows: Mapping[str, Tensor]


def pass_chunk(
    model: nn.Module, x: Tensor, probe: NetworkProbe, basis: Tensor, uses: Sequence[int], entries: Sequence[str]
) -> Passed:
    """Differentiate the outputs that ``basis`` selects at these uses of layers, and for these entries by autograd.

    A zero is added to the output of each layer, and the gradient with respect to it is the layer's δ. vmap runs every
    sample as a batch of its own, so it does not matter where in a network the batch axis is.
    """
    layers, wanted = list_ruled_layers(model), set(uses)
    own = {name: p.detach() for name, p in model.named_parameters() if name in set(entries)}
    zeros = {str(use): x.new_zeros((), dtype=basis.dtype).expand(probe.uses[use].output).clone() for use in uses}

    def differentiate(sample: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]:
        def run(added: dict[str, Tensor], values: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
            kept: dict[str, Tensor] = {}
            calls = 0

            def perturb(ruled: RuledLayer, value: Tensor) -> Tensor:
                nonlocal calls
                use, calls = calls, calls + 1
                check_call(ruled, use, probe.uses)
                inside, output = ruled.compute(value)
                if use not in wanted:
                    return output
                kept[str(use)] = inside
                return output + added[str(use)]

            with intercept_calls(layers, perturb), substitute_parameters(model, values):
                output = model(sample.unsqueeze(0))
            return output.reshape(-1), kept

        _, pull_back, kept = vjp(run, zeros, own, has_aux=True)
        cotangents, rows = pull_back_all(pull_back, basis)
        return cotangents, rows, kept

    try:
        # torch.func differentiates regardless of no_grad, and no outer graph is kept. Of torch's ways to attention only
        # plain products can be done for many samples at once.
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
            cotangents, rows, kept = vmap(differentiate)(x)
    except RuntimeError as error:
        if "vmap" not in str(error):
            raise
        first = str(error).strip().splitlines()[0]
        raise InputError(f"this network cannot be differentiated sample by sample: {first}") from error
    return Passed({int(use): v for use, v in kept.items()}, {int(use): v for use, v in cotangents.items()}, rows)


def pull_back_all(
    pull_back: Callable[[Tensor], tuple[dict[str, Tensor], dict[str, Tensor]]], basis: Tensor
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The gradients of all outputs, at once where torch can (its prelu cannot), else one after the other."""
    try:
        return vmap(pull_back)(basis)
    except RuntimeError:
        each = [pull_back(row) for row in basis]
        cotangents, rows = ({key: torch.stack([one[i][key] for one in each]) for key in each[0][i]} for i in (0, 1))
        return cotangents, rows


@contextmanager
def substitute_parameters(model: nn.Module, values: Mapping[str, Tensor]) -> Iterator[None]:
    """Within, the network has these values for its entries, wherever they are used.

    torch's functional_call does the same, but leaves plain tensors in a layer that has two names.
    """
    names = {id(p): name for name, p in model.named_parameters() if name in values}
    places = [(layer, own, p) for layer in model.modules() for own, p in layer._parameters.items() if id(p) in names]
    try:
        for layer, own, p in places:
            layer._parameters[own] = values[names[id(p)]]  # type: ignore[assignment]
        yield
    finally:
        for layer, own, p in places:
            layer._parameters[own] = p


def check_call(ruled: RuledLayer, use: int, uses: Sequence[LayerUse]) -> None:
    """Refuse a network that does not call the same layers for every sample."""
    if use >= len(uses) or uses[use].path != ruled.path:
        raise InputError(
            f"the network calls layer {ruled.path!r} for some samples and not for others; its kernel has to be taken "
            "for each kind of sample"
        )
