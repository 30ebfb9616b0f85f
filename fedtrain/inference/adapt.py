"""A newcomer gets a personal part of its own: a client that was never seen, adapted with a few labelled samples.

What is shared is taken as it is, and stays so. What is personal begins as the method has it: personal normalisation
with the mean over the known clients, a second model as a copy of the shared one, everything else as every client began.
Then the statistics of personal batch norm become those of the newcomer's own inputs, which needs no labels. With
labelled samples, *shots*, the personal part is trained on these with the loss of the method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import torch

from fedtrain.aggregators import average_states
from fedtrain.data.client_data import ClientData, Samples
from fedtrain.data.importing.train_test_split import interleave_classes
from fedtrain.federated.messages import Score
from fedtrain.inference.trained_run import TrainedRun, load_trained_run
from fedtrain.inference.unseen_client import (
    BRANCH_CHOICES,
    MAX_IMAGES,
    MIN_IMAGES,
    BranchChoice,
    estimate_running_statistics,
    find_personal_norm_layers,
)
from fedtrain.parameters import StateDict, copy_entries, entries_under, norm_entries
from fedtrain.registry import MetricName
from fedtrain.runs.callbacks import Callback, RunStart
from fedtrain.runs.folder import RunFolder
from fedtrain.runs.json_types import AdaptationReport, AdaptedScore, RunSummary
from theory.errors import InputError

PASSES = 50
"""Over the shots, unless told otherwise."""
STARTS = {
    "fedco2": ("online", "offline"),
    **dict.fromkeys(("ditto", "pfedme", "apfl", "fml"), ("generic", "personal")),
}
"""Methods with a second model, which for a newcomer begins as a copy of the first."""
HELD_OUT_FILE = "held-out.json"


@dataclass(frozen=True)
class AdaptedClient:
    """What a newcomer got, and what it is worth on its test part."""

    client: str
    shots: int
    """Labelled samples that it was trained on."""
    passes: int
    personal: StateDict
    """Its personal entries; all others are the run's."""
    branch_before: str
    before: Score
    """Of a client that nothing is known of."""
    branch_after: str
    after: Score
    notes: tuple[str, ...] = ()

    def to_dict(self) -> AdaptationReport:
        """As JSON has it, without the entries."""

        def describe(branch: str, score: Score) -> AdaptedScore:
            return {"branch": branch, "accuracy": score.accuracy, "loss": score.loss, "metrics": dict(score.metrics)}

        return {
            "client": self.client,
            "shots": self.shots,
            "passes": self.passes,
            "test_samples": self.after.n,
            "before": describe(self.branch_before, self.before),
            "after": describe(self.branch_after, self.after),
            "notes": list(self.notes),
        }


def adapt_client(
    run: TrainedRun,
    data: ClientData,
    shots: int,
    *,
    passes: int = PASSES,
    lr: float | None = None,
    seed: int = 0,
    metrics: Sequence[MetricName] | None = None,
) -> AdaptedClient:
    """Give a client that was never seen its personal part, and measure it before and after.

    Args:
        run: A trained run; nothing of it changes.
        data: The newcomer. Of its training part it takes the inputs of all and the labels of the shots.
        shots: How many labelled samples, drawn in proportion to their classes.
        passes: How often it goes over them.
        lr: Learning rate; without it the run's.
        seed: Of the choice of shots.
        metrics: Further scores; without it those of the run.
    """
    title, trainer = run.config.method.title, run.trainer
    known = [client.name for client in run.federation.clients]
    if data.name in known:
        raise InputError(f"client {data.name} took part in training and has its model; give one that did not")
    if not 0 <= shots <= len(data.train):
        raise InputError(f"shots is {shots}; client {data.name} has {len(data.train)} training samples, take fewer")
    if passes < 1:
        raise InputError(f"passes is {passes}; it must be at least 1")
    if run.config.method.needs_training_data and not shots:
        raise InputError(f"{title} looks at labelled samples of a client before it predicts; give at least one shot")
    data, message = data.to(trainer.device), run.broadcast_for(data.name)
    chosen = torch.from_numpy(interleave_classes(data.train.labels.cpu().numpy(), seed)[:shots]).to(trainer.device)
    labelled = Samples(data.train.inputs[chosen], data.train.labels[chosen])
    shown = replace(data, train=labelled, val=None)
    way = BRANCH_CHOICES.get(run.config.method_name, BranchChoice("", "fused"))
    start = build_start(run, data.name, way)

    def score(personal: StateDict, branch: str) -> Score:
        return trainer.evaluate(shown, personal, message, ["test"], metrics)["test"][branch]

    before = score(start, way.branch)
    personal = estimate_statistics(run, data, start)
    if shots:
        personal = trainer.adapt(shown, personal, message, passes, lr or run.config.local.lr)
        personal = estimate_statistics(run, data, personal)
    branch = "fused" if shots else way.branch
    notes = describe_start(run, way)
    return AdaptedClient(
        data.name, shots, passes if shots else 0, personal, way.branch, before, branch, score(personal, branch), notes
    )


