"""From the first round to the summary: train, aggregate, evaluate, record, checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from math import isfinite
from typing import Protocol

from fedtrain.config.schema import CheckpointSettings, Config
from fedtrain.errors import TrainingError
from fedtrain.extensions.source import locate_own_code
from fedtrain.federated.backend import Backend
from fedtrain.federated.communication import CommunicationCost, measure_exchange
from fedtrain.federated.messages import Broadcast, Failure, Score, Scores, Split, Update
from fedtrain.federated.server import federate, sample_evaluated_clients
from fedtrain.runs.callbacks import Callback, CallbackList, RoundProgress, RunStart
from fedtrain.runs.checkpoint import RunState
from fedtrain.runs.experiment import Experiment
from fedtrain.runs.folder import LAST_CHECKPOINT, SUMMARY_FILE, RunFolder
from fedtrain.runs.json_types import Manifest, MetricRow, RunSummary, SkippedClient
from fedtrain.runs.resume import prepare_resume
from fedtrain.runs.selection import find_best_round, summarise_gaps, summarise_rows
from fedtrain.utils.signals import defer_interrupts
from theory.errors import InputError

MAX_CHECKPOINT_TIME_SHARE = 0.05
"""Of the time of a run, at most so much goes into checkpoints."""
MIN_CHECKPOINT_INTERVAL = 30.0
"""Seconds from one checkpoint to the next, at least."""


class ResumableBackend(Backend, Protocol):
    """A backend that can save its clients' state and go on from it."""

    def resume(self, state: RunState, folder: RunFolder) -> RunState:
        """Go on from a checkpoint; the state as this backend holds it."""
        ...

    def persist_client_state(self, turns: Mapping[str, int]) -> None:
        """Have on a disk what clients that are elsewhere became in these rounds; a checkpoint is about to say so."""
        ...


def run_experiment(
    experiment: Experiment,
    folder: RunFolder,
    manifest: Manifest,
    callbacks: Sequence[Callback] = (),
    open_backend: Callable[[], AbstractContextManager[ResumableBackend]] | None = None,
) -> RunSummary:
    """Begin the run in this folder, or go on with it, until the last round; the summary.

    Without ``open_backend``, clients train in this process.
    """
    with folder.exclusive_lock():
        if folder.has_run:
            for note in prepare_resume(folder, experiment.config, manifest):
                CallbackList(callbacks).on_note(note)
        else:
            folder.begin(experiment.config, manifest)
        if open_backend is None:
            return run_rounds(experiment, folder, callbacks)
        with open_backend() as backend:
            return run_rounds(experiment, folder, callbacks, backend)


def run_rounds(
    experiment: Experiment,
    folder: RunFolder,
    callbacks: Sequence[Callback] = (),
    backend: ResumableBackend | None = None,
) -> RunSummary:
    """Make rounds from the last checkpoint, or from the first, to the last; the summary.

    A round that is interrupted or fails is given up; what was complete before it is saved.
    """
    watch = CallbackList(callbacks)
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
    evaluated = sample_evaluated_clients(backend.client_names, config.evaluation.clients, config.seed)
    server, saved = config.server, CheckpointScheduler(backend, folder, config.checkpoints, watch)
    rounds = federate(
        backend,
        state.message,
        server.rounds,
        participation=server.participation,
        weights=server.weights,
        aggregator=config.aggregator,
        remembered=state.server,
        codec=server.codec,
        seed=config.seed,
    )
    if restored is not None:
        folder.keep_checkpoint(
            restored.message.round, saved.count_to_keep(restored)
        )  # the process may have been killed before it was
    try:
        watch.on_run_start(RunStart(experiment, folder, state.message.round))
        if note := experiment.fast_path_note:
            watch.on_note(note)
        clock = time.perf_counter()
        for number in range(state.message.round + 1, server.rounds + 1):
            watch.on_round_start(number)
            round = next(rounds)
            due = config.evaluation.is_due(number, server.rounds)
            scores = evaluate_round(backend, round.message, config, evaluated, folder.load_rows) if due else {}
            check_scores_finite(number, scores, config)
            rows = build_rows(number, scores)
            end = folder.append_rows(rows) if due else state.rows_end
            if due:
                watch.on_evaluation(number, rows)
            answers: list[Update | Failure] = [*round.updates, *round.failures]
            sent = partial(backend.delivery.encode_for, state.message)
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
                (
                    *state.skipped,
                    *(SkippedClient(round=number, client=one.client, reason=one.reason) for one in round.failures),
                ),
                dict(backend.last_trained_round),
                round.remembered,
            )
            losses = {update.client: update.loss for update in round.updates}
            watch.on_round_end(RoundProgress(number, losses, scores, traffic, seconds, round.failures))
            saved.save_if_due(state)
            clock = time.perf_counter()
    except BaseException as error:
        save_finished_rounds(saved, state)
        watch.on_run_stop(error)
        raise
    save_finished_rounds(saved, state)
    summary = build_summary(experiment, folder, state)
    watch.on_run_end(folder, summary)
    folder.write_json(SUMMARY_FILE, summary)  # the last: it says that the run is finished
    return summary


