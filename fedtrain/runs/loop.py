"""From the first round to the summary: train, evaluate, write down, rest in checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from math import isfinite
from typing import Any, Protocol

from fedtrain.config.schema import CheckpointSettings, Config
from fedtrain.errors import TrainingError
from fedtrain.federated.communication import CommunicationCost, measure_exchange
from fedtrain.federated.server import Backend, Broadcast, Failure, Scores, Split, Update, federate, message_for
from fedtrain.report.run_figures import draw_run_figures
from fedtrain.runs.checkpoint import RunState
from fedtrain.runs.experiment import Experiment
from fedtrain.runs.folder import LAST_CHECKPOINT, SUMMARY_FILE, RunFolder
from fedtrain.runs.selection import MetricRow, find_best_round, summarise_rows
from fedtrain.utils.signals import defer_interrupts
from theory.errors import InputError

MAX_CHECKPOINT_TIME_SHARE = 0.05
"""Of the time of a run, at most so much goes into checkpoints."""
MIN_CHECKPOINT_INTERVAL = 30.0
"""Seconds from one checkpoint to the next, at least."""


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


class ResumableBackend(Backend, Protocol):
    """A fleet that can rest and go on."""

    def resume(self, state: RunState, folder: RunFolder) -> RunState:
        """Go on from a checkpoint; the state as this fleet holds it."""
        ...

    def persist_client_state(self, turns: Mapping[str, int]) -> None:
        """Have on a disk what clients that are elsewhere became in these rounds; a checkpoint is about to say so."""
        ...


def run_rounds(
    experiment: Experiment,
    folder: RunFolder,
    on_round: Callable[[RoundProgress], None],
    backend: ResumableBackend | None = None,
) -> dict[str, Any]:
    """Begin, or go on from the last checkpoint, until the last round; the summary.

    A round that is interrupted or fails is given up; what was complete before it is saved. Without a fleet, clients
    train in this process.
    """
    config, restored = experiment.config, folder.load_checkpoint()
    backend = backend or experiment.build_backend(folder.path)
    if restored is None:
        state = RunState(
            backend.initial_broadcast(),
            dict(backend.client_states),
            last_trained_round=dict(backend.last_trained_round),
        )
    elif {*restored.client_states, *restored.last_trained_round} != set(backend.client_names):
        raise InputError(f"{folder.path / LAST_CHECKPOINT}: of another network or other clients; start the run anew")
    else:
        state = backend.resume(restored, folder)
    folder.truncate_rows(state.rows_end)
    server, saved = config.server, CheckpointScheduler(backend, folder, config.checkpoints)
    rounds = federate(
        backend,
        state.message,
        server.rounds,
        participation=server.participation,
        weights=server.weights,
        seed=config.seed,
    )
    if restored is not None:
        folder.keep_checkpoint(
            restored.message.round, saved.count_to_keep(restored)
        )  # the process may have been killed before it was
    try:
        clock = time.perf_counter()
        for round in rounds:
            number = round.message.round
            due = config.evaluation.is_due(number, server.rounds)
            scores = evaluate_round(backend, round.message, config, folder.load_rows) if due else {}
            check_scores_finite(number, scores, config.local.lr)
            end = folder.append_rows(build_rows(number, scores)) if due else state.rows_end
            answers: list[Update | Failure] = [*round.updates, *round.failures]
            sent = partial(message_for, state.message, peers=server.peers, seed=config.seed)
            traffic = sum(
                (measure_exchange(sent(answer.client), answer, backend.batch_norm_names) for answer in answers),
                CommunicationCost(),
            )
            seconds = time.perf_counter() - clock
            state = RunState(
                round.message,
                dict(backend.client_states),
                state.communication + traffic,
                state.seconds + seconds,
                end,
                (*state.skipped, *({"round": number, **asdict(failure)} for failure in round.failures)),
                dict(backend.last_trained_round),
            )
            losses = {update.client: update.loss for update in round.updates}
            on_round(RoundProgress(number, losses, scores, traffic, seconds, round.failures))
            saved.save_if_due(state)
            clock = time.perf_counter()
    finally:
        if state.message.round:
            with defer_interrupts():  # a second Ctrl-C does not cost what the first one would save
                saved.save(state)
    summary = build_summary(experiment, folder, state)
    if summary["rules"]:  # clients that never answer can leave every evaluation incomplete
        draw_run_figures(folder, summary)
    folder.write_json(SUMMARY_FILE, summary)  # the last: it says that the run is finished
    return summary


def evaluate_round(
    backend: Backend, message: Broadcast, config: Config, load_known_rows: Callable[[], list[MetricRow]]
) -> dict[str, Scores]:
    """Evaluate every client; on test data too, unless they wait for a round that may be reported."""
    number, evaluation = message.round, config.evaluation
    splits: list[Split] = ["train", "val"] if evaluation.train else ["val"]
    if evaluation.always_tests(number, config.server.rounds):
        return backend.evaluate(message, [*splits, "test"])
    scores = backend.evaluate(message, splits)
    if find_best_round([*load_known_rows(), *build_rows(number, scores)]) != number:
        return scores
    tested = backend.evaluate(message, ["test"])
    return {name: {**scores[name], **more} for name, more in tested.items()}


class CheckpointScheduler:
    """Checkpoints now and then, so seldom that they cost little."""

    def __init__(self, backend: ResumableBackend, folder: RunFolder, settings: CheckpointSettings) -> None:
        self.backend, self.folder, self.settings = backend, folder, settings
        self.save_seconds, self.saved_at, self.saved_round = 0.0, time.perf_counter(), -1

    def count_to_keep(self, state: RunState) -> int:
        """How many are kept when this round's checkpoint is one of them; else 0."""
        stays = self.settings.every > 0 and state.message.round % self.settings.every == 0
        return self.settings.keep if stays else 0

    def save_if_due(self, state: RunState) -> None:
        """Save if it is time."""
        rested = time.perf_counter() - self.saved_at > max(
            MIN_CHECKPOINT_INTERVAL, self.save_seconds / MAX_CHECKPOINT_TIME_SHARE
        )
        if rested or self.count_to_keep(state):
            self.save(state)

    def save(self, state: RunState) -> None:
        """Save, unless just this was saved."""
        if self.saved_round == state.message.round:
            return
        start = time.perf_counter()
        self.backend.persist_client_state(state.last_trained_round)
        self.folder.save_checkpoint(state, keep=self.count_to_keep(state))
        self.saved_at, self.saved_round = time.perf_counter(), state.message.round
        self.save_seconds = self.saved_at - start


