"""Many clients as one: of each of their tensors a stack, whose rows are the clients, and one step for all rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, zip_longest
from math import nan

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.optim.sgd import sgd

from fedtrain.backends.vmap.client_module import ClientModule, StackedPeers
from fedtrain.data.client_data import ClientData
from fedtrain.federated.client import ClientTrainer
from fedtrain.federated.messages import Broadcast
from fedtrain.methods.base import Batch, LossFunction, RoundContext, list_losses
from fedtrain.parameters import StateDict


class StackedClients:
    """The clients of one round."""

    def __init__(
        self,
        trainer: ClientTrainer,
        clients: Sequence[ClientData],
        personal: Mapping[str, StateDict],
        sent: Mapping[str, Broadcast],
    ) -> None:
        # by size, so that clients whose batches have the same length are neighbours and their rows need no copy
        self.clients = sorted(clients, key=lambda client: -len(client.train))
        self.trainer, self.round = trainer, next(iter(sent.values())).round
        self.local = trainer.local.at_round(self.round)
        self.contexts: list[RoundContext[nn.Module]] = []
        starts = []
        for client in self.clients:
            view = trainer.start_round(
                client, personal[client.name], sent[client.name], trainer.method.needs_round_start(self.round)
            )
            self.contexts.append(view)
            self.client_module = ClientModule(trainer.module, view.frozen_start)  # the same two modules for everyone
            starts.append({name: entry.detach().clone() for name, entry in self.client_module.named_tensors().items()})
        self.stacked_tensors = {
            name: torch.stack([start.pop(name) for start in starts]) for name in self.client_module.named_tensors()
        }
        self.class_counts = torch.stack([view.class_counts for view in self.contexts])
        place = {head: i for i, head in enumerate(dict.fromkeys(h for view in self.contexts for h in view.peers.heads))}
        self.heads = list(place)
        heard = [[place[head] for head in view.peers.heads] for view in self.contexts]
        self.peer_indices = [torch.tensor(one, dtype=torch.long, device=trainer.device) for one in heard]
        self.buffer_names = [name for name, _ in ClientModule(trainer.module).named_buffers()]
        self.trainable_parameters = {
            name: weight for name, weight in self.client_module.named_parameters() if weight.requires_grad
        }
        plain = set(trainer.method.plain_sgd_parameters(trainer.module))
        self.plain_sgd_names = {name for name, weight in self.trainable_parameters.items() if weight in plain}
        # from zero, momentum's first value is the first gradient, as it is for torch
        self.momentum_buffers = {
            name: torch.zeros_like(self.stacked_tensors[name])
            for name in self.trainable_parameters
            if trainer.local.momentum
        }
        self.loss_parameters: dict[tuple[LossFunction[nn.Module], int], list[str]] = {}

    def train_phases(self) -> dict[str, float]:
        """Pass through every phase of the method; each client's mean loss of the last pass."""
        self.trainer.module.train()
        losses: list[list[Tensor]] = []
        for number, phase in enumerate(self.trainer.method.phases(self.round, self.trainer.local.epochs)):
            losses = [[] for _ in self.clients]
            every = [self.trainer.iterate_batches(client, self.round, number) for client in self.clients]
            for batches in zip_longest(*every):
                for rows in self._group_equal_batches(batches):
                    chosen = [batches[row] for row in rows]
                    values, *_ = [self._step(loss, rows, chosen) for loss in list_losses(phase)]
                    for row, value in zip(rows, values, strict=True):
                        losses[row].append(value)
        means = [torch.stack(own).mean().item() if own else nan for own in losses]
        return {client.name: mean for client, mean in zip(self.clients, means, strict=True)}

    @torch.no_grad()
    def load_client(self, client: str) -> None:
        """Load what a client has become into the trainer, and how its round began."""
        row = [data.name for data in self.clients].index(client)
        for name, entry in self.client_module.named_tensors().items():
            entry.copy_(self.stacked_tensors[name][row])

    def get_context(self, client: str) -> RoundContext[nn.Module]:
        """What a client sees of the federation."""
        return self.contexts[[data.name for data in self.clients].index(client)]

    def _group_equal_batches(self, batches: Sequence[Batch | None]) -> Iterator[range]:
        """Neighbours that can go together: as many samples (batch norm would see padding), as many peers."""

        def form(row: int) -> tuple[int, int]:
            batch = batches[row]
            return 0 if batch is None else len(batch[1]), len(self.peer_indices[row])

        for (samples, _), alike in groupby(range(len(batches)), form):
            rows = list(alike)
            if samples:
                yield range(rows[0], rows[-1] + 1)

    def _step(self, loss: LossFunction[nn.Module], rows: range, batches: Sequence[Batch]) -> Tensor:
        """Go down the gradient of these clients' losses; their values before."""
        cut = slice(rows.start, rows.stop)
        still = {name: value[cut] for name, value in self.stacked_tensors.items()}
        moving = {name: still.pop(name) for name in self._find_loss_parameters(loss, rows.start, batches[0])}
        x, y = (torch.stack(part) for part in zip(*batches, strict=True))
        # whatever a network draws, as for dropout, each client draws for itself
        at_once = vmap(grad_and_value(partial(self._compute_loss, loss), has_aux=True), randomness="different")
        grads, (values, changed) = at_once(
            moving, still, x, y, torch.stack(self.peer_indices[cut]), self.class_counts[cut]
        )
        for name in self.buffer_names:
            self.stacked_tensors[name][cut] = changed[name]  # in place it may have happened or not
        self._apply_sgd(moving, grads, cut)
        return values

    def _compute_loss(
        self,
        loss: LossFunction[nn.Module],
        moving: StateDict,
        still: StateDict,
        x: Tensor,
        y: Tensor,
        which: Tensor,
        n: Tensor,
    ) -> tuple[Tensor, StateDict]:
        """One client's loss, as vmap sees it, and the buffers that it changed."""
        trainer = self.trainer
        start, weights = self.client_module.round_start_model, trainer.weigh_classes(n)
        view = RoundContext(self.round, StackedPeers(self.heads, which), n, start, weights, self.local.label_smoothing)
        with trainer.use_mixed_precision():
            value = functional_call(self.client_module, {**moving, **still}, (loss, (x, y), view))
        return value, {name: still[name] for name in self.buffer_names}

    def _find_loss_parameters(self, loss: LossFunction[nn.Module], row: int, batch: Batch) -> list[str]:
        """What this loss is a function of; nothing else may be moved, not by momentum or weight decay either."""
        key = loss, len(self.peer_indices[row])
        if key not in self.loss_parameters:
            value = self.client_module(
                loss, batch, self.contexts[row]
            )  # in the trainer: whose weights are there does not matter
            trained = self.trainable_parameters if value.requires_grad else {}
            grads = torch.autograd.grad(value, list(trained.values()), allow_unused=True) if trained else ()
            self.loss_parameters[key] = [name for name, grad in zip(trained, grads, strict=True) if grad is not None]
        return self.loss_parameters[key]

    def _apply_sgd(self, weights: StateDict, grads: StateDict, cut: slice) -> None:
        """SGD on these rows, by torch's own function."""
        local = self.local
        if local.max_grad_norm is not None:
            grads = clip_each_client(grads, local.max_grad_norm)
        for plain, momentum, decay in ((False, local.momentum, local.weight_decay), (True, 0.0, 0.0)):
            names = [name for name in weights if (name in self.plain_sgd_names) == plain]
            sgd(
                [weights[name] for name in names],
                [grads[name] for name in names],
                [self.momentum_buffers[name][cut] if momentum else None for name in names],
                lr=local.lr,
                momentum=momentum,
                weight_decay=decay,
                dampening=0.0,
                nesterov=False,
                maximize=False,
            )


def clip_each_client(grads: StateDict, max_norm: float) -> StateDict:
    """What ``torch.nn.utils.clip_grad_norm_`` does for one client, for the rows of many."""
    squares = torch.stack([grad.flatten(1).square().sum(1) for grad in grads.values()])
    factors = (max_norm / (squares.sum(0).sqrt() + 1e-6)).clamp(max=1.0)  # torch's own margin against zero
    return {name: grad * factors.reshape(-1, *[1] * (grad.ndim - 1)) for name, grad in grads.items()}
