"""A finished run evaluated again, on the very data that it was trained with."""

from __future__ import annotations

from pathlib import Path

from fedtrain.data.build import assemble_federation
from fedtrain.data.client_data import Federation
from fedtrain.data.errors import DataError
from fedtrain.data.own_clients import OWN_DATASET
from fedtrain.data.source import load_dataset
from fedtrain.data.storage.store import resolve_data_dir
from fedtrain.federated.messages import Split
from fedtrain.inference.trained_run import TrainedRun
from fedtrain.runs.json_types import MetricRow
from fedtrain.runs.loop import build_rows
from theory.errors import InputError


def load_run_data(run: TrainedRun, root: Path | None = None) -> Federation:
    """The data of a run; ``root`` is their folder if not the usual one. Other data are refused."""
    if run.config.data.dataset == OWN_DATASET:
        raise InputError(f"{run.folder.path} was trained on clients given in Python; give them again: clients=[...]")
    standin = run.federation.standin
    settings = run.config.data.with_resolved_source(standin=standin)  # what ``auto`` meant then
    data = assemble_federation(settings, load_dataset(settings, root))
    check_run_data(run, data, root)
    return data


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


def evaluate_clients(run: TrainedRun, data: Federation, split: Split, only: str | None = None) -> list[MetricRow]:
    """Rows as in metrics.jsonl, for the last checkpoint: each client's own model on the client's own data."""
    known = {client.name: client for client in data.clients}
    trainer, state, scores = run.trainer, run.state, {}
    for name in known if only is None else [run.get_client(only).name]:
        scores[name] = trainer.evaluate(
            known[name].to(trainer.device), state.client_states[name], run.broadcast_for(name), [split]
        )
        if split not in scores[name]:
            raise InputError(f"client {name} has no {split} data in this run; choose another", options=("split",))
    return build_rows(state.message.round, scores)
