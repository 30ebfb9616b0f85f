"""Experiment trackers as callbacks: they copy what a run writes, and the run folder stays the truth."""

from collections.abc import Sequence
from importlib import import_module

from fedtrain.registry import TRACKER_CLASSES
from fedtrain.trackers.base import Tracker
from theory.errors import InputError
from theory.text import suggest_name

__all__ = ["Tracker", "build_tracker", "build_trackers"]


def build_tracker(name: str) -> Tracker:
    """A tracker by its name; whether its package is installed shows at once, before anything is written."""
    if name not in TRACKER_CLASSES:
        raise InputError(f"unknown tracker {name!r}; {suggest_name(name, TRACKER_CLASSES)}", options=("track",))
    tracker: Tracker = getattr(import_module(f"{__name__}.{name}"), TRACKER_CLASSES[name])()
    tracker.load_package()
    return tracker


def build_trackers(names: str | Sequence[str]) -> list[Tracker]:
    """One or several, each once."""
    wanted = [names] if isinstance(names, str) else names
    return [build_tracker(name) for name in dict.fromkeys(wanted)]
