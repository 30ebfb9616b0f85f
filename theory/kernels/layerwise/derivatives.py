"""The rows of a network's Jacobian that belong to one parameter, in the form that costs least.

Rows are ordered as in the kernel: row p·K + k is output k of sample p. A derivative is filled with what the
forward and the backward pass found at a layer (``put``), and then gives its Gram matrix.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import lcm

import torch
from torch import Tensor

from theory.kernels.layerwise.gram import (
    add_gram,
    add_outer_gram_by_pairs,
    add_vector_outer_gram,
    count_outer_flops,
)


@dataclass(frozen=True)
class RowShape:
    """How many rows there are and what they are made of."""

    samples: int
    outputs: int
    dtype: torch.dtype
    device: torch.device

    def allocate(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Room for something of every sample."""
        return torch.empty(self.samples, *shape, dtype=dtype or self.dtype, device=self.device)


class Derivative(ABC):
    """∂f/∂θ for one use of one parameter θ, whose first axis has ``length`` and whose slices have ``width`` numbers.

    It takes no memory until `allocate` is called, and then holds the slices of its window.
    """

    unit = 1
    """Slices of θ start and end at multiples of it."""

    def __init__(self, shape: RowShape, parameter: Sequence[int]) -> None:
        self.shape = shape
        self.length = parameter[0] if parameter else 1
        self.width = torch.Size(parameter[1:]).numel()
        self.window = slice(0, self.length)

    fixed_numbers = 0
    """Numbers that are stored for a sample, whatever the window."""
    numbers_per_slice = 0
    """Numbers that are stored for a sample and a slice of the window."""

    @abstractmethod
    def allocate(self, window: slice) -> None:
        """Make room for all samples."""

    @abstractmethod
    def free(self) -> None:
        """Give the room back."""

    @abstractmethod
    def put(self, at: slice, kept: Tensor, cotangents: Tensor) -> None:
        """Take in samples: what the layer kept (m, ...) and the gradients at its output (m, K, ...)."""

    @abstractmethod
    def compute_rows(self, samples: slice, start: int, stop: int) -> Tensor:
        """The rows of these samples, for θ[start:stop]: (m·K, (stop - start)·width)."""

    def add_gram(self, total: Tensor, samples: slice, memory: int) -> None:
        """Add the Gram matrix of these samples' rows to the lower triangle of ``total``."""
        add_gram_by_slices([self], total, samples, memory)


