"""A finished run evaluated again, on the very data that it was trained with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedtrain.data.build import assemble_federation
from fedtrain.data.client_data import ClientData, Federation
from fedtrain.data.errors import DataError
from fedtrain.data.own_clients import OWN_DATASET
from fedtrain.data.source import load_dataset
from fedtrain.data.storage.store import resolve_data_dir
from fedtrain.federated.client import select_split
from fedtrain.federated.messages import Split
from fedtrain.inference.trained_run import TrainedRun, load_trained_run
from fedtrain.registry import FUSION_RULES, MetricName
from fedtrain.runs.callbacks import Callback, RunStart
from fedtrain.runs.folder import RunFolder
from fedtrain.runs.json_types import MetricRow, RunSummary
from fedtrain.runs.loop import build_rows
from fedtrain.runs.predictions import (
    PREDICTIONS_FILE,
    SavedPredictions,
    identify_samples,
    join_predictions,
    save_predictions,
)
from theory.errors import InputError
from theory.text import suggest_name


def load_run_data(run: TrainedRun, root: Path | None = None) -> Federation:
    """The data of a run; ``root`` is their folder if not the usual one. Other data are refused."""
    if run.config.data.dataset == OWN_DATASET:
        raise InputError(
            f"{run.folder.path} was trained on clients given in Python; there, give them again: clients=[...]"
        )
    standin = run.federation.standin
    settings = run.config.data.with_resolved_source(standin=standin)  # what ``auto`` meant then
    data = assemble_federation(settings, load_dataset(settings, root))
    check_run_data(run, data, root)
    return data


def load_held_out_data(run: TrainedRun, root: Path | None = None) -> ClientData:
    """The client that was held out of a run."""
    if run.config.data.hold_out is None:
        raise InputError(
            f"{run.folder.path} was trained on all of its clients; give the data of the new one", options=("data",)
        )
    held_out = load_run_data(run, root).held_out
    assert held_out is not None
    return held_out


def check_run_data(run: TrainedRun, data: Federation, root: Path | None = None) -> None:
    """Refuse other data than the run was trained with."""
    standin = run.federation.standin
    if data.fingerprint != run.manifest["data"]["sha256"]:
        other = (
            "this version draws another stand-in" if standin else f"the files in {resolve_data_dir(root)} are others"
        )
        way = "use the version that trained it" if standin else "name the folder of its data"
        raise DataError(
            f"{run.folder.path}: it was trained on other data ({other}); {way}, or train anew",
            options=() if standin else ("data_dir",),
        )


def evaluate_clients(
    run: TrainedRun,
    data: Federation,
    split: Split,
    only: str | None = None,
    metrics: Sequence[MetricName] | None = None,
) -> list[MetricRow]:
    """Rows as in metrics.jsonl, for the last checkpoint: each client's own model on the client's own data.

    Without ``metrics``, those that the run has.
    """
    known = {client.name: client for client in data.clients}
    trainer, state, scores = run.trainer, run.state, {}
    for name in known if only is None else [run.get_client(only).name]:
        scores[name] = trainer.evaluate(
            known[name].to(trainer.device), state.client_states[name], run.broadcast_for(name), [split], metrics
        )
        if split not in scores[name]:
            raise InputError(f"client {name} has no {split} data in this run; choose another", options=("split",))
    return build_rows(state.message.round, scores)


def change_fusion(run: TrainedRun, data: Federation, rule: str) -> TrainedRun:
    """The run with another fusion of its branches; where clients choose it, they choose now, on validation data."""
    if rule not in FUSION_RULES:
        raise InputError(f"unknown fusion {rule!r}; {suggest_name(rule, FUSION_RULES)}", options=("fusion",))
    trainer, state = run.trainer.with_fusion(rule), run.state
    if trainer.chooses_fusion and not any(client.val for client in data.clients):
        raise InputError(
            f"{run.folder.path}: no client has validation data to choose a fusion by; train with "
            "data.validation_share = 0.1, or take another fusion",
            options=("fusion",),
        )
    states = {}
    for client in data.clients:
        name = client.name
        old = state.client_states[name]
        personal = {key: old.get(key, value) for key, value in trainer.initial_client_state(name).items()}
        states[name] = trainer.choose_fusion(client.to(trainer.device), personal, run.broadcast_for(name))
    config = replace(run.config, method=trainer.method)
    return replace(run, trainer=trainer, config=config, state=replace(state, client_states=states))


def collect_predictions(
    run: TrainedRun, data: Federation, splits: Sequence[Split] = ("val", "test")
) -> SavedPredictions:
    """What the last checkpoint says of every sample of these splits, each client's own model of the client's own."""
    names = tuple(client.name for client in data.clients)
    parts = []
    for place, client in enumerate(data.clients):
        mine, message = client.to(run.trainer.device), run.broadcast_for(client.name)
        for number, split in enumerate(splits):
            if not (samples := select_split(client, split)):
                continue
            logits = run.trainer.predict_split(mine, run.state.client_states[client.name], message, split)
            labels = samples.labels.cpu().numpy()
            parts.append(
                SavedPredictions(
                    message.round,
                    names,
                    tuple(splits),
                    np.full(len(labels), place),
                    np.full(len(labels), number),
                    identify_samples(samples),
                    labels,
                    {branch: each.float().numpy() for branch, each in logits.items()},
                )
            )
    return join_predictions(parts)


class SavePredictions(Callback):
    """Writes ``predictions.npz`` into the folder of a run when it ends; an earlier file is replaced."""

    def on_run_start(self, start: RunStart) -> None:
        """Remember what is trained."""
        self.experiment = start.experiment

    def on_run_end(self, folder: RunFolder, summary: RunSummary) -> None:
        """Predict with the last weights, which are saved by now."""
        run = load_trained_run(folder.path, build_model=self.experiment.build_model)
        save_predictions(folder.path / PREDICTIONS_FILE, collect_predictions(run, self.experiment.federation))
