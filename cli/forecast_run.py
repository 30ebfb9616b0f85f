"""What ``fedco2 forecast`` does once its options are read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import torch
from torch import Tensor

from cli.console import console, working
from cli.data_clients_run import settings_of
from cli.forecast_view import show
from fedtrain.about.outlook import seen
from fedtrain.data.federation import federation
from fedtrain.data.words import partition_words
from theory.errors import InputError
from theory.forecast import FEDBN, FEDCO2, SINGLESET, Forecast, Gain, forecast
from theory.problem import Problem
from theory.userdata import read

RIDGE = 1e-3
"""Of covariances, as a share of the mean variance."""
MOST_CLASSES = 100
"""Whole numbers with more different values than these are numbers, not classes."""
LARGEST = 20_000
"""Samples of all clients whose kernels fit a machine."""


@dataclass(frozen=True)
class Asked:
    """Whose data are looked at, and what must be said of them."""

    title: str
    names: list[str]
    problem: Problem
    labels: Tensor | None
    standin: bool
    notes: list[str]


def run(options: dict[str, Any]) -> None:
    """Look at the data, foretell, show."""
    asked = of_file(options["path"]) if options["path"] else of_dataset(options)
    if len(asked.problem.x) > LARGEST:
        raise InputError(f"{len(asked.problem.x):,} samples; kernels of at most {LARGEST:,} fit: lower --samples")
    if len(asked.names) < 2:
        raise InputError("one client alone has nobody to learn with; give two or more")
    with working(f"kernels of {len(asked.problem.x):,} samples in {asked.problem.dim:,} dimensions"):
        found = forecast(asked.problem, asked.labels, width=options["width"], seed=options["network_seed"])
    told = report(asked, found)
    if options["as_json"]:
        click.echo(json.dumps(told, ensure_ascii=False))
    else:
        show(console(), told)


def of_dataset(options: dict[str, Any]) -> Asked:
    """The training images of the clients that the options describe."""
    settings = settings_of(options)
    data = federation(settings, options["data_dir"])
    images = seen(data, options["samples"], RIDGE, options["network_seed"])
    title = f"{data.title}: {partition_words(settings)}"
    notes = [*data.notes, f"seen by a two-layer network, as images of {images.side} x {images.side} pixels"]
    names = [client.name for client in data.clients]
    return Asked(title, names, images.problem, images.labels, data.standin, notes)


def of_file(path: Path) -> Asked:
    """The user's own data: y are classes if they are few whole numbers."""
    data = read(path, RIDGE)
    values, labels = data.problem.y.unique(return_inverse=True)
    classes = len(values) <= MOST_CLASSES and torch.equal(values, values.round())
    note = f"y are taken as {f'{len(values)} classes' if classes else 'numbers'}"
    return Asked(path.name, data.names, data.problem, labels if classes else None, False, [note])


def report(asked: Asked, found: Forecast) -> dict[str, Any]:
    """All that is foretold, as JSON can hold it."""
    gains = found.gains()
    rows = [
        {
            "name": name,
            "samples": asked.problem.sizes[i],
            "scores": {method: found.of(method)[i] for method in found.scores},
            "federation": said(gains[i]),
        }
        for i, name in enumerate(asked.names)
    ]
    means = {method: found.mean(method) for method in found.scores}
    three = sorted((SINGLESET, FEDBN, FEDCO2), key=lambda method: -means[method])
    return {
        "title": asked.title,
        "standin": asked.standin,
        "notes": asked.notes,
        "score": "share of right classes" if asked.labels is not None else "share of the variance that is explained",
        "clients": rows,
        "mean": means,
        "federation": said(found.gain(SINGLESET, FEDBN)),
        "first": {"method": three[0], "second": three[1], **said(found.gain(three[1], three[0]))},
        "ridges": found.ridges,
    }


def said(gain: Gain) -> dict[str, Any]:
    """A difference, its standard error, and in a word."""
    return {"gain": gain.mean, "error": gain.error, "word": gain.word}
