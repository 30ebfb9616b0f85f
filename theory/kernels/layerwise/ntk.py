"""The empirical neural tangent kernel of networks in evaluation mode, exact, summed over layers.

One forward pass keeps what each layer needs, one backward pass for each output gives the gradients at all layers'
outputs, and each parameter adds its Gram matrix. The Jacobian is never written down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Literal, overload

import torch
from torch import Tensor, nn

from theory.errors import InputError
from theory.kernels.layerwise.derivatives import Derivative, RowShape, StoredRows, add_gram_by_slices
from theory.kernels.layerwise.gram import allocate_kernel, mirror_lower_triangle
from theory.kernels.layerwise.passes import pass_chunk
from theory.kernels.layerwise.plan import EntryPart, WorkPlan, plan_work
from theory.kernels.layerwise.probe import NetworkProbe, probe_network, refuse_training_mode
from theory.kernels.layerwise.rules import find_rule


@overload
def ntk(
    model: nn.Module,
    x: Tensor,
    *,
    outputs: Sequence[int] | None = ...,
    by_entry: Literal[False] = ...,
    memory: int | None = ...,
) -> Tensor: ...
@overload
def ntk(
    model: nn.Module,
    x: Tensor,
    *,
    outputs: Sequence[int] | None = ...,
    by_entry: Literal[True],
    memory: int | None = ...,
) -> dict[str, Tensor]: ...
def ntk(
    model: nn.Module,
    x: Tensor,
    *,
    outputs: Sequence[int] | None = None,
    by_entry: bool = False,
    memory: int | None = None,
) -> Tensor | dict[str, Tensor]:
    """The exact empirical tangent kernel ∂f/∂θ (∂f/∂θ)ᵀ of a network in evaluation mode: (n·K, n·K).

    Row p·K + k is output k of sample p; outputs with several axes are flattened. θ is every parameter that is trained
    (``requires_grad``). Samples lie along the first axis of ``x``, which is on the device of the network.

    Args:
        model: any module that maps a batch of samples to one tensor.
        x: the samples.
        outputs: take only these outputs, in this order.
        by_entry: give one such matrix for each parameter, by its name; they add up to the kernel. A parameter that is
            used in several places has one name, and its matrix contains all products between its uses.
        memory: bytes to stay within; by default most of what is free. What does not fit is refused before the work
            starts.
    """
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    groups = {name: name if by_entry else "" for name in names}
    found = compute_grouped_kernels([model], [x], groups, outputs=outputs, memory=memory)
    return found if by_entry else found[""]


def compute_grouped_kernels(
    models: Sequence[nn.Module],
    inputs: Sequence[Tensor],
    groups: Mapping[str, str],
    *,
    apart: Set[str] = frozenset(),
    outputs: Sequence[int] | None = None,
    memory: int | None = None,
) -> dict[str, Tensor]:
    """Kernels of networks of one architecture, each on its own samples, summed over groups of entries.

    The rows of model i's samples are gradients with respect to model i's own copy of an entry. Entries named in
    ``apart`` couple no two models: between models their part is zero. ``groups`` says for every entry to which matrix
    it is added; entries that it does not name are left out.
    """
    shape, probe, basis = examine(models, inputs, outputs)
    entries = [name for name in probe.parameters if name in groups]
    derivatives = build_derivatives(models[0], probe, shape, entries)
    labels = list(dict.fromkeys(groups[name] for name in probe.parameters if name in groups))
    used = {name: uses for name, uses in derivatives.items() if uses}
    plan = plan_work(probe, shape, used, len(labels), memory)
    totals = {label: allocate_kernel(shape.samples * shape.outputs, basis) for label in labels}
    whole, each, start = [slice(0, shape.samples)], [], 0
    for x in inputs:
        each.append(slice(start, start + len(x)))
        start += len(x)
    for parts, chunk in zip(plan.passes, plan.chunks, strict=True):
        fill_derivatives(models, inputs, probe, basis, used, parts, chunk)
        for part in parts:
            couples = each if part.entry in apart else whole
            add_entry_gram(totals[groups[part.entry]], used[part.entry], couples, shape.outputs, plan)
    for total in totals.values():
        mirror_lower_triangle(total)
    return totals


def examine(
    models: Sequence[nn.Module], inputs: Sequence[Tensor], outputs: Sequence[int] | None
) -> tuple[RowShape, NetworkProbe, Tensor]:
    """Check all that can be wrong, and look at the first network with one sample."""
    for model in models:
        refuse_training_mode(model)
    if not inputs or any(len(x) == 0 for x in inputs):
        raise InputError("there are no samples; x needs at least one, along its first axis")
    first = next((p for p in models[0].parameters() if p.requires_grad), None)
    if first is not None and any(x.device != first.device for x in inputs):
        raise InputError(
            f"the network is on {first.device} and the samples are on {inputs[0].device}; move one of them"
        )
    shapes = {name: p.shape for name, p in models[0].named_parameters() if p.requires_grad}
    if any({name: p.shape for name, p in m.named_parameters() if p.requires_grad} != shapes for m in models[1:]):
        raise InputError("the networks have parameters of different names or shapes; they must be of one architecture")
    try:
        probe = probe_network(models[0], inputs[0][:1])
    except RuntimeError as error:  # a network may convert its input, so this is no error before it fails
        if first is None or inputs[0].dtype == first.dtype or "dtype" not in str(error):
            raise
        names = [str(one.dtype).removeprefix("torch.") for one in (first, inputs[0])]
        raise InputError(f"the network is in {names[0]} and the samples are in {names[1]}; convert one") from None
    chosen = list(range(probe.outputs)) if outputs is None else list(outputs)
    if not chosen or not all(-probe.outputs <= k < probe.outputs for k in chosen):
        raise InputError(f"outputs is {chosen}; the network has outputs 0 to {probe.outputs - 1}", ("outputs",))
    assert first is not None  # or the probe would have refused
    dtype, device = first.dtype, inputs[0].device
    basis = torch.eye(probe.outputs, dtype=dtype, device=device)[chosen]
    return RowShape(sum(map(len, inputs)), len(chosen), dtype, device), probe, basis


def build_derivatives(
    model: nn.Module, probe: NetworkProbe, shape: RowShape, entries: Sequence[str]
) -> dict[str, list[Derivative]]:
    """The derivatives of each entry, in the order of the layers' calls; autograd's part, if any, comes last."""
    found: dict[str, list[Derivative]] = {name: [] for name in entries}
    for use in probe.uses:
        layer = model.get_submodule(use.path)
        rule = find_rule(layer)
        assert rule is not None
        for own, entry in use.entries.items():
            if entry in found:
                found[entry].append(rule.build(layer, own, use.kept, use.output, shape))
    for entry in probe.by_autograd:
        if entry in found:
            found[entry].append(StoredRows(shape, probe.parameters[entry], take_rows))
    return found


def take_rows(kept: Tensor, rows: Tensor) -> Tensor:
    """Rows that autograd has computed."""
    return rows


def fill_derivatives(
    models: Sequence[nn.Module],
    inputs: Sequence[Tensor],
    probe: NetworkProbe,
    basis: Tensor,
    derivatives: Mapping[str, Sequence[Derivative]],
    parts: Sequence[EntryPart],
    chunk: int,
) -> None:
    """Run all samples through their networks and store what the entries of this pass need."""
    wanted = {part.entry for part in parts}
    for part in parts:
        for derivative in derivatives[part.entry]:
            derivative.allocate(slice(part.start, part.stop))
    uses = [number for number, use in enumerate(probe.uses) if wanted & set(use.entries.values())]
    by_autograd = [name for name in probe.by_autograd if name in wanted]
    at = 0
    for model, x in zip(models, inputs, strict=True):
        for samples in x.split(chunk):
            here = slice(at, at + len(samples))
            at += len(samples)
            found = pass_chunk(model, samples, probe, basis, uses, by_autograd)
            place = dict.fromkeys(wanted, 0)
            for number in uses:
                for entry in probe.uses[number].entries.values():
                    if entry in wanted:
                        derivatives[entry][place[entry]].put(here, found.kept[number], found.cotangents[number])
                        place[entry] += 1
            for entry in by_autograd:
                derivatives[entry][-1].put(here, found.rows[entry], found.rows[entry])


def add_entry_gram(
    total: Tensor, uses: Sequence[Derivative], couples: Sequence[slice], outputs: int, plan: WorkPlan
) -> None:
    """Add what one entry contributes, within each of the couples, and give its memory back."""
    for samples in couples:
        rows = slice(samples.start * outputs, samples.stop * outputs)
        block = total[rows, rows]
        if len(uses) == 1:
            uses[0].add_gram(block, samples, plan.workspace)
        else:
            add_gram_by_slices(uses, block, samples, plan.workspace)
    for use in uses:
        use.free()
