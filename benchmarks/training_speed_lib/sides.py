"""The rounds of either side, each begun on a signal: the plain literal loop, and fedtrain's backend."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import reference

from fedtrain.federated.messages import Scores, Split
from fedtrain.federated.server import federate
from fedtrain.runs.experiment import Experiment
from training_speed_lib.published_data import SAMPLE_LOADERS, write_client_images

RoundCallback = Callable[[int], None]
"""Called before each round, counted from 0, which begins when it returns."""


def run_reference_rounds(
    experiment: Experiment, splits: Sequence[Split], rounds: int, pace: RoundCallback, published: bool
) -> reference.Result:
    """The literal loop; with ``published`` it also reads its data as the published code does."""
    config, data, local = experiment.config, experiment.federation, experiment.config.local
    preset = config.data.dataset
    # The literal loop keeps batch norm personal, as these networks have no other; None is a part that was not chosen.
    options = {name: value for name, value in asdict(config.method).items() if name != "norm" and value is not None}
    opened = SAMPLE_LOADERS.get(preset) if published else None
    with tempfile.TemporaryDirectory() as folder:
        in_files = opened and preset == "office"
        clients = [write_client_images(client, Path(folder)) for client in data.clients] if in_files else data.clients
        return reference.run_reference(
            config.method_name, experiment.get_model_builder(), clients,
            rounds=rounds, classes=len(data.classes), seed=config.seed, lr=local.lr, momentum=local.momentum,
            weight_decay=local.weight_decay, epochs=local.epochs, batch_size=local.batch_size,
            participation=config.server.participation, weights=config.server.weights, mean=data.preprocessing.mean,
            std=data.preprocessing.std, evaluate_train="train" in splits, before_round=pace, load_sample=opened,
            **options,
        )  # fmt: skip


def run_backend_rounds(
    experiment: Experiment, splits: Sequence[Split], rounds: int, pace: RoundCallback
) -> list[dict[str, Scores]]:
    """The rounds of ``fedco2 train``; the scores after each."""
    backend, server, seed = experiment.build_backend(), experiment.config.server, experiment.config.seed
    coming = federate(
        backend,
        backend.initial_broadcast(),
        rounds,
        participation=server.participation,
        weights=server.weights,
        seed=seed,
    )
    scores = []
    for round in range(rounds):
        pace(round)
        scores.append(backend.evaluate(next(coming).message, splits))
    return scores
