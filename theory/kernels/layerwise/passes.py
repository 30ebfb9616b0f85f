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

    The gradients of all outputs are computed at once. For a few operations torch gets that wrong (prelu, up to 2.13,
    silently where there are as many samples as outputs), so one row is always computed in the plain way too; where it
    differs, the outputs are done one after the other. What torch.func cannot do at all (recurrent layers, gradient
    checkpoints, some autograd functions of one's own) is done in the plain way, sample by sample.
    """
    for at_once in (True, False):
        try:
            found = _run_chunk(model, x, probe, basis, uses, entries, at_once)
        except RuntimeError:
            continue
        if _agrees_with_autograd(found, model, x[-1:], probe, basis[:1]):
            return found
    each = [_run_sample(model, sample[None], probe, basis, uses, entries) for sample in x]
    found = Passed(
        {use: torch.stack([one.kept[use] for one in each]) for use in uses},
        {use: torch.stack([one.cotangents[use] for one in each]) for use in uses},
        {name: torch.stack([one.rows[name] for one in each]) for name in each[0].rows},
    )
    if not _agrees_with_autograd(found, model, x[-1:], probe, basis[:1]):
        raise InputError(
            "the network's gradients are others when they are computed again; its output depends on chance"
        )
    return found


def _run_chunk(
    model: nn.Module,
    x: Tensor,
    probe: NetworkProbe,
    basis: Tensor,
    uses: Sequence[int],
    entries: Sequence[str],
    at_once: bool,
) -> Passed:
    """One try.

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

        _, pull_back, kept = vjp(run, zeros, own, has_aux=True)  # type: ignore[misc]  # torch says two
        cotangents, rows = vmap(pull_back)(basis) if at_once else _pull_back_each(pull_back, basis)
        return cotangents, rows, kept

    # torch.func differentiates regardless of no_grad, and no outer graph is kept. Of torch's ways to attention only
    # plain products can be done for many samples at once.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        cotangents, rows, kept = vmap(differentiate)(x)
    return Passed({int(use): v for use, v in kept.items()}, {int(use): v for use, v in cotangents.items()}, rows)


def _pull_back_each(
    pull_back: Callable[[Tensor], tuple[dict[str, Tensor], dict[str, Tensor]]], basis: Tensor
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The gradients of one output after the other."""
    each = [pull_back(row) for row in basis]
    cotangents, rows = ({key: torch.stack([one[i][key] for one in each]) for key in each[0][i]} for i in (0, 1))
    return cotangents, rows


def _agrees_with_autograd(
    found: Passed, model: nn.Module, sample: Tensor, probe: NetworkProbe, direction: Tensor
) -> bool:
    """Whether the last sample's gradients in the first direction are what plain autograd gives."""
    plain = _run_sample(model, sample, probe, direction, list(found.cotangents), list(found.rows))
    computed = [*found.cotangents.values(), *found.rows.values()]
    tolerance = torch.finfo(direction.dtype).eps ** 0.5
    for mine, theirs in zip(computed, [*plain.cotangents.values(), *plain.rows.values()], strict=True):
        exact = theirs[0]
        if not (mine[-1, 0] - exact).norm() <= tolerance * max(1.0, exact.norm().item()):  # nan agrees with nothing
            return bool(exact.isnan().any())
    return True


def _run_sample(
    model: nn.Module,
    sample: Tensor,
    probe: NetworkProbe,
    directions: Tensor,
    uses: Sequence[int],
    entries: Sequence[str],
) -> Passed:
    """By plain autograd: of one sample what is kept (...), δ (K, ...) and rows (K, ...)."""
    kept: dict[int, Tensor] = {}
    added: dict[int, Tensor] = {}
    calls, output = 0, None

    def perturb(ruled: RuledLayer, value: Tensor) -> Tensor:
        nonlocal calls
        if output is not None:
            raise InputError(
                f"the network computes layer {ruled.path!r} again on the way back; turn gradient checkpointing off"
            )
        use, calls = calls, calls + 1
        check_call(ruled, use, probe.uses)
        inside, found = ruled.compute(value)
        if use not in uses:
            return found
        kept[use], added[use] = inside.detach(), torch.zeros_like(found).requires_grad_()
        return found + added[use]

    before = read_generator(sample.device)
    others = set(probe.by_autograd) - set(entries)  # of another pass
    own = {name: p for name, p in model.named_parameters() if p.requires_grad and name not in others}
    found: list[Sequence[Tensor | None]] = []
    with torch.enable_grad(), intercept_calls(list_ruled_layers(model), perturb):
        output = model(sample).reshape(-1)
        if calls != len(probe.uses):
            raise build_call_error(probe.uses[calls].path)
        places = [*(added[use] for use in uses), *own.values()]
        for row in directions:
            none: list[Tensor | None] = [None] * len(places)
            goes_back = output.requires_grad
            found.append(
                torch.autograd.grad(output @ row, places, retain_graph=True, allow_unused=True) if goes_back else none
            )
    if not torch.equal(before, read_generator(sample.device)):
        raise InputError("the network draws random numbers in evaluation mode, so its output depends on chance")

    def stack(place: int, like: Tensor) -> Tensor:
        each = [one[place] for one in found]
        return torch.stack([torch.zeros_like(like) if one is None else one for one in each])

    rows = {}
    for place, (name, p) in enumerate(own.items(), len(uses)):
        if name in entries:
            rows[name] = stack(place, p.detach())
        elif any(one[place] is not None for one in found):  # it has a rule, and is used outside of its layer
            raise build_call_error(name)
    return Passed({use: kept[use] for use in uses}, {use: stack(i, added[use]) for i, use in enumerate(uses)}, rows)


def read_generator(device: torch.device) -> Tensor:
    """The state of torch's generator, which moves where random numbers are drawn."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


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
        raise build_call_error(ruled.path)


def build_call_error(name: str) -> InputError:
    """Say what is used for some samples alone, and the way out."""
    return InputError(
        f"the network uses {name!r} for some samples and not for others; its kernel has to be taken for each kind of "
        "sample"
    )
