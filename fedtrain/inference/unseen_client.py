"""A client that was never seen: which model it gets, or why there is none for it.

Policy ``online-average``, in three rules. What the server averaged is taken as it is. Where batch norm is personal, its
weight and bias are the mean over the known clients, and its running statistics are those of the newcomer's own images,
which need no labels. Where anything else is personal, no model can be made of it, and the method is refused: weights
that were trained apart and then averaged are no network.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedtrain.aggregators import average_states
from fedtrain.analysis.entry_description import describe_entries
from fedtrain.data.client_data import ClientData
from fedtrain.federated.residuals import drop_residual
from fedtrain.inference.trained_run import TrainedRun
from fedtrain.parameters import EntryNames, StateDict, batch_norm_entries, copy_entries, entries_under
from theory.errors import InputError

POLICY = "online-average"
MIN_IMAGES, ENOUGH_IMAGES, MAX_IMAGES = 2, 16, 256
"""Images for statistics: with fewer there is no variance, with fewer it is rough, more of them would add nothing."""
UNSEEN_CLIENT = "a client that was never seen"


@dataclass(frozen=True)
class BranchChoice:
    """How a newcomer predicts: with one branch, for which the entries below ``path`` are needed."""

    path: str
    branch: str


BRANCH_CHOICES = {
    "moon": BranchChoice("model", "fused"),
    "fedrod": BranchChoice("generic", "generic"),
    **dict.fromkeys(("ditto", "pfedme", "apfl", "fml"), BranchChoice("generic", "generic")),
    "scaffold": BranchChoice("model", "fused"),
    "copa": BranchChoice("features", "peers"),
    **dict.fromkeys(("cooperate", "fedco2"), BranchChoice("online", "online")),
}
"""Where it is not the whole module: COPA's known clients publish their heads, and these vote for the newcomer."""


@dataclass(frozen=True)
class UnseenClient:
    """The personal entries of a client that was never seen, and the only branch for which they are good."""

    data: ClientData
    personal: StateDict
    branch: str
    has_estimated_statistics: bool
    """Whether batch-norm statistics were taken from its images."""


def build_unseen_client(run: TrainedRun, images: Tensor) -> UnseenClient:
    """Make a model for a client of whom there are only unlabelled images, bytes (n, 3, H, W)."""
    way, trainer, state = choose_branch(run), run.trainer, run.state
    known = run.get_client(run.federation.clients[0].name).train
    data = ClientData(UNSEEN_CLIENT, replace(known, labels=known.labels[:0]), known)
    own = [drop_residual(state.client_states[name]) for name in sorted(state.client_states)]
    personal = average_states(own, [1.0] * len(own))
    layers = find_personal_norm_layers(trainer.module, trainer.personal_names & entries_under(trainer.module, way.path))
    if layers and len(images) < MIN_IMAGES:
        raise InputError(
            f"{UNSEEN_CLIENT} is known by its images, and {len(images)} is too few to take statistics from; "
            f"give at least {MIN_IMAGES}, better {ENOUGH_IMAGES} or more"
        )
    if layers:
        rows = torch.linspace(0, len(images) - 1, min(len(images), MAX_IMAGES)).round().long()
        with estimate_running_statistics(layers):
            message = replace(run.broadcast_for(data.name), peers=state.message.peers)
            trainer.predict(data, personal, message, images[rows])
        personal = copy_entries(trainer.module, trainer.personal_names)
    return UnseenClient(data, personal, way.branch, bool(layers))


def choose_branch(run: TrainedRun) -> BranchChoice:
    """How a newcomer predicts in this run; refused if that takes more than batch norm of what is personal."""
    way, module = BRANCH_CHOICES.get(run.config.method_name, BranchChoice("", "fused")), run.trainer.module
    if run.config.method.needs_training_data:
        raise InputError(
            f"{run.config.method.title} has no model for {UNSEEN_CLIENT}: a client looks at its labelled "
            "samples before it predicts; predict as one of its clients, or train with fedavg",
            options=("client",),
        )
    apart = run.trainer.personal_names & entries_under(module, way.path)
    if apart - batch_norm_entries(module):
        raise InputError(
            f"{run.config.method.title} has no model for {UNSEEN_CLIENT}: {describe_entries(module, apart)} was never "
            "shared; "
            "predict as one of its clients, or train with a method that shares it, such as fedbn or fedco2",
            options=("client",),
        )
    return way


def find_personal_norm_layers(module: nn.Module, names: EntryNames) -> list[_BatchNorm]:
    """The batch-norm layers whose running statistics are among these names."""
    layers = module.named_modules()
    return [layer for name, layer in layers if isinstance(layer, _BatchNorm) and f"{name}.running_mean" in names]


@contextmanager
def estimate_running_statistics(layers: Iterable[_BatchNorm]) -> Iterator[None]:
    """Within, each of these layers takes the mean and variance of what it is given for its running statistics.

    It then normalises with them, so the layers behind it see what they will see when the newcomer predicts.
    """

    def measure(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        average, variance = layer.get_buffer("running_mean"), layer.get_buffer("running_var")
        x = inputs[0].to(average.dtype)
        around = [0, *range(2, x.ndim)]
        average.copy_(x.mean(around))
        variance.copy_(x.var(around))  # unbiased, as torch keeps it

    hooks = [layer.register_forward_pre_hook(measure) for layer in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
