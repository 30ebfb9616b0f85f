"""What ``fedco2 forecast`` does once its options are read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import torch
from torch import Tensor

from cli.console import make_console, show_status_line
from cli.data.clients.run import build_data_settings
from cli.forecast.view import show_forecast
from fedtrain.analysis.kernel_problem import build_kernel_problem, count_used_samples
from fedtrain.data.build import build_federation
from fedtrain.data.partition.describe import describe_partition
from theory.cost import refuse_if_too_large
from theory.errors import InputError
from theory.forecast import FEDBN, FEDCO2, FOLDS, MATRICES_IN_MEMORY, SINGLESET, Forecast, Gain, forecast_methods
from theory.memory import get_available_memory
from theory.problem import Problem
from theory.user_data import DEFAULT_RIDGE, load_user_data

ALPHA = 0.5
"""The scale of the initial weights: how much v weighs against γ. As in `fedco2 theory`."""


@dataclass(frozen=True)
class ForecastRequest:
    """Whose data are looked at, and what must be said of them."""

    title: str
    names: list[str]
    problem: Problem
    labels: Tensor | None
    standin: bool
    notes: list[str]


def run(options: dict[str, Any]) -> None:
    """Look at the data, foretell, show."""
    asked = (
        build_file_request(options["path"], options["target"]) if options["path"] else build_dataset_request(options)
    )
    if len(asked.names) < 2:
        raise InputError("one client alone has nobody to learn with; give two or more")
    how = {"width": options["width"], "alpha": ALPHA, "seed": options["network_seed"]}
    with show_status_line(f"kernels of {len(asked.problem.x):,} samples in {asked.problem.dim:,} dimensions"):
        found = forecast_methods(asked.problem, asked.labels, **how, names=asked.names)
    report = {**build_report(asked, found), **how, "folds": FOLDS}
    if options["as_json"]:
        click.echo(json.dumps(report, ensure_ascii=False))
    else:
        show_forecast(make_console(), report)


def build_dataset_request(options: dict[str, Any]) -> ForecastRequest:
    """The training images of the clients that the options describe."""
    settings = build_data_settings(options)
    data = build_federation(settings, options["data_dir"])
    counts, held = count_used_samples(data, options["samples"]), [len(client.train) for client in data.clients]
    refuse_if_too_many(sum(counts), "lower --samples")
    with show_status_line("covariances of the clients"):
        images = build_kernel_problem(data, options["samples"], options["network_seed"])
    title = f"{data.title}: {describe_partition(settings)}"
    notes = [*data.notes, f"seen by a two-layer network, as images of {images.side} x {images.side} pixels"]
    if counts != held:
        notes.append(
            f"of {sum(held):,} training images {sum(counts):,} were drawn; --samples takes more of each client"
        )
    names = [client.name for client in data.clients]
    return ForecastRequest(title, names, images.problem, images.labels, data.standin, notes)


def build_file_request(path: Path, target: str) -> ForecastRequest:
    """The user's own data."""
    data = load_user_data(path, DEFAULT_RIDGE)
    refuse_if_too_many(len(data.file_rows), "give fewer rows")
    values, labels = data.problem.y.unique(return_inverse=True)
    whole = torch.equal(values, values.round()) and 2 <= len(values) <= len(labels) / FOLDS
    classes = whole if target == "auto" else target == "classes"
    note = f"y are taken as {f'{len(values)} classes' if classes else 'numbers'}"
    return ForecastRequest(
        path.name,
        data.client_names,
        data.problem,
        labels if classes else None,
        False,
        [note, *([data.centring] if data.centring else []), *data.violated_assumptions],
    )


def refuse_if_too_many(samples: int, remedy: str) -> None:
    """Of whom no kernels fit in memory."""
    refuse_if_too_large(MATRICES_IN_MEMORY * 8 * samples**2, get_available_memory(), remedy)


def build_report(asked: ForecastRequest, found: Forecast) -> dict[str, Any]:
    """All that is foretold, as JSON can hold it."""
    each, gains = {method: found.compute_client_scores(method) for method in found.scores}, found.compute_client_gains()
    rows = [
        {
            "name": name,
            "samples": asked.problem.sizes[i],
            "scores": {method: scores[i] for method, scores in each.items()},
            "federation": summarize_gain(gains[i]),
        }
        for i, name in enumerate(asked.names)
    ]
    means = {method: found.compute_mean_score(method) for method in found.scores}
    three = sorted((SINGLESET, FEDBN, FEDCO2), key=lambda method: -means[method])
    return {
        "title": asked.title,
        "standin": asked.standin,
        "notes": asked.notes,
        "score": "share of right classes" if asked.labels is not None else "share of the variance that is explained",
        "clients": rows,
        "mean": means,
        "federation": summarize_gain(found.compute_mean_gain(SINGLESET, FEDBN)),
        "first": {
            "method": three[0],
            "second": three[1],
            **summarize_gain(found.compute_mean_gain(three[1], three[0])),
        },
        "ridges": found.ridges,
    }


def summarize_gain(gain: Gain) -> dict[str, Any]:
    """A difference, its standard error, and in a word."""
    return {"gain": gain.mean, "error": gain.standard_error, "word": gain.effect}
