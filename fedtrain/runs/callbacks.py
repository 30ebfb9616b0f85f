"""Watch a run: callbacks are told what happens, and change nothing.

Everything that only looks on is one: the lines on the terminal, the figures, a tracker of your own::

    class PrintAccuracy(fedtrain.Callback):
        def on_evaluation(self, round, rows):
            print(round, [row["accuracy"] for row in rows if row["split"] == "test"])

    fedtrain.train(dataset="digits", callbacks=[PrintAccuracy()])

On the command line it is named: ``fedco2 train --callback ./watch.py:PrintAccuracy``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedtrain.extensions.errors import ExtensionError, explain_failure
from fedtrain.extensions.references import resolve
from fedtrain.extensions.signatures import check_signatures
from fedtrain.extensions.source import locate_definition
from fedtrain.federated.communication import CommunicationCost
from fedtrain.federated.messages import Failure, Scores
from fedtrain.runs.experiment import Experiment
from fedtrain.runs.folder import RunFolder
from fedtrain.runs.json_types import MetricRow, RunSummary


@dataclass(frozen=True)
class RunStart:
    """A run that is about to make rounds."""

    experiment: Experiment
    folder: RunFolder
    rounds_done: int
    """How many rounds were made before; 0 unless it is resumed."""


@dataclass(frozen=True)
class RoundProgress:
    """What there is to tell after a round."""

    round: int
    losses: Mapping[str, float]
    """Mean training loss of each client of the cohort."""
    scores: Mapping[str, Scores]
    """Empty if this round was not evaluated."""
    communication: CommunicationCost
    """Of this round alone."""
    seconds: float
    failures: tuple[Failure, ...] = ()
    """Clients that were left out."""


class Callback:
    """Override what you want to be told. An exception stops the run, which can be resumed."""

    def on_run_start(self, start: RunStart) -> None:
        """Before the first round of a run, or of its resumption."""

    def on_round_start(self, round: int) -> None:
        """Before clients train; rounds are counted from 1."""

    def on_evaluation(self, round: int, rows: Sequence[MetricRow]) -> None:
        """After clients were evaluated: one row for each client, split and branch."""

    def on_round_end(self, progress: RoundProgress) -> None:
        """After training, aggregation and evaluation."""

    def on_checkpoint(self, round: int, path: Path) -> None:
        """After a checkpoint was written."""

    def on_note(self, text: str) -> None:
        """Something that a reader of the results must know, for instance that a resumed run changed its machine."""

    def on_run_end(self, folder: RunFolder, summary: RunSummary) -> None:
        """After the last round; when all callbacks have returned, the summary is written."""

    def on_run_stop(self, error: BaseException) -> None:
        """Instead of ``on_run_end``, when the run is interrupted or fails."""


class OnRoundEnd(Callback):
    """A function as a callback: it is called after every round."""

    def __init__(self, function: Callable[[RoundProgress], None]) -> None:
        self.function = function

    def on_round_end(self, progress: RoundProgress) -> None:
        """Call the function."""
        self.function(progress)


class CallbackList(Callback):
    """Several callbacks as one, told in order."""

    def __init__(self, callbacks: Sequence[Callback] = ()) -> None:
        self.callbacks = tuple(callbacks)

    def on_run_start(self, start: RunStart) -> None:
        """Tell each."""
        for callback in self.callbacks:
            callback.on_run_start(start)

    def on_round_start(self, round: int) -> None:
        """Tell each."""
        for callback in self.callbacks:
            callback.on_round_start(round)

    def on_evaluation(self, round: int, rows: Sequence[MetricRow]) -> None:
        """Tell each."""
        for callback in self.callbacks:
            callback.on_evaluation(round, rows)

    def on_round_end(self, progress: RoundProgress) -> None:
        """Tell each."""
        for callback in self.callbacks:
            callback.on_round_end(progress)

    def on_checkpoint(self, round: int, path: Path) -> None:
        """Tell each."""
        for callback in self.callbacks:
            callback.on_checkpoint(round, path)

    def on_note(self, text: str) -> None:
        """Tell each."""
        for callback in self.callbacks:
            callback.on_note(text)

    def on_run_end(self, folder: RunFolder, summary: RunSummary) -> None:
        """Tell each."""
        for callback in self.callbacks:
            callback.on_run_end(folder, summary)

    def on_run_stop(self, error: BaseException) -> None:
        """Tell each."""
        for callback in self.callbacks:
            callback.on_run_stop(error)


def build_callbacks(given: Sequence[str | Callback | type[Callback]]) -> list[Callback]:
    """Callbacks of those that are given as such, as a class, or by a name that stands for either."""
    return [build_callback(one) for one in given]


def build_callback(given: str | Callback | type[Callback]) -> Callback:
    """One of them; a class is called without arguments."""
    found: object = resolve("callback", given).value if isinstance(given, str) else given
    if isinstance(found, type) and issubclass(found, Callback):
        name = f"callback {given if isinstance(given, str) else found.__name__}"
        with explain_failure(name, locate_definition(found)):
            found = found()
    if not isinstance(found, Callback):
        raise ExtensionError(f"callback {given!s} is no fedtrain.Callback; name a subclass of it, or an instance")
    check_signatures(type(found), Callback, f"callback {given if isinstance(given, str) else type(found).__name__}")
    return found