def check_scores_finite(round: int, scores: Mapping[str, Scores], lr: float) -> None:
    """The last step of a round can ruin a network whose losses were all finite; JSON has no word for NaN either."""
    for client, splits in scores.items():
        for split, branches in splits.items():
            for branch, score in branches.items():
                if not isfinite(score.loss):
                    raise TrainingError(
                        f"client {client}, round {round}: the {split} loss of {branch} is {score.loss}; "
                        f"lower local.lr ({lr})"
                    )


def build_rows(round: int, scores: Mapping[str, Scores]) -> list[MetricRow]:
    """One row for each client, split and branch."""
    return [
        {"round": round, "client": client, "split": split, "branch": branch, **asdict(score)}
        for client, parts in scores.items()
        for split, branches in parts.items()
        for branch, score in branches.items()
    ]


def build_summary(experiment: Experiment, folder: RunFolder, state: RunState) -> dict[str, Any]:
    """The results by every rule that applies, what they cost, and what must be known about them."""
    config, data = experiment.config, experiment.federation
    rounds = config.server.rounds
    rules = summarise_rows(folder.load_rows(), lambda round: config.evaluation.is_in_window(round, rounds))
    return {
        "finished": state.message.round >= rounds,
        "method": config.method_name,
        "dataset": config.data.dataset,
        "title": data.title,
        "standin": data.standin,
        "notes": list(data.notes),
        "skipped": [dict(one) for one in state.skipped],
        "rounds": state.message.round,
        "report": config.evaluation.report if config.evaluation.report in rules else next(iter(rules), "last"),
        "rules": rules,
        "bytes": state.communication.to_dict(),
        "seconds": state.seconds,
    }