def save_finished_rounds(saved: CheckpointScheduler, state: RunState) -> None:
    """Save what is complete; a second Ctrl-C does not cost what the first one would save."""
    if state.message.round:
        with defer_interrupts():
            saved.save(state)


def evaluate_round(
    backend: Backend,
    message: Broadcast,
    config: Config,
    clients: Collection[str],
    load_known_rows: Callable[[], list[MetricRow]],
) -> dict[str, Scores]:
    """Evaluate these clients; on test data too, unless they wait for a round that may be reported."""
    number, evaluation = message.round, config.evaluation
    splits: list[Split] = ["train", "val"] if evaluation.train else ["val"]
    if evaluation.always_tests(number, config.server.rounds):
        return backend.evaluate(message, [*splits, "test"], clients)
    scores = backend.evaluate(message, splits, clients)
    if find_best_round([*load_known_rows(), *build_rows(number, scores)]) != number:
        return scores
    tested = backend.evaluate(message, ["test"], clients)
    return {name: {**scores[name], **more} for name, more in tested.items()}


class CheckpointScheduler:
    """Checkpoints now and then, so seldom that they cost little."""

    def __init__(
        self, backend: ResumableBackend, folder: RunFolder, settings: CheckpointSettings, watch: Callback
    ) -> None:
        self.backend, self.folder, self.settings, self.watch = backend, folder, settings, watch
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
        self.watch.on_checkpoint(state.message.round, self.folder.path / LAST_CHECKPOINT)


def check_scores_finite(round: int, scores: Mapping[str, Scores], config: Config) -> None:
    """The last step of a round can ruin a network whose losses were all finite; JSON has no word for NaN either."""
    where = locate_own_code(config.method.branches, type(config.method))
    for client, splits in scores.items():
        for split, branches in splits.items():
            for branch, score in branches.items():
                if not isfinite(score.loss):
                    raise TrainingError(
                        f"client {client}, round {round}: the {split} loss of {branch} is {score.loss}{where}; "
                        f"lower local.lr ({config.local.lr})"
                    )


def build_rows(round: int, scores: Mapping[str, Scores]) -> list[MetricRow]:
    """One row for each client, split and branch."""
    return [
        build_row(round, client, split, branch, score)
        for client, parts in scores.items()
        for split, branches in parts.items()
        for branch, score in branches.items()
    ]


def build_row(round: int, client: str, split: str, branch: str, score: Score) -> MetricRow:
    """One of them; further scores are there only if the run has any."""
    row: MetricRow = {
        "round": round,
        "client": client,
        "split": split,
        "branch": branch,
        "accuracy": score.accuracy,
        "loss": score.loss,
        "n": score.n,
    }
    if score.metrics:
        row["metrics"] = dict(score.metrics)
    return row


def build_summary(experiment: Experiment, folder: RunFolder, state: RunState) -> RunSummary:
    """The results by every rule that applies, what they cost, and what must be known about them."""
    config, data = experiment.config, experiment.federation
    rounds = config.server.rounds
    rules = summarise_rows(folder.load_rows(), lambda round: config.evaluation.is_in_window(round, rounds))
    gaps = {rule: gap for rule, found in rules.items() if (gap := summarise_gaps(found["clients"], found["mean"]))}
    return {
        "finished": state.message.round >= rounds,
        "method": config.method_name,
        "dataset": config.data.dataset,
        "title": data.title,
        "standin": data.standin,
        "notes": list(data.notes),
        "skipped": list(state.skipped),
        "rounds": state.message.round,
        "report": config.evaluation.report if config.evaluation.report in rules else next(iter(rules), "last"),
        "rules": rules,
        **({"gap": gaps} if gaps else {}),  # type: ignore[typeddict-item]
        "bytes": state.communication.to_dict(),
        "seconds": state.seconds,
    }
