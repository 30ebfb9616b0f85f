"""What a federated method is: what it shares, what it minimises, how it predicts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedtrain.extensions.source import locate_own_code
from fedtrain.models import Net, SplitPoint
from fedtrain.parameters import NORM_LAYERS, EntryNames, NormKind, norm_entries
from fedtrain.rng import fork_rng
from theory.errors import InputError

Batch = tuple[Tensor, Tensor]
PersonalNorm = Literal[NormKind, "all"]
"""Which normalisation layers stay with the client."""
M = TypeVar("M", bound=nn.Module)


class ModelFactory:
    """Where a client's networks come from: draws that all clients make alike, and draws of its own."""

    def __init__(self, make: Callable[[], nn.Module], seed: int, client: str = "") -> None:
        self.make, self.seed, self.client = make, seed, client
        self.has_built_own = False

    def build_common(self, part: str = "") -> Net:
        """The same for every client; another one for every ``part``."""
        with fork_rng(self.seed, "network", part):
            return self._build_checked()

    def build_own(self, part: str = "") -> Net:
        """Another one for every client."""
        self.has_built_own = True
        with fork_rng(self.seed, "network", part, "of", self.client):
            return self._build_checked()

    def _build_checked(self) -> Net:
        """Any module with the two parts will do."""
        network = self.make()
        for part in ("features", "head"):
            if not isinstance(getattr(network, part, None), nn.Module):
                raise InputError(
                    f"{type(network).__name__}{locate_own_code(type(network))} has no part {part!r}; a network needs "
                    "features and head, or name the submodule that is its head: model.head"
                )
        return cast(Net, network)


class Peers:
    """What the other clients last published: frozen modules that are asked all at once, in the order of their names."""

    def __init__(self, heads: Sequence[nn.Module] = ()) -> None:
        self.heads = tuple(heads)

    def __len__(self) -> int:
        return len(self.heads)

    def __call__(self, z: Tensor) -> Tensor:
        """What each says of these features: (peers, samples, classes)."""
        return torch.stack([head(z) for head in self.heads])


@dataclass(frozen=True)
class BranchWeights:
    """How much each branch of a client's model counts in the prediction, and how far its logits are flattened."""

    weights: Tensor
    """One for each branch, 0 or more; they add up to 1."""
    temperatures: Tensor
    """One for each branch, above 0: its logits are divided by it."""


