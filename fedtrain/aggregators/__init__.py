"""How the server makes one model of many, by the name that the configuration gives it."""

from importlib import import_module

from fedtrain.aggregators.base import Aggregate, Aggregator, CohortReplies, ServerState, average_states
from fedtrain.extensions.option_class import check_option_class
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
    return check_option_class(found, Aggregator)  # type: ignore[type-abstract]


def get_aggregator_name(kind: type[Aggregator]) -> str:
    """What configurations call a class; one from outside is remembered by it."""
    ours = next((name for name, one in AGGREGATORS.items() if one is kind), None)
    if ours is None:
        found = register("aggregator", kind)
        check_option_class(found, Aggregator)  # type: ignore[type-abstract]
        return found.name
    return ours
