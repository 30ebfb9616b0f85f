"""The trainer of clients, who take turns: one module, into which a client's entries are loaded for its half."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from threading import Event

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedtrain.config.codec import parse_codec
from fedtrain.config.local import LocalSettings
from fedtrain.data.client_data import ClientData, Preprocessing, Samples
from fedtrain.data.transforms import preprocess
from fedtrain.errors import TrainingError
from fedtrain.extensions.errors import ExtensionError
from fedtrain.extensions.source import locate_own_code
from fedtrain.federated.codec.states import decode_model, encode_model, encode_update
from fedtrain.federated.fast_path.factored_gradients import FactoredSGDStep, replace_large_linear_layers
from fedtrain.federated.fast_path.fused_sgd import FusedSGDStep
from fedtrain.federated.fast_path.pooling import move_pooling_before_relu
from fedtrain.federated.messages import Broadcast, Score, Scores, Split, Update, extract_published
from fedtrain.federated.residuals import drop_residual, extract_residual, join_residual
from fedtrain.federated.sgd import OptimizerStep, SGDStep
from fedtrain.federated.starting_entries import StartingEntries
from fedtrain.methods.base import (
    AnyMethod,
    Batch,
    BranchWeights,
    LossFunction,
    ModelFactory,
    Peers,
    Phase,
    RoundContext,
    list_losses,
)
from fedtrain.methods.fusion import FusingMethod, StoredBranchWeights, choose_branch_weights
from fedtrain.metrics import compute_metrics
from fedtrain.parameters import StateDict, all_entries, batch_norm_entries, copy_entries, is_finite, trained_entries
from fedtrain.registry import FusionRule, MetricName
from fedtrain.rng import make_generator
from theory.errors import InputError

EVAL_BATCH_SIZE = 256
BRANCH_WEIGHTS = "branch_weights"
"""Where in a client's module its choice of how branches are fused lies."""
OffloadFunction = Callable[[StateDict], StateDict]
"""Where entries are put until they are needed again; those handed back are the same."""


class TrainingStopped(Exception):  # noqa: N818 - nothing went wrong
    """The trainer was asked to stop."""


@dataclass(frozen=True)
class Precision:
    """Numbers of the network, and whether the forward pass may use shorter ones (CUDA's automatic mixed precision)."""

    dtype: torch.dtype = torch.float32
    amp: bool = False