@dataclass(frozen=True)
class RoundContext(Generic[M]):
    """What a client sees of the federation, and of itself, during one round."""

    round: int
    peers: Peers
    class_counts: Tensor
    """How many samples of each class this client trains on."""
    frozen_start: M | None = None
    class_weights: Tensor | None = None
    """How much a sample of each class counts in `cross_entropy`; None: all alike."""
    label_smoothing: float = 0.0
    """The share of a label that `cross_entropy` gives to all classes alike."""
    training_samples: Callable[[], Iterator[Batch]] = lambda: iter(())
    """The client's training samples in their own order, batch by batch, as they look when it predicts."""
    total_lr: float = 0.0
    """How far the steps of this round carry a weight against a constant gradient of one."""
    participation: float = 1.0
    """The share of the clients that trains in a round."""
    memory: Batch | None = None
    """Features and labels that the client looks up when it predicts."""
    branch_weights: BranchWeights | None = None
    """What this client has chosen for the fusion of its branches, if the method lets it choose."""
    parts: Mapping[str, RoundContext[Any]] = field(default_factory=dict)
    """Of a cooperation: what each of its methods is to see when the client predicts."""

    def cross_entropy(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss on labels, as the settings in ``[local]`` want it; methods take this one."""
        return F.cross_entropy(logits, labels, self.class_weights, label_smoothing=self.label_smoothing)

    @property
    def round_start_model(self) -> M:
        """The module as the round began, frozen; only if `Method.needs_round_start` says so for this round."""
        if self.frozen_start is None:
            raise RuntimeError("a method that looks at round_start_model must override needs_round_start")
        return self.frozen_start


LossFunction = Callable[[M, Batch, RoundContext[M]], Tensor]
Phase = LossFunction[M] | tuple[LossFunction[M], ...]
"""A pass over the local data: one loss, or several that every batch goes down one after the other."""


def list_losses(phase: Phase[M]) -> tuple[LossFunction[M], ...]:
    """The steps that a phase takes on each batch."""
    return phase if isinstance(phase, tuple) else (phase,)


@dataclass(frozen=True)
class Method(ABC, Generic[M]):
    """A method says only what follows; client, backend and loop are common to all. Its fields are its options."""

    title: ClassVar[str]
    split_at: ClassVar[SplitPoint] = "conv"
    """Where features end and head begins, unless the configuration says otherwise."""
    needs_batch_norm: ClassVar[bool] = False
    """Whether it is another method on a network without its `personal_norm`."""
    needs_sgd: ClassVar[bool] = False
    """Whether it reckons with steps of SGD."""
    needs_training_data: ClassVar[bool] = False
    """Whether a client looks at its training samples before it predicts."""
    network: ClassVar[str] = ""
    """Where in the module the network is that trains on labels, by its features and its head; empty: the module."""

    @property
    def personal_norm(self) -> PersonalNorm:
        """Which normalisation stays with the client, if any does."""
        return "batch"

    @property
    def published(self) -> str:
        """Path of the submodule that is shown to every peer as it is; empty for none."""
        return ""

    @abstractmethod
    def build(self, factory: ModelFactory) -> M:
        """The module of one client as training begins."""

    @abstractmethod
    def shared(self, module: M) -> EntryNames:
        """The entries that the server averages; all others stay with the client."""

    @abstractmethod
    def loss(self, module: M, batch: Batch, context: RoundContext[M]) -> Tensor:
        """The local objective on one batch."""

    @abstractmethod
    def branches(self, module: M, x: Tensor, context: RoundContext[M]) -> Mapping[str, Tensor]:
        """Logits of each part of the module that is worth a look of its own."""

    def fuse(self, branches: Mapping[str, Tensor], context: RoundContext[M]) -> Tensor:
        """The prediction as logits: the sum of the branches."""
        each = list(branches.values())
        return each[0] if len(each) == 1 else torch.stack(each).sum(0)

    def phases(self, round: int, epochs: int) -> Sequence[Phase[M]]:
        """What each pass over the local data goes down."""
        return [self.loss] * epochs

    def phases_before_prediction(self) -> Sequence[Phase[M]]:
        """Passes over the local data that make the module fit for prediction; they are forgotten afterwards."""
        return ()

    def prepare_prediction(self, module: M, context: RoundContext[M]) -> RoundContext[M]:
        """What `branches` is to see; a place for what a client looks up in its own data."""
        return context

    def needs_round_start(self, round: int) -> bool:
        """Whether the losses of this round look at `RoundContext.round_start_model`."""
        return False

    def finish(self, module: M, context: RoundContext[M]) -> None:
        """Called once after local training."""

    def plain_sgd_parameters(self, module: M) -> Sequence[nn.Parameter]:
        """Parameters that are trained without momentum and weight decay."""
        return ()

    def check(self, module: M) -> None:
        """Refuse a network on which this would be another method."""
        if not self.needs_batch_norm or norm_entries(module, self.personal_norm):
            return
        kind = "normalisation" if self.personal_norm == "all" else f"{self.personal_norm} norm"
        others = [other for other in NORM_LAYERS if norm_entries(module, other)]
        way = f"set method.norm = {others[0]}" if others else "take one that has (model.norm = true) or another method"
        raise InputError(f"{self.title} keeps {kind} personal and this network has none; {way}")


AnyMethod = Method[Any]


def check_non_negative(name: str, value: float) -> None:
    """Refuse a weight that would reward what it is to punish."""
    if not value >= 0:
        raise InputError(f"method.{name} is {value}; it must be 0 or more")