def add_gram_by_slices(uses: Sequence[Derivative], total: Tensor, samples: slice, memory: int) -> None:
    """Add the Gram matrix of a parameter with all its uses: their rows are added up before the product."""
    first, unit = uses[0], lcm(*(use.unit for use in uses))
    room = memory // max(1, len(total) * first.width * total.element_size() * min(2, len(uses)))
    step = max(unit, room // unit * unit)
    for start in range(first.window.start, first.window.stop, step):
        stop = min(start + step, first.window.stop)
        rows = first.compute_rows(samples, start, stop)
        for use in uses[1:]:
            rows = rows + use.compute_rows(samples, start, stop)
        add_gram(total, rows)


class StoredRows(Derivative):
    """Rows written down, where they are few numbers: biases, scales, small filters, and layers without a rule."""

    def __init__(self, shape: RowShape, parameter: Sequence[int], compute: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__(shape, parameter)
        self.compute = compute
        self.numbers_per_slice = shape.outputs * self.width
        self.rows = torch.empty(0)

    def allocate(self, window: slice) -> None:
        """Rows of the window."""
        self.window = window
        self.rows = self.shape.allocate(self.shape.outputs, (window.stop - window.start) * self.width)

    def free(self) -> None:
        """Drop the rows."""
        self.rows = torch.empty(0)

    def put(self, at: slice, kept: Tensor, cotangents: Tensor) -> None:
        """Compute the rows at once."""
        rows = self.compute(kept, cotangents).reshape(len(cotangents), self.shape.outputs, self.length, self.width)
        self.rows[at] = rows[:, :, self.window].flatten(2)

    def compute_rows(self, samples: slice, start: int, stop: int) -> Tensor:
        """What is stored."""
        offset = self.window.start
        return self.rows[samples].flatten(0, 1)[:, (start - offset) * self.width : (stop - offset) * self.width]

    def add_gram(self, total: Tensor, samples: slice, memory: int) -> None:
        """One product."""
        add_gram(total, self.rows[samples].flatten(0, 1))


@dataclass(frozen=True)
class OuterSizes:
    """Of one sample at one use of a layer: groups, outputs and inputs of a group, positions, and what is kept."""

    groups: int
    outputs: int
    inputs: int
    positions: int
    kept: tuple[int, ...]

    @property
    def is_smaller_as_rows(self) -> bool:
        """Whether the row of every weight takes no more room than its factors."""
        return self.positions > 1 and self.inputs <= self.positions


PATCH_NUMBERS = 2**23
"""Numbers of unfolded input at a time."""


class OuterProducts(Derivative):
    """Rows Σ_t δ_t ⊗ a_t of a weight (outputs, inputs): δ and a are kept, never the row of every parameter.

    ``flatten`` turns gradients (m, K, ...) into (m, K, groups, outputs of a group, positions), and ``expand`` what was
    kept into (m, groups, inputs of a group, positions).
    """

    def __init__(
        self,
        shape: RowShape,
        parameter: Sequence[int],
        sizes: OuterSizes,
        flatten: Callable[[Tensor], Tensor],
        expand: Callable[[Tensor], Tensor],
    ) -> None:
        super().__init__(shape, parameter)
        self.sizes, self.flatten, self.expand = sizes, flatten, expand
        self.unit = 1 if sizes.groups == 1 else sizes.outputs
        gradients = shape.outputs * sizes.groups * sizes.outputs * sizes.positions
        self.fixed_numbers = gradients + torch.Size(sizes.kept).numel()
        self.cotangents = self.kept = torch.empty(0)

    def allocate(self, window: slice) -> None:
        """Both factors; the window only says of what rows are asked."""
        sizes, self.window = self.sizes, window
        self.cotangents = self.shape.allocate(self.shape.outputs, sizes.groups, sizes.outputs, sizes.positions)
        self.kept = self.shape.allocate(*sizes.kept)

    def free(self) -> None:
        """Drop both factors."""
        self.cotangents = self.kept = torch.empty(0)

    def put(self, at: slice, kept: Tensor, cotangents: Tensor) -> None:
        """Keep both factors."""
        self.cotangents[at] = self.flatten(cotangents)
        self.kept[at] = kept

    def compute_rows(self, samples: slice, start: int, stop: int) -> Tensor:
        """Contract the positions, a few samples at a time."""
        K, cotangents, kept = self.shape.outputs, self.cotangents[samples], self.kept[samples]
        rows = kept.new_empty(len(kept), K, (stop - start) * self.width)
        block = max(1, PATCH_NUMBERS // max(1, self.sizes.groups * self.sizes.inputs * self.sizes.positions))
        for at in range(0, len(kept), block):
            part, inputs = cotangents[at : at + block], self.expand(kept[at : at + block])
            if self.sizes.groups == 1:
                left = part[:, :, 0, start:stop].flatten(1, 2)
                torch.bmm(left, inputs[:, 0].mT, out=rows[at : at + block].view(len(left), -1, self.width))
            else:
                chosen = slice(start // self.unit, stop // self.unit)
                left = part[:, :, chosen].transpose(1, 2).flatten(2, 3)
                product = (left @ inputs[:, chosen].mT).unflatten(2, (K, -1)).transpose(1, 2)
                rows[at : at + block] = product.flatten(2)
        return rows.flatten(0, 1)

    def add_gram(self, total: Tensor, samples: slice, memory: int) -> None:
        """By whichever order of summation costs less."""
        sizes, count = self.sizes, len(total) // self.shape.outputs
        flops = count_outer_flops(count, self.shape.outputs, sizes.positions, sizes.outputs, sizes.inputs)
        if sizes.positions > 1 and flops["rows"] <= flops["pairs"]:
            super().add_gram(total, samples, memory)
            return
        inputs = self.expand(self.kept[samples])
        for group in range(sizes.groups):
            cotangents, seen = self.cotangents[samples][:, :, group], inputs[:, group]
            if sizes.positions == 1:
                add_vector_outer_gram(total, cotangents[..., 0], seen[..., 0])
            else:
                add_outer_gram_by_pairs(total, cotangents, seen, memory)


class EmbeddingRows(Derivative):
    """Rows of an embedding: the gradient at each position goes to the slice of θ that was looked up there."""

    def __init__(self, shape: RowShape, parameter: Sequence[int], positions: int, ignored: int | None) -> None:
        super().__init__(shape, parameter)
        self.positions, self.ignored = positions, ignored
        self.fixed_numbers = positions * (shape.outputs * self.width + 2)  # an index takes up to two numbers' room
        self.cotangents = self.indices = torch.empty(0)

    def allocate(self, window: slice) -> None:
        """Gradients and indices; the window only says of what rows are asked."""
        self.window = window
        self.cotangents = self.shape.allocate(self.shape.outputs, self.positions, self.width)
        self.indices = self.shape.allocate(self.positions, dtype=torch.long)

    def free(self) -> None:
        """Drop both."""
        self.cotangents = self.indices = torch.empty(0)

    def put(self, at: slice, kept: Tensor, cotangents: Tensor) -> None:
        """Keep what was looked up, and the gradients; the padding index gets none, as in torch."""
        indices = kept.flatten(1)
        cotangents = cotangents.reshape(len(kept), self.shape.outputs, -1, self.width)
        if self.ignored is not None:
            cotangents = cotangents * (indices != self.ignored)[:, None, :, None]
        self.indices[at], self.cotangents[at] = indices, cotangents

    def compute_rows(self, samples: slice, start: int, stop: int) -> Tensor:
        """Add gradients up by index."""
        return self._scatter(self.indices[samples], self.cotangents[samples], start, stop)

    def add_gram(self, total: Tensor, samples: slice, memory: int) -> None:
        """Only what was looked up at all has rows."""
        found, compact = self.indices[samples].unique(return_inverse=True)
        step = max(1, memory // max(1, len(total) * self.width * total.element_size()))
        for start in range(0, len(found), step):
            stop = min(start + step, len(found))
            add_gram(total, self._scatter(compact, self.cotangents[samples], start, stop))

    def _scatter(self, indices: Tensor, cotangents: Tensor, start: int, stop: int) -> Tensor:
        inside = (indices >= start) & (indices < stop)
        places = torch.where(inside, indices - start, stop - start)  # one slice more for all that is outside
        rows = cotangents.new_zeros(*cotangents.shape[:2], stop - start + 1, self.width)
        rows.scatter_add_(2, places[:, None, :, None].expand_as(cotangents), cotangents)
        return rows[:, :, :-1].reshape(len(indices) * self.shape.outputs, -1)
