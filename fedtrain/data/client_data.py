"""The data of clients, and the pools of a data set that a partition divides among them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedtrain.data.partition.indices import Indices
from fedtrain.data.readers.labelled_images import Split
from fedtrain.data.scaling import Scaling
from fedtrain.data.table_schema import TableSchema
from theory.errors import InputError

ArrayPair = tuple[Any, Any]
"""Inputs and class numbers, tensors or numpy arrays."""
LoadInputs = Callable[[Split, Indices], Tensor]
"""Inputs of a pool at these places, in this order: images as bytes (n, C, H, W), or numbers."""


@dataclass(frozen=True, eq=False)
class SamplePool:
    """One domain of a data set. Labels are at hand; inputs are fetched when a client is made of them."""

    domain: str
    """How it is named in commands and files: ``mnist_m``, ``dslr``."""
    title: str
    """What it is, for people, and honestly so: ``MNIST-M``, ``SynthDigits (re-created)``, ``DSLR (stand-in)``."""
    train: Indices
    """Labels of the samples that may be trained on, in an order that is part of the data set."""
    test: Indices
    load_inputs: LoadInputs
    input_shape: tuple[int, ...]
    input_type: torch.dtype = torch.uint8

    def without_inputs(self) -> SamplePool:
        """The same for who wants to know only how many they are: what is taken has a shape and no content."""

        def take(part: Split, indices: Indices) -> Tensor:
            return torch.empty(len(indices), *self.input_shape, dtype=self.input_type, device="meta")

        return replace(self, load_inputs=take)


def merge_pools(pools: Sequence[SamplePool], name: str) -> SamplePool:
    """One pool of the samples of several, in their order."""

    def take(part: Split, indices: Indices) -> Tensor:
        sizes = [len(pool.train if part == "train" else pool.test) for pool in pools]
        starts = np.cumsum([0, *sizes])
        whose = np.searchsorted(starts, indices, side="right") - 1
        inputs = pools[0].load_inputs(part, indices[:0]).new_empty(len(indices), *pools[0].input_shape)
        for number in np.unique(whose):
            at = np.flatnonzero(whose == number)
            inputs[torch.from_numpy(at)] = pools[number].load_inputs(part, indices[at] - starts[number])
        return inputs

    train, test = (np.concatenate([getattr(pool, part) for pool in pools]) for part in ("train", "test"))
    return replace(pools[0], domain=name, title=name, train=train, test=test, load_inputs=take)


@dataclass(frozen=True, eq=False, repr=False)
class Samples:
    """Inputs, bytes (n, C, H, W) or floating numbers of any shape, and a class number (int64) of each."""

    inputs: Tensor
    labels: Tensor

    @classmethod
    def from_arrays(cls, inputs: Any, labels: Any) -> Samples:
        """From tensors or numpy arrays; numbers become float32 unless they are float64 or bytes."""
        try:
            x, y = torch.as_tensor(inputs), torch.as_tensor(labels)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"inputs and labels must be numbers, tensors or NumPy arrays ({error}); encode text as numbers"
            ) from None
        if x.dtype not in (torch.uint8, torch.float64):
            x = x.float()
        return cls(x, y if y.is_floating_point() else y.long())

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        kind = str(self.inputs.dtype).removeprefix("torch.")
        return f"<Samples: {len(self)} of {kind} {tuple(self.inputs.shape[1:])}>"

    def to(self, device: torch.device | str) -> Samples:
        """The same on a device."""
        return Samples(self.inputs.to(device), self.labels.to(device))


@dataclass(frozen=True, eq=False)
class ClientData:
    """What one client holds."""

    name: str
    """Another one for each client."""
    train: Samples
    """What it trains on."""
    test: Samples
    """What its test accuracy is measured on."""
    val: Samples | None = None
    """What a round may be chosen by."""
    noise: float = 0.0
    """Standard deviation of the Gaussian noise that this client sees on its inputs."""
    scaling: Scaling | None = None
    """How its inputs were standardised, so that new ones can be."""

    @classmethod
    def from_arrays(cls, name: str, *, train: ArrayPair, test: ArrayPair, val: ArrayPair | None = None) -> ClientData:
        """A client from pairs of inputs and class numbers, tensors or NumPy arrays.

        Args:
            name: Another one for each client.
            train: Inputs and labels to train on. Inputs are bytes, which are divided by 255, or numbers, which are
                used as they are; labels count from 0.
            test: Those to test on.
            val: Those to choose a round by, if wanted.
        """
        return cls(
            name, Samples.from_arrays(*train), Samples.from_arrays(*test), Samples.from_arrays(*val) if val else None
        )

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over all that it holds."""
        digest = hashlib.sha256(f"{self.name}/{self.noise}".encode())
        for samples in (self.train, self.val, self.test):
            for tensor in () if samples is None else (samples.inputs, samples.labels):
                digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
                digest.update(tensor.cpu().contiguous().numpy().data)
        return digest.hexdigest()

    def to(self, device: torch.device | str) -> ClientData:
        """The same on a device."""
        val = None if self.val is None else self.val.to(device)
        return replace(self, train=self.train.to(device), val=val, test=self.test.to(device))


@dataclass(frozen=True)
class Preprocessing:
    """From bytes to what a network reads: x / 255, augmented while training, (x - mean) / std, noise."""

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    augment: bool = False
    """Flip and turn training images (Office-Caltech10, DomainNet)."""
    augment_val: bool = False
    """Validate on augmented images, as the published code does."""
    noise_unit: str = "pixel"
    """``pixel``: noise of 0..255, before normalisation; ``normalised``: after it, then clamped to 0..255."""


@dataclass(frozen=True, eq=False)
class Federation:
    """All clients, and what to say about them."""

    clients: tuple[ClientData, ...]
    classes: tuple[str, ...]
    title: str
    """The data set by its honest name."""
    standin: bool
    """Whether it is built-in stand-in data."""
    preprocessing: Preprocessing
    notes: tuple[str, ...] = ()
    """What a reader of the results must know: the split is ours, SynthDigits is re-created, ..."""
    is_own: bool = False
    """Whether the data are the user's own, so that no catalogue knows the shape of their inputs."""
    table: TableSchema | None = None
    """The columns, if inputs are rows of a table."""
    scaling: Scaling | None = None
    """Mean and deviation of numbers over everybody's training part: what a client that was never seen gets."""
    held_out: ClientData | None = None
    """A client that takes no part."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 over all that the clients hold."""
        return combine_fingerprints(client.fingerprint for client in self.clients)


def combine_fingerprints(fingerprints: Iterable[str]) -> str:
    """Of a federation, from those of its clients in any order: who knows no data but these can tell it too."""
    return hashlib.sha256("".join(sorted(fingerprints)).encode()).hexdigest()
