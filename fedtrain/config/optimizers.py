"""Optimisers by name, those of ``torch.optim`` and those that users bring, and which settings each of them knows."""

from __future__ import annotations

import inspect
from functools import cache

import torch

from fedtrain.extensions.errors import ExtensionError
from fedtrain.extensions.references import build_unknown_error, find_extension, is_reference, register
from fedtrain.extensions.source import locate_definition
from theory.errors import InputError
from theory.text import suggest_name

UNFIT = {"lbfgs": "it computes the loss several times a step", "sparseadam": "it is for sparse gradients"}
"""Optimisers that cannot be used, and why."""


@cache
def list_optimizers() -> dict[str, type[torch.optim.Optimizer]]:
    """By name, in small letters."""
    found = {
        name.lower(): kind
        for name, kind in vars(torch.optim).items()
        if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer
    }
    return {name: kind for name, kind in found.items() if name not in UNFIT}


def get_optimizer_class(name: str) -> type[torch.optim.Optimizer]:
    """The class of an optimiser: one of torch's, however its name is written, or one that the user has named."""
    if (found := find_extension("optimizer", name)) is not None and name.lower() not in list_optimizers():
        return check_optimizer_class(name, found.value)
    if is_reference(name):
        raise build_unknown_error("optimizer", name)
    if name.lower() in UNFIT:
        raise InputError(f"local.optimizer is {name}; {UNFIT[name.lower()]}: take another, for instance adam")
    known = list_optimizers()
    if name.lower() not in known:
        raise InputError(f"unknown optimizer {name!r}; {suggest_name(name.lower(), known)}")
    return known[name.lower()]


def get_optimizer_name(kind: type[torch.optim.Optimizer]) -> str:
    """What configurations call a class; one from outside torch is remembered by it."""
    ours = next((name for name, one in list_optimizers().items() if one is kind), None)
    if ours is None:
        ours = register("optimizer", kind).name
        check_optimizer_class(ours, kind)
    return ours


def check_optimizer_class(name: str, value: object) -> type[torch.optim.Optimizer]:
    """The class of somebody's optimiser; refused with the place if it cannot be one."""
    if not isinstance(value, type) or not issubclass(value, torch.optim.Optimizer):
        raise ExtensionError(f"optimizer {name} is no subclass of torch.optim.Optimizer; name one")
    known = inspect.signature(value).parameters.values()
    where = f"optimizer {name} ({locate_definition(value)})"
    if "lr" not in {one.name for one in known}:
        raise ExtensionError(f"{where} takes no lr; give its __init__ the parameters (params, lr, ...)")
    set_here = {"lr", "momentum", "weight_decay"}
    unset = [one.name for one in [*known][1:] if one.default is one.empty and not is_rest(one)]
    if unset := [name for name in unset if name not in set_here]:
        raise ExtensionError(f"{where} needs {', '.join(unset)}, which no setting is for; give defaults to them")
    return value


def is_rest(parameter: inspect.Parameter) -> bool:
    """Whether it is ``*args`` or ``**kwargs``."""
    return parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)


def list_optimizer_options(name: str) -> frozenset[str]:
    """The keywords that an optimiser knows."""
    return _list_keywords(get_optimizer_class(name))  # type: ignore[arg-type]  # a class can be hashed, says Python


@cache
def _list_keywords(kind: type[torch.optim.Optimizer]) -> frozenset[str]:
    return frozenset(inspect.signature(kind).parameters)


def get_default_betas(kind: type[torch.optim.Optimizer]) -> tuple[float, float]:
    """The betas that torch gives an optimiser."""
    first, second, *_ = inspect.signature(kind).parameters["betas"].default
    return float(first), float(second)


def check_optimizer(name: str, momentum: float, weight_decay: float, betas: tuple[float | None, float | None]) -> None:
    """Refuse settings that the optimiser would not look at."""
    known = list_optimizer_options(name)
    for option, value in (("momentum", momentum), ("weight_decay", weight_decay)):
        if value and option not in known:
            raise InputError(f"local.{option} is {value}, and {name} has none; set local.{option} = 0")
    for option, beta in zip(("beta1", "beta2"), betas, strict=True):
        if beta is None:
            continue
        if "betas" not in known:
            raise InputError(f"local.{option} is {beta}, and {name} has none; leave it out")
        if not 0 <= beta < 1:
            raise InputError(f"local.{option} is {beta}; choose it in [0, 1)")
