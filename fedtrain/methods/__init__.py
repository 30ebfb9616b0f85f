"""Every federated method, by the name that the command line gives it."""

from importlib import import_module

from fedtrain.methods.base import AnyMethod, Batch, Method, ModelFactory, Peers, RoundContext
from fedtrain.registry import METHOD_CLASSES

METHODS: dict[str, type[AnyMethod]] = {
    name: getattr(import_module(f"{__name__}.{name}"), kind) for name, kind in METHOD_CLASSES.items()
}

__all__ = ["METHODS", "AnyMethod", "Batch", "Method", "ModelFactory", "Peers", "RoundContext"]
