"""How the server makes one model of many, by the name that the configuration gives it."""

from dataclasses import is_dataclass
from importlib import import_module

from fedtrain.aggregators.base import Aggregate, Aggregator, CohortReplies, ServerState, average_states
from fedtrain.extensions.errors import ExtensionError
from fedtrain.extensions.references import build_unknown_error, find_extension, register
from fedtrain.registry import AGGREGATOR_CLASSES

AGGREGATORS: dict[str, type[Aggregator]] = {
    name: getattr(import_module(f"{__name__}.{module}"), kind) for name, (module, kind) in AGGREGATOR_CLASSES.items()
}

__all__ = [
    "AGGREGATORS",
    "Aggregate",
    "Aggregator",
    "CohortReplies",
    "ServerState",
    "average_states",
    "get_aggregator_class",
    "get_aggregator_name",
]


def get_aggregator_class(name: str) -> type[Aggregator]:
    """The class of an aggregator: one of these, or one that the user has named or installed."""
    if name in AGGREGATORS:
        return AGGREGATORS[name]
    found = find_extension("aggregator", name)
    if found is None:
        raise build_unknown_error("aggregator", name)
    if not (isinstance(found.value, type) and issubclass(found.value, Aggregator) and is_dataclass(found.value)):
        raise ExtensionError(
            f"aggregator {name} is no frozen dataclass that subclasses fedtrain.Aggregator; make it one"
        )
    return found.value


def get_aggregator_name(kind: type[Aggregator]) -> str:
    """What configurations call a class; one from outside is remembered by it."""
    ours = next((name for name, one in AGGREGATORS.items() if one is kind), None)
    return ours or register("aggregator", kind).name
