"""Experiment trackers as callbacks: they copy what a run writes, and the run folder stays the truth."""

from collections.abc import Sequence
from importlib import import_module

from fedtrain.extensions.errors import ExtensionError, explain_failure
from fedtrain.extensions.references import is_reference, list_installed, resolve
from fedtrain.extensions.signatures import check_signatures
from fedtrain.extensions.source import locate_definition
from fedtrain.registry import TRACKER_CLASSES
from fedtrain.trackers.base import Tracker
from theory.errors import InputError
from theory.text import suggest_name

__all__ = ["Tracker", "build_tracker", "build_trackers"]


def build_tracker(name: str) -> Tracker:
    """A tracker by its name; whether its package is installed shows at once, before anything is written."""
    if name not in TRACKER_CLASSES:
        return build_own_tracker(name)
    tracker: Tracker = getattr(import_module(f"{__name__}.{name}"), TRACKER_CLASSES[name])()
    tracker.load_package()
    return tracker


def build_own_tracker(name: str) -> Tracker:
    """One of somebody's: a reference or a plug-in."""
    plug_ins = list_installed("tracker")
    if not is_reference(name) and name not in plug_ins:
        raise InputError(f"unknown tracker {name!r}; {suggest_name(name, [*TRACKER_CLASSES, *plug_ins])}", ("track",))
    kind = resolve("tracker", name).value
    if not isinstance(kind, type) or not issubclass(kind, Tracker):
        raise ExtensionError(f"tracker {name} is no subclass of fedtrain.trackers.Tracker; name one")
    if missing := sorted(kind.__abstractmethods__):
        raise ExtensionError(f"tracker {name} ({locate_definition(kind)}) does not define {', '.join(missing)}")
    check_signatures(kind, Tracker, f"tracker {name}")
    with explain_failure(f"tracker {name}", locate_definition(kind)):
        made: Tracker = kind()
    return made


def build_trackers(names: str | Sequence[str]) -> list[Tracker]:
    """One or several, each once."""
    wanted = [names] if isinstance(names, str) else names
    return [build_tracker(name) for name in dict.fromkeys(wanted)]
