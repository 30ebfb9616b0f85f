"""A method that is not part of fedco2, tried on a few random numbers before anything is trained or written."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from fedtrain.config.local import LocalSettings
from fedtrain.data.client_data import ClientData, Samples
from fedtrain.extensions.errors import ExtensionError, explain_failure
from fedtrain.extensions.source import locate_definition
from fedtrain.federated.client import ClientTrainer
from fedtrain.methods.base import AnyMethod, ModelFactory, RoundContext, list_losses
from fedtrain.parameters import all_entries
from fedtrain.rng import make_generator

SAMPLES = 4
NAMES = ("trial", "other")
BRANCH_NAME = re.compile(r"(?!fused$)\w[\w.-]*")
"""What tables, figures and trackers can show: ``client/split/branch/metric`` is a name too."""
ROUNDS = (0, 1)
"""Some methods do something else in the first round."""


def try_method(method: AnyMethod, make: Callable[[], nn.Module], classes: int, shape: tuple[int, ...]) -> None:
    """Refuse a method whose functions fail, or give something else than they should; one line names the place."""
    with explain_failure(f"method {method.title}", locate_definition(type(method))):
        module = method.build(ModelFactory(make, 0, NAMES[0]))
        if not isinstance(module, nn.Module):
            raise describe_wrong(method, "build", module, "a torch.nn.Module")
        check_shared(method, module)
        for round in ROUNDS:
            check_round(method, make, classes, shape, round)


def check_shared(method: AnyMethod, module: nn.Module) -> None:
    """It must be names of entries."""
    shared = method.shared(module)
    if not isinstance(shared, Set):
        raise describe_wrong(method, "shared", shared, "a set of names")
    if unknown := sorted(map(str, shared - all_entries(module))):
        raise ExtensionError(
            f"method {method.title} ({locate_definition(method.shared)}): shared names {', '.join(unknown[:5])}, which "
            "build's module does not have in its state_dict"
        )


def check_round(
    method: AnyMethod, make: Callable[[], nn.Module], classes: int, shape: tuple[int, ...], round: int
) -> None:
    """One batch through every loss, and what is predicted for it."""
    phases = method.phases(round, 1)
    if not isinstance(phases, Sequence):
        raise describe_wrong(method, "phases", phases, "a list of losses")
    trainer = ClientTrainer(method, make, classes, local=LocalSettings(), fast_path=False)
    chance = make_generator("trial of a method")
    x, y = torch.randn(SAMPLES, *shape, generator=chance), torch.arange(SAMPLES) % classes
    data = ClientData(NAMES[0], Samples(x, y), Samples(x, y))
    message, states = replace(trainer.initial_broadcast(NAMES), round=round), trainer.initial_client_states(NAMES)
    context = trainer.start_round(data, states[NAMES[0]], message, keep_round_start=method.needs_round_start(round))
    trainer.module.train()
    for loss in {loss for phase in phases for loss in list_losses(phase)}:
        value = loss(trainer.module, (x, y), context)
        name = getattr(loss, "__name__", "loss")
        if not isinstance(value, Tensor) or value.ndim:
            raise describe_wrong(method, name, value, "one number, a tensor without dimensions")
        if not value.isfinite():
            raise ExtensionError(
                f"method {method.title} ({locate_definition(loss)}): {name} is {value.item()} on random inputs"
            )
    trainer.module.eval()
    with torch.no_grad():
        check_predictions(method, trainer.module, x, classes, context)


def check_predictions(
    method: AnyMethod, module: nn.Module, x: Tensor, classes: int, context: RoundContext[nn.Module]
) -> None:
    """Logits by branch, and of the prediction."""
    context = method.prepare_prediction(module, context)
    branches = method.branches(module, x, context)
    wanted = f"logits (samples, classes), here ({len(x)}, {classes})"
    if not isinstance(branches, Mapping) or not branches:
        raise describe_wrong(method, "branches", branches, f"a dict of names and {wanted}")
    if bad := next((name for name in branches if not isinstance(name, str) or not BRANCH_NAME.fullmatch(name)), None):
        raise ExtensionError(
            f"method {method.title} ({locate_definition(method.branches)}): a branch cannot be called {bad!r}; take "
            "letters, digits, _, - and ., and not 'fused', which is the prediction"
        )
    for name, logits in {**branches, "": method.fuse(branches, context)}.items():
        if not isinstance(logits, Tensor) or tuple(logits.shape) != (len(x), classes):
            raise describe_wrong(method, f"branches[{name!r}]" if name else "fuse", logits, wanted)
        if logits.isnan().any():
            function: Any = method.branches if name else method.fuse
            what = f"branches[{name!r}]" if name else "fuse"
            raise ExtensionError(
                f"method {method.title} ({locate_definition(function)}): {what} has NaN for random inputs"
            )


def describe_wrong(method: AnyMethod, name: str, value: object, wanted: str) -> ExtensionError:
    """What to say of an answer that is another than it should be."""
    function: Any = getattr(method, name.partition("[")[0], type(method))
    found = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
    return ExtensionError(f"method {method.title} ({locate_definition(function)}): {name} gives {found}, not {wanted}")