def build_start(run: TrainedRun, name: str, way: BranchChoice) -> StateDict:
    """The personal part of a client of whom nothing is known."""
    trainer, module = run.trainer, run.trainer.module
    start = trainer.initial_client_state(name)
    shared, inside = run.state.message.shared, entries_under(module, way.path)
    norm = trainer.personal_names & inside & norm_entries(module, run.config.method.personal_norm)
    if norm and trainer.shared_names & inside:
        each = [run.state.client_states[client.name] for client in run.federation.clients]
        mean = average_states([{name: state[name] for name in norm} for state in each], [1.0] * len(each))
        start = {**start, **mean}
    if paths := STARTS.get(run.config.method_name):
        first, second = paths
        copied = {
            f"{second}.{name.removeprefix(f'{first}.')}": value.clone()
            for name, value in {**start, **shared}.items()
            if name.startswith(f"{first}.")
        }
        start = {name: copied.get(name, value) for name, value in start.items()}
    return start


def describe_start(run: TrainedRun, way: BranchChoice) -> tuple[str, ...]:
    """What must be said where the branch before adaptation has parts that were never trained, or none that may be."""
    trainer, module = run.trainer, run.trainer.module
    norm = norm_entries(module, run.config.method.personal_norm)
    if trainer.personal_names & entries_under(module, way.path) - norm:
        return ("part of its model is personal and begins untrained: before adaptation it can only guess",)
    if run.config.method.needs_training_data:
        return (f"{run.config.method.title} looks at the shots whenever it predicts, and keeps nothing of them",)
    if not trainer.personal_names & trainer.parameter_names:
        return (f"{run.config.method.title} has no personal part that is trained: nothing changes",)
    return ()


def estimate_statistics(run: TrainedRun, data: ClientData, personal: StateDict) -> StateDict:
    """The same entries with statistics of personal batch norm as the client's own inputs have them, labels unseen."""
    trainer, inputs = run.trainer, data.train.inputs
    layers = find_personal_norm_layers(trainer.module, trainer.personal_names)
    if not layers:
        return personal
    if len(inputs) < MIN_IMAGES:
        raise InputError(
            f"client {data.name}: {len(inputs)} training sample is too few to take statistics from; give it at least "
            f"{MIN_IMAGES}"
        )
    rows = torch.linspace(0, len(inputs) - 1, min(len(inputs), MAX_IMAGES)).round().long()
    with estimate_running_statistics(layers):
        trainer.predict(replace(data, noise=0.0), personal, run.broadcast_for(data.name), inputs[rows])
    return copy_entries(trainer.module, trainer.personal_names)


class ReportHeldOut(Callback):
    """Writes ``held-out.json`` into the folder of a run when it ends: the held-out client without a single label."""

    def on_run_start(self, start: RunStart) -> None:
        """Remember what is trained."""
        self.experiment = start.experiment

    def on_run_end(self, folder: RunFolder, summary: RunSummary) -> None:
        """Judge the last weights, which are saved by now."""
        held_out, method = self.experiment.federation.held_out, self.experiment.config.method
        if held_out is None or method.needs_training_data:
            return
        run = load_trained_run(folder.path, build_model=self.experiment.build_model)
        folder.write_json(HELD_OUT_FILE, adapt_client(run, held_out, 0).to_dict())


def load_held_out(folder: Path) -> AdaptationReport | None:
    """What a run says of its held-out client, if it has one."""
    if not (folder / HELD_OUT_FILE).exists():
        return None
    return cast(AdaptationReport, RunFolder(folder).read_json(HELD_OUT_FILE))