class ClientTrainer:
    """Trains and evaluates one client at a time; what is personal is handed in and handed back."""

    def __init__(
        self,
        method: AnyMethod,
        make: Callable[[], nn.Module],
        classes: int,
        *,
        local: LocalSettings,
        preprocessing: Preprocessing | None = None,
        seed: int = 0,
        device: torch.device | str = "cpu",
        precision: Precision | None = None,
        fast_path: bool = True,
        metrics: Sequence[MetricName] = (),
        codec: str = "none",
        heads_every: int = 1,
        participation: float = 1.0,
    ) -> None:
        self.method, self.make, self.classes, self.local, self.seed = method, make, classes, local, seed
        self.codec, self.heads_every = codec, heads_every
        self.preprocessing, self.precision = preprocessing or Preprocessing(), precision or Precision()
        self.metrics = tuple(metrics)
        """Scores beside accuracy and loss."""
        self.device, self.participation = torch.device(device), participation
        factory = ModelFactory(make, seed)
        # channels_last: twice as fast for convolutions on CPUs, and as fast as any for the rest
        self.module = self._move_to_device(method.build(factory)).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.has_common_start = not factory.has_built_own
        """Whether all clients begin with the same weights."""
        method.check(self.module)
        if method.needs_sgd and not local.uses_sgd:
            raise InputError(
                f"{method.title} takes mean gradients from how far SGD has moved the weights; set local.optimizer = sgd"
            )
        self.shared_names = method.shared(self.module)
        self._add_branch_weights(self.module)
        self.batch_norm_names = batch_norm_entries(self.module)
        self.parameter_names = trained_entries(self.module)
        self.personal_names = all_entries(self.module) - self.shared_names
        self.step_class = self._choose_step(fast_path and self.device.type != "meta")
        self.stop_requested = Event()
        """Set from another thread, it makes training and evaluation end at the next batch."""
        self._round_start_model: nn.Module | None = None
        self._peer_heads: tuple[Broadcast | None, Mapping[str, nn.Module]] = None, {}
        self.starting_entries = StartingEntries(method, self._build_module, is_common=self.has_common_start)

    def _choose_step(self, fast_path: bool) -> type[OptimizerStep]:
        """How to make a step; with the fast path, its tricks are put in their places."""
        if fast_path:
            move_pooling_before_relu(self.module)
        if not self.local.uses_sgd:
            return OptimizerStep
        if not fast_path:
            return SGDStep
        gradients_needed = self.local.momentum or self.local.max_grad_norm is not None
        if gradients_needed or self.device.type != "cpu" or self.precision.amp:
            return FusedSGDStep
        replace_large_linear_layers(self.module)
        return FactoredSGDStep

    def clone(self) -> ClientTrainer:
        """Another trainer like this one, for another thread."""
        other = copy.copy(self)
        other.module, other.stop_requested = copy.deepcopy(self.module), Event()
        other._round_start_model, other._peer_heads = None, (None, {})
        return other

    def with_fusion(self, rule: FusionRule) -> ClientTrainer:
        """Another trainer like this one, but for how its clients' branches are fused."""
        if not isinstance(self.method, FusingMethod):
            raise InputError(f"{self.method.title} has no branches to fuse; leave fusion out", options=("fusion",))
        other = self.clone()
        if self.chooses_fusion:
            delattr(other.module, BRANCH_WEIGHTS)
        other.method = replace(self.method, fusion=rule)
        other._add_branch_weights(other.module)
        other.personal_names = all_entries(other.module) - self.shared_names
        return other

    def is_compatible(self, entries: StateDict) -> bool:
        """Whether these are the entries of a client's module, by name, type and shape, and what its codec left out."""

        def forms(state: StateDict) -> dict[str, object]:
            return {name: (value.dtype, value.shape) for name, value in state.items()}

        known = forms(self.module.state_dict())
        left_out = forms(extract_residual(entries))
        return forms(drop_residual(entries)) == known and left_out.items() <= known.items()

    def initial_client_state(self, client: str) -> StateDict:
        """The personal entries with which a client begins."""
        return self.initial_client_states([client])[client]

    def initial_client_states(self, clients: Collection[str], offload: OffloadFunction = dict) -> dict[str, StateDict]:
        """The same for many, each put where it is kept; the tensors are shared where they are equal."""
        return self._build_for_each(clients, lambda module: offload(copy_entries(module, self.personal_names)))

    def initial_broadcast(self, clients: Collection[str]) -> Broadcast:
        """The first message: the common start, and what every client publishes before it trained."""
        heads = self._build_for_each(clients, self._encode_start) if self.method.published else {}
        return Broadcast(0, copy_entries(self._build_module(), self.shared_names), dict(sorted(heads.items())))

    def _build_for_each(self, clients: Collection[str], part: Callable[[nn.Module], StateDict]) -> dict[str, StateDict]:
        """A part of every client's module as training begins; made once if nobody draws weights of its own."""
        if self.has_common_start:
            return dict.fromkeys(clients, part(self._build_module()))
        return {name: part(self._build_module(name)) for name in clients}

    def train(self, data: ClientData, personal: StateDict, message: Broadcast) -> tuple[Update, StateDict]:
        """One client's half of a round: its answer, and its new personal entries."""
        self.check_has_batches(data)
        personal = self.choose_fusion(data, personal, message)
        return self.build_update(data, personal, message, self.train_locally(data, personal, message).item())

    @torch.no_grad()
    def choose_fusion(self, data: ClientData, personal: StateDict, message: Broadcast) -> StateDict:
        """The personal entries with the client's choice of how its branches are fused, if its method has it choose.

        It is made as a round begins, with the models that the last round has led to, of samples that no model of this
        client was trained on. Before the first round there is nothing to choose between.
        """
        method = self.method
        if not isinstance(method, FusingMethod) or not method.chooses_fusion or message.round == 0 or not data.val:
            return personal
        view = self.start_prediction(data, personal, message)
        pieces = list(self._iterate_logits(data, "val", data.val, view))
        branches = {
            name: torch.cat([outputs[name] for outputs, _ in pieces]) for name in pieces[0][0] if name != "fused"
        }
        found = choose_branch_weights(method.fusion, branches, torch.cat([labels for _, labels in pieces]))
        kept = {"weights": found.weights, "temperatures": found.temperatures}
        return {**personal, **{f"{BRANCH_WEIGHTS}.{name}": value for name, value in kept.items()}}

    def check_has_batches(self, data: ClientData) -> None:
        """A client that would never train is a mistake."""
        self.local.check_has_batches(data.name, len(data.train), bool(self.batch_norm_names))

    def build_update(
        self, data: ClientData, personal: StateDict, message: Broadcast, loss: float
    ) -> tuple[Update, StateDict]:
        """What the client at hand sends when it has trained, and what it keeps; ``personal`` is what it kept before."""
        shared, kept = copy_entries(self.module, self.shared_names), copy_entries(self.module, self.personal_names)
        finite = all(map(is_finite, (*shared.values(), *kept.values())))
        if not isfinite(loss) or not finite:
            what = "its weights are not finite any more" if isfinite(loss) else f"the loss is {loss}"
            what += self._locate_somebodys("finish" if isfinite(loss) else "loss")
            raise TrainingError(
                f"client {data.name}, round {message.round + 1}: {what}; lower local.lr ({self.local.lr})"
            )
        try:
            payload, left_out = encode_update(shared, message.shared, extract_residual(personal), self.codec)
            shown = self._encode_published(data.name, {**shared, **kept}) if self.publishes_after(message.round) else {}
        except (OverflowError, ValueError):
            raise TrainingError(
                f"client {data.name}, round {message.round + 1}: its numbers are too large for server.codec "
                f"{self.codec}; lower local.lr ({self.local.lr}), or set server.codec = none"
            ) from None
        return Update(data.name, payload, shown, len(data.train), loss), join_residual(kept, left_out)

    def _locate_somebodys(self, function: str) -> str:
        """Where a function of the method is, or else its class, or a part of the network, unless all are ours."""
        parts = dict.fromkeys(type(part) for part in self.module.modules())
        return locate_own_code(getattr(self.method, function), type(self.method), *parts)

    def publishes_after(self, round: int) -> bool:
        """Whether what clients publish when they have trained in this round, counted from 0, is sent in the next."""
        return bool(self.method.published) and (round + 1) % self.heads_every == 0

    def list_shared_forms(self) -> StateDict:
        """Entries of the forms of those that the server averages."""
        return {name: value for name, value in self.module.state_dict().items() if name in self.shared_names}

    def list_published_forms(self, round: int) -> StateDict:
        """Entries of the forms that a client publishes when it has trained in this round, counted from 0."""
        return extract_published(self.method, self.module.state_dict()) if self.publishes_after(round) else {}

    def _encode_start(self, module: nn.Module) -> StateDict:
        head = extract_published(self.method, module.state_dict())
        return encode_model(head, lambda: head, self.codec)

    def _encode_published(self, client: str, entries: StateDict) -> StateDict:
        head = extract_published(self.method, entries)
        return encode_model(head, partial(self.starting_entries.get_published, client), self.codec)

    def _decode_published(self, client: str, payload: StateDict, forms: StateDict) -> StateDict:
        if parse_codec(self.codec).is_none:
            return payload
        try:
            return decode_model(payload, forms, partial(self.starting_entries.get_published, client), self.codec)
        except ValueError as error:
            raise TrainingError(f"the head of client {client}: {error}") from None

    def train_locally(self, data: ClientData, personal: StateDict, message: Broadcast) -> Tensor:
        """Receive, then pass through every phase of the method; the mean loss of the last pass."""
        view = self.start_round(data, personal, message, keep_round_start=self.method.needs_round_start(message.round))
        self.module.train()
        phases = self.method.phases(message.round, self.local.epochs)
        losses = self._run_phases(phases, data, view, self.build_step(message.round), self.local)
        self.method.finish(self.module, view)
        return torch.stack(losses).mean()

    def adapt(self, data: ClientData, personal: StateDict, message: Broadcast, passes: int, lr: float) -> StateDict:
        """Train what is personal, and nothing else, in so many passes over the client's data; what it became.

        Shared entries are put back after each step. Optimisers treat each number by itself: this is to freeze them.
        """
        local = replace(self._fit_batches(data), lr=lr)
        local.check_has_batches(data.name, len(data.train), bool(self.batch_norm_names))
        view = self.start_round(data, personal, message, keep_round_start=self.method.needs_round_start(message.round))
        self.module.train()
        plain = self.step_class(self.module, local, self.method.plain_sgd_parameters(self.module))

        def step(loss: Callable[[], Tensor]) -> Tensor:
            value = plain(loss)
            self.module.load_state_dict(message.shared, strict=False)
            return value

        self._run_phases(self.method.phases(message.round, passes), data, view, step, local, "adapt ")
        self.method.finish(self.module, view)
        kept = copy_entries(self.module, self.personal_names)
        if not all(map(is_finite, kept.values())):
            raise TrainingError(f"client {data.name}: its weights are not finite any more; lower lr ({lr})")
        return kept

    def _fit_batches(self, data: ClientData) -> LocalSettings:
        """Of a client that did not train, fewer samples than a batch are a batch, which is never dropped."""
        return replace(self.local, batch_size=max(1, min(self.local.batch_size, len(data.train))))

    def _run_phases(
        self,
        phases: Sequence[Phase[nn.Module]],
        data: ClientData,
        view: RoundContext[nn.Module],
        step: Callable[[Callable[[], Tensor]], Tensor],
        local: LocalSettings,
        purpose: str = "",
    ) -> list[Tensor]:
        """Go down the losses of every phase, batch by batch; the losses of the last pass, each before its steps."""
        losses: list[Tensor] = []
        for number, phase in enumerate(phases):
            losses = []
            for batch in self.iterate_batches(data, view.round, f"{purpose}{number}", local):
                value, *_ = [step(partial(self._compute_loss, loss, batch, view)) for loss in list_losses(phase)]
                losses.append(value)
        return losses

    def build_step(self, round: int) -> OptimizerStep:
        """The optimiser of a round, counted from 0, for the module at hand."""
        local = self.local.at_round(round)
        try:
            return self.step_class(self.module, local, self.method.plain_sgd_parameters(self.module))
        except ExtensionError:
            raise
        except (TypeError, ValueError) as error:
            words = " ".join(str(error).split())
            raise InputError(f"local.optimizer {local.optimizer} does not take this network: {words}") from None

    @torch.no_grad()
    def evaluate(
        self,
        data: ClientData,
        personal: StateDict,
        message: Broadcast,
        splits: Collection[Split],
        metrics: Sequence[MetricName] | None = None,
    ) -> Scores:
        """The scores of the prediction and of each branch, on the client's own data; without ``metrics`` its own."""
        view = self.start_prediction(data, personal, message)
        wanted = self.metrics if metrics is None else metrics
        return {
            split: self._score_split(data, split, part, view, wanted)
            for split in splits
            if (part := select_split(data, split))
        }

    @torch.no_grad()
    def predict_split(
        self, data: ClientData, personal: StateDict, message: Broadcast, split: Split
    ) -> dict[str, Tensor]:
        """Logits of the prediction ("fused") and of each branch, for the very inputs that `evaluate` scores."""
        view = self.start_prediction(data, personal, message)
        part = select_split(data, split)
        pieces = [] if part is None else [logits for logits, _ in self._iterate_logits(data, split, part, view)]
        return {branch: torch.cat([piece[branch] for piece in pieces]).cpu() for branch in pieces[0]} if pieces else {}

    @torch.no_grad()
    def predict(self, data: ClientData, personal: StateDict, message: Broadcast, inputs: Tensor) -> dict[str, Tensor]:
        """Logits of the prediction ("fused") and of each branch, for inputs of this client."""
        view = self.start_prediction(data, personal, message)
        x = self._transform(
            inputs.to(self.device), data, make_generator(self.seed, "predict", data.name), training=False
        )
        return self._compute_logits(x, view)

    def _compute_loss(self, loss: LossFunction[nn.Module], batch: Batch, context: RoundContext[nn.Module]) -> Tensor:
        with self.use_mixed_precision():
            return loss(self.module, batch, context)

    def use_mixed_precision(self) -> AbstractContextManager[object]:
        """Where losses and predictions are computed, in shorter numbers if so wished."""
        # bfloat16 has float32's range: small gradients do not vanish, and nothing has to be scaled
        return torch.autocast(self.device.type, torch.bfloat16) if self.precision.amp else nullcontext()

    def _build_module(self, client: str = "") -> nn.Module:
        module = self._move_to_device(self.method.build(ModelFactory(self.make, self.seed, client)))
        self._add_branch_weights(module)
        return module

    @property
    def chooses_fusion(self) -> bool:
        """Whether clients choose how their branches are fused, which takes validation samples."""
        return isinstance(self.method, FusingMethod) and self.method.chooses_fusion

    def _add_branch_weights(self, module: nn.Module) -> None:
        """A place for what a client chooses; it is never shared."""
        if isinstance(self.method, FusingMethod) and self.method.chooses_fusion:
            module.add_module(BRANCH_WEIGHTS, StoredBranchWeights(len(self.method.branch_names)).to(self.device))

    def _move_to_device(self, module: nn.Module) -> nn.Module:
        return module.to(self.device, self.precision.dtype)

    def start_round(
        self, data: ClientData, personal: StateDict, message: Broadcast, keep_round_start: bool = False
    ) -> RoundContext[nn.Module]:
        """Load the client's entries and the server's; freeze what may be looked at but not touched."""
        self.module.load_state_dict({**drop_residual(personal), **message.shared})
        peers = Peers([head for name, head in self._build_peer_heads(message).items() if name != data.name])
        classes = torch.arange(self.classes, device=self.device)
        counts = (data.train.labels[:, None] == classes).sum(0)
        return RoundContext(
            message.round,
            peers,
            counts,
            self._copy_round_start_model() if keep_round_start else None,
            self.weigh_classes(counts),
            self.local.label_smoothing,
            training_samples=partial(self._iterate_training_samples, data, message.round),
            total_lr=self._sum_learning_rates(data, message.round),
            participation=self.participation,
            branch_weights=self._read_branch_weights(),
        )

    def _read_branch_weights(self) -> BranchWeights | None:
        stored = getattr(self.module, BRANCH_WEIGHTS, None) if self.chooses_fusion else None
        return stored.read() if isinstance(stored, StoredBranchWeights) else None

    def weigh_classes(self, counts: Tensor) -> Tensor | None:
        """``balanced``: n / (k n_c) for each of the k classes that a client holds, so that the mean weight is 1."""
        if self.local.class_weights == "none":
            return None
        held = counts > 0
        samples = counts.to(self.precision.dtype)
        return torch.where(held, samples.sum() / (held.sum() * samples.clamp(min=1)), 0.0)

    def start_prediction(self, data: ClientData, personal: StateDict, message: Broadcast) -> RoundContext[nn.Module]:
        """Load the client's entries and do what its method does before it predicts; nothing of that is kept."""
        view = self.start_round(data, personal, message)
        if self.method.needs_training_data and len(data.train.inputs) < len(data.train):
            raise InputError(
                f"{self.method.title} looks at a client's training samples before it predicts, and those of client "
                f"{data.name} are not here; evaluate the run with its data instead"
            )
        if phases := self.method.phases_before_prediction():
            self.module.train()
            with torch.enable_grad():
                step = self.build_step(max(0, view.round - 1))  # as in the last round
                self._run_phases(phases, data, view, step, self._fit_batches(data), "before prediction ")
        self.module.eval()
        return self.method.prepare_prediction(self.module, view)

    def _iterate_training_samples(self, data: ClientData, round: int) -> Iterator[Batch]:
        chance = make_generator(self.seed, data.name, round, "training samples")
        for rows in torch.arange(len(data.train), device=self.device).split(EVAL_BATCH_SIZE):
            self._raise_if_stopped()
            yield self._transform(data.train.inputs[rows], data, chance, training=False), data.train.labels[rows]

    def _sum_learning_rates(self, data: ClientData, round: int) -> float:
        """Over the steps of a round, each with what momentum makes of it: lr Σ_k (1 + m + ... + m^(k-1))."""
        order, phases = torch.arange(len(data.train)), self.method.phases(round, self.local.epochs)
        batches = sum(1 for _ in self.local.split_into_batches(order, bool(self.batch_norm_names)))
        steps, m = batches * len(phases), self.local.momentum
        return self.local.compute_lr(round) * (steps - m * (1 - m**steps) / (1 - m)) / (1 - m)

    def _copy_round_start_model(self) -> nn.Module:
        if self._round_start_model is None:
            self._round_start_model = copy.deepcopy(self.module).requires_grad_(False).eval()
        self._round_start_model.load_state_dict(self.module.state_dict())
        return self._round_start_model

    def _build_peer_heads(self, message: Broadcast) -> Mapping[str, nn.Module]:
        """Frozen modules around the message's own tensors, made once for all clients of a round."""
        if message.peers and self._peer_heads[0] is not message:
            blank = copy.deepcopy(self.module.get_submodule(self.method.published)).to("meta").eval()
            heads = {name: copy.deepcopy(blank) for name in message.peers}
            for name, head in heads.items():
                forms = head.state_dict()
                shown = self._decode_published(name, message.peers[name], forms)
                mine = {key: value.to(self.device, forms[key].dtype) for key, value in shown.items()}
                head.load_state_dict(mine, assign=True)
                head.requires_grad_(False)
            self._peer_heads = message, heads
        return self._peer_heads[1] if message.peers else {}

    def iterate_batches(
        self, data: ClientData, round: int, phase: int | str, local: LocalSettings | None = None
    ) -> Iterator[Batch]:
        """Shuffled and augmented by (seed, client, round, phase) alone, hence alike on every backend."""
        purpose = (self.seed, data.name, round, phase)
        order = torch.randperm(len(data.train), generator=make_generator(*purpose, "order"))
        chance = make_generator(*purpose, "augment")
        for rows in (local or self.local).split_into_batches(order, bool(self.batch_norm_names)):
            self._raise_if_stopped()
            rows = rows.to(self.device)
            yield self._transform(data.train.inputs[rows], data, chance, training=True), data.train.labels[rows]

    def _raise_if_stopped(self) -> None:
        if self.stop_requested.is_set():
            raise TrainingStopped

    def _transform(self, inputs: Tensor, data: ClientData, chance: torch.Generator, training: bool) -> Tensor:
        x = preprocess(
            inputs, self.preprocessing, training=training, noise=data.noise, rng=chance, dtype=self.precision.dtype
        )
        return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x

    def _compute_logits(self, x: Tensor, context: RoundContext[nn.Module]) -> dict[str, Tensor]:
        with self.use_mixed_precision():
            branches = self.method.branches(self.module, x, context)
            fused = {"fused": self.method.fuse(branches, context)}
        found = fused if len(branches) == 1 else {**fused, **branches}
        return {name: logits.to(self.precision.dtype) for name, logits in found.items()}

    def _iterate_logits(
        self, data: ClientData, split: Split, samples: Samples, context: RoundContext[nn.Module]
    ) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
        """Logits by branch, and labels, batch by batch."""
        augmented = split == "val" and self.preprocessing.augment_val
        chance = make_generator(self.seed, data.name, context.round, "evaluate", split)
        for rows in torch.arange(len(samples), device=self.device).split(EVAL_BATCH_SIZE):
            self._raise_if_stopped()
            x = self._transform(samples.inputs[rows], data, chance, augmented)
            yield self._compute_logits(x, context), samples.labels[rows]

    def _score_split(
        self,
        data: ClientData,
        split: Split,
        samples: Samples,
        context: RoundContext[nn.Module],
        metrics: Sequence[MetricName],
    ) -> dict[str, Score]:
        sums: dict[str, Tensor] = {}
        kept: dict[str, list[Tensor]] = {}
        for outputs, y in self._iterate_logits(data, split, samples, context):
            for branch, logits in outputs.items():
                both = torch.stack([(logits.argmax(-1) == y).sum(), F.cross_entropy(logits, y, reduction="sum")])
                sums[branch] = sums.get(branch, 0) + both.double()
                if metrics:
                    kept.setdefault(branch, []).append(logits)
        n = len(samples)
        more = {
            branch: compute_metrics(
                metrics, torch.cat(logits).double().softmax(-1).cpu().numpy(), samples.labels.cpu().numpy()
            )
            for branch, logits in kept.items()
        }
        return {
            branch: Score(both[0].item() / n, both[1].item() / n, n, more.get(branch, {}))
            for branch, both in sums.items()
        }


def select_split(data: ClientData, split: Split) -> Samples | None:
    """One part of a client's data, if it has that."""
    parts: dict[Split, Samples | None] = {"train": data.train, "val": data.val, "test": data.test}
    return parts[split]
