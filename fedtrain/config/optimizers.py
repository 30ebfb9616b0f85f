"""The optimisers of ``torch.optim`` by name, and which settings each of them knows."""

from __future__ import annotations

import inspect
from functools import cache

import torch

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
    """The class of an optimiser, however its name is written: ``AdamW`` or ``adamw``."""
    if name.lower() in UNFIT:
        raise InputError(f"local.optimizer is {name}; {UNFIT[name.lower()]}: take another, for instance adam")
    known = list_optimizers()
    if name.lower() not in known:
        raise InputError(f"unknown optimizer {name!r}; {suggest_name(name.lower(), known)}")
    return known[name.lower()]


@cache
def list_optimizer_options(name: str) -> frozenset[str]:
    """The keywords that an optimiser knows."""
    return frozenset(inspect.signature(get_optimizer_class(name)).parameters)


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
