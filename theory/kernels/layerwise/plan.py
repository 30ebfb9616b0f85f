"""How much is kept at once: what a kernel needs of memory, in how many passes, and whether it can be had at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from math import lcm

import torch

from theory.errors import InputError
from theory.kernels.layerwise.derivatives import Derivative, RowShape
from theory.kernels.layerwise.probe import NetworkProbe
from theory.memory import get_available_memory

USABLE_SHARE = 0.8
"""Of the free memory: the rest is for the allocator and for others."""
MOST_WORKSPACE, LEAST_WORKSPACE = 2**28, 2**22
"""Bytes for what is in flight; more of it is not faster."""
GRADIENT_COPIES = 4
"""Gradients of the largest layer that exist at once on the way back."""


@dataclass(frozen=True)
class EntryPart:
    """Some slices of one parameter, to be done in one pass: all of them, unless its rows are too many."""

    entry: str
    start: int
    stop: int


@dataclass(frozen=True)
class WorkPlan:
    """Passes over all samples, the samples at a time in each, and the bytes for what is in flight."""

    passes: tuple[tuple[EntryPart, ...], ...]
    chunks: tuple[int, ...]
    workspace: int


def get_free_bytes(device: torch.device) -> int:
    """What is free where the work is done."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return get_available_memory()


def plan_work(
    probe: NetworkProbe,
    shape: RowShape,
    derivatives: Mapping[str, Sequence[Derivative]],
    matrices: int,
    memory: int | None,
) -> WorkPlan:
    """Divide the work, or refuse it before it starts. ``matrices`` kernels will exist at the end."""
    item, rows = shape.dtype.itemsize, shape.samples * shape.outputs
    budget = int(USABLE_SHARE * get_free_bytes(shape.device)) if memory is None else memory
    results = matrices * rows**2 * item
    workspace = max(LEAST_WORKSPACE, min(MOST_WORKSPACE, (budget - results) // 4))
    room = budget - results - 2 * workspace  # one workspace for the passes, one for the products
    passes: list[list[EntryPart]] = []
    left = 0
    for entry, uses in derivatives.items():
        unit, slices = lcm(*(use.unit for use in uses)), uses[0].length
        fixed = shape.samples * item * sum(use.fixed_numbers for use in uses)
        per_slice = shape.samples * item * sum(use.numbers_per_slice for use in uses)
        fitting = slices if not per_slice else max(0, room - fixed) // per_slice
        if fixed > room or fitting < min(unit, slices):
            least = results + 2 * workspace + fixed + min(unit, slices) * per_slice
            raise build_memory_error(shape.samples, shape.outputs, least, budget, memory is not None)
        step = slices if fitting >= slices else fitting // unit * unit
        for start in range(0, slices, step):
            stop = min(start + step, slices)
            cost = fixed + (stop - start) * per_slice
            if not passes or cost > left:
                passes.append([])
                left = room
            passes[-1].append(EntryPart(entry, start, stop))
            left -= cost
    chunks = [choose_chunk(probe, shape, {part.entry for part in parts}, workspace) for parts in passes]
    return WorkPlan(tuple(map(tuple, passes)), tuple(chunks), workspace)


def choose_chunk(probe: NetworkProbe, shape: RowShape, entries: Set[str], workspace: int) -> int:
    """How many samples are differentiated at once: at least one, even if it takes more than the workspace."""
    sizes = [use.output.numel() for use in probe.uses]
    stored = sum(size for size, use in zip(sizes, probe.uses, strict=True) if entries & set(use.entries.values()))
    rows = sum(probe.parameters[name].numel() for name in probe.by_autograd if name in entries)
    numbers = shape.outputs * (GRADIENT_COPIES * max(sizes, default=0) + 2 * stored + 2 * rows)
    return max(1, min(shape.samples, workspace // (probe.saved_bytes + shape.dtype.itemsize * numbers)))


def build_memory_error(samples: int, outputs: int, needed: int, budget: int, is_given: bool) -> InputError:
    """Say how much is missing and what would help."""
    limit = "memory allows" if is_given else "are free"
    return InputError(
        f"the kernel of {samples} samples with {outputs} outputs needs about {needed / 2**30:.2g} GiB and "
        f"{budget / 2**30:.2g} GiB {limit}; give fewer samples or outputs, or float32",
        ("samples", "outputs", "memory"),
    )
