"""Networks that are not part of fedco2: how one is built, cut into features and head, and checked before training."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from fedtrain.extensions.errors import ExtensionError, describe_code_error, explain_failure
from fedtrain.extensions.source import locate_definition, locate_own_code
from fedtrain.models.net import Net
from theory.errors import InputError

ModelBuilder = Callable[..., nn.Module]
"""Builds a network with the parts ``features`` and ``head``, or one whose head is named: a module class or a function,
called with ``classes`` and ``shape`` if it takes them."""
SHOWN_NAMES = 8
TRIAL_SIZE = 2
"""Inputs that a network is tried on."""


def bind_model_builder(
    build: ModelBuilder, classes: int, shape: tuple[int, ...], head: str | None = None
) -> Callable[[], Net]:
    """A builder without arguments: the number of classes and the shape of an input are passed if it asks for them."""
    known = {"classes": classes, "shape": shape}
    try:
        parameters = inspect.signature(build).parameters.values()
    except ValueError:  # a class written in C
        parameters = ()  # type: ignore[assignment]
    needed = [one.name for one in parameters if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]
    if other := [name for name in needed if name not in known]:
        raise ExtensionError(
            f"{locate_builder(build)} needs {', '.join(other)}, which nobody gives it; let it take no arguments, or "
            "classes and shape"
        )
    return partial(_build, build, {one.name: known[one.name] for one in parameters if one.name in known}, head)


def _build(build: ModelBuilder, arguments: dict[str, Any], head: str | None) -> Net:
    with explain_failure(f"model {get_name(build)}"):
        network = build(**arguments)
    if not isinstance(network, nn.Module):
        raise ExtensionError(
            f"{locate_builder(build)} makes an instance of {type(network).__name__}; let it return a torch.nn.Module"
        )
    return cast(Net, network) if head is None else cut_at_head(network, head)  # its parts are checked when it is used


def cut_at_head(network: nn.Module, head: str) -> Net:
    """The named submodule as the head, and the network without it as the features."""
    last, where = find_head(network, head), describe_network(network)
    owner, _, name = head.rpartition(".")
    setattr(network.get_submodule(owner), name, nn.Identity())
    mine = {id(value) for value in last.parameters()}
    if any(id(value) in mine for value in network.parameters()):
        raise InputError(
            f"model.head is {head!r}, which has weights in common with the rest of {where}; name another submodule"
        )
    return Net(network, last)


def find_head(network: nn.Module, head: str) -> nn.Module:
    """The submodule of this name; refused with those that come last."""
    found = dict(network.named_modules())
    if not head or head not in found:
        names = [name for name in found if name]
        raise InputError(f"model.head is {head!r}; {describe_network(network)} has {', '.join(names[-SHOWN_NAMES:])}")
    return found[head]


def check_own_network(build: ModelBuilder, classes: int, shape: tuple[int, ...], head: str | None = None) -> None:
    """Try a network on random inputs: it must take them, answer for each class, and go through its head last."""
    where = locate_builder(build)
    x = torch.rand(TRIAL_SIZE, *shape)
    whole = bind_model_builder(build, classes, shape)().eval()
    calls: list[tuple[Any, Any]] = []
    watched = None if head is None else find_head(whole, head)
    hook = None if watched is None else watched.register_forward_hook(lambda _, *call: calls.append(call))
    answer = _try(whole, x, where)
    if not isinstance(answer, Tensor) or tuple(answer.shape) != (TRIAL_SIZE, classes):
        raise ExtensionError(
            f"{where} answers {TRIAL_SIZE} inputs with {describe_answer(answer)}; give logits of shape "
            f"({TRIAL_SIZE}, {classes})"
        )
    if not answer.isfinite().all():
        raise ExtensionError(f"{where} answers random inputs with numbers that are not finite")
    if head is None or hook is None:
        return
    hook.remove()
    if len(calls) != 1 or calls[0][1] is not answer or len(calls[0][0]) != 1:
        way = "called once, on one tensor, and its answer must be the network's"
        raise InputError(f"model.head is {head!r}, which cannot be the head of {where}: a head is {way}")
    if not torch.equal(_try(cut_at_head(whole, head), x, where), answer):
        raise InputError(
            f"model.head is {head!r}, and head(features(x)) is another answer than that of {where}; name another one"
        )


def _try(network: nn.Module, x: Tensor, where: str) -> Any:
    try:
        with torch.no_grad():
            return network(x)
    except Exception as error:
        size = " x ".join(str(side) for side in x.shape[1:])
        raise ExtensionError(f"{where} fails on inputs of {size}: {describe_code_error(error)}") from error


def locate_builder(build: ModelBuilder) -> str:
    """A builder in an error: what it is called, and where it is."""
    return f"model {get_name(build)} ({locate_definition(build)})"


def describe_network(network: nn.Module) -> str:
    """The class of a network, with its place if it is not ours."""
    return f"{type(network).__name__}{locate_own_code(type(network))}"


def get_name(build: ModelBuilder) -> str:
    """What to call a builder in an error."""
    return getattr(build, "__name__", type(build).__name__)


def describe_answer(answer: object) -> str:
    """A tensor by its shape, anything else by its type."""
    return f"shape {tuple(answer.shape)}" if isinstance(answer, Tensor) else f"an instance of {type(answer).__name__}"
