"""What all trackers have in common: which numbers they are told, under which names, and when."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib import import_module
from statistics import fmean
from types import ModuleType
from typing import Any, ClassVar

from fedtrain.config.schema import serialize_config
from fedtrain.config.toml import flatten_tables
from fedtrain.runs.callbacks import Callback, RoundProgress, RunStart
from fedtrain.runs.folder import RunFolder
from fedtrain.runs.json_types import MetricRow, RunSummary
from theory.errors import InputError


class Tracker(Callback, ABC):
    """Offline: whatever it writes lies in the folder of the run, and nothing is sent anywhere.

    Numbers have the name ``client/split/branch/metric``; means over clients have ``mean`` for a client. The step is
    the round, counted from 1.
    """

    package: ClassVar[str]
    """What is imported."""
    extra: ClassVar[str]
    """What installs it."""

    def on_run_start(self, start: RunStart) -> None:
        """Open, or go on with what is there."""
        settings = flatten_tables(serialize_config(start.experiment.config))
        self.open(start.folder, settings, start.rounds_done)

    def on_evaluation(self, round: int, rows: Sequence[MetricRow]) -> None:
        """Every row, and the mean over clients."""
        numbers: dict[str, float] = {}
        groups: dict[str, list[float]] = {}
        for row in rows:
            scores = {"accuracy": row["accuracy"], "loss": row["loss"], **row.get("metrics", {})}
            for metric, value in scores.items():
                if value is None:  # the labels do not define it
                    continue
                place = f"{row['split']}/{row['branch']}/{metric}"
                numbers[f"{row['client']}/{place}"] = value
                groups.setdefault(f"mean/{place}", []).append(value)
        self.log(numbers | {name: fmean(values) for name, values in groups.items()}, round)

    def on_round_end(self, progress: RoundProgress) -> None:
        """What clients minimised, what it cost."""
        numbers = {f"{client}/train/local/loss": loss for client, loss in progress.losses.items()}
        numbers["mean/train/local/loss"] = fmean(progress.losses.values())
        numbers["all/round/bytes/up"] = progress.communication.up.total
        numbers["all/round/bytes/down"] = progress.communication.down.total
        numbers["all/round/time/seconds"] = progress.seconds
        self.log(numbers, progress.round)

    def on_run_end(self, folder: RunFolder, summary: RunSummary) -> None:
        """Close; the run is finished."""
        self.close(finished=True)

    def on_run_stop(self, error: BaseException) -> None:
        """Close; the run may be resumed."""
        self.close(finished=False)

    def load_package(self) -> ModuleType:
        """The tracker's package, or what to install."""
        try:
            return import_module(self.package)
        except ImportError:
            raise InputError(
                f"{self.package} is not installed; install it with pip install 'fedco2[{self.extra}]'",
                options=("track",),
            ) from None

    @abstractmethod
    def open(self, folder: RunFolder, settings: Mapping[str, Any], rounds_done: int) -> None:
        """Begin; with ``rounds_done`` above 0, go on after so many rounds: later ones were not completed."""

    @abstractmethod
    def log(self, numbers: Mapping[str, float], round: int) -> None:
        """Numbers of a round."""

    @abstractmethod
    def close(self, *, finished: bool) -> None:
        """End; it may be that nothing was opened."""
