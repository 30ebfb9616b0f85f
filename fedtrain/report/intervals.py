"""Bootstrap intervals of scores, from the predictions that a run has saved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from fedtrain.metrics import compute_metrics
from fedtrain.registry import MetricName
from fedtrain.report.significance import CONFIDENCE_LEVEL
from fedtrain.runs.predictions import PREDICTIONS_FILE, SavedPredictions, load_predictions

RESAMPLES = 200
"""Draws of as many test samples as each client has, with replacement."""
Interval = tuple[float, float]


class ScoreIntervals(TypedDict):
    """Intervals of 95 %, by score; null where it is undefined in more than half of the draws."""

    round: int
    """The round that the predictions are of."""
    clients: dict[str, dict[str, Interval | None]]
    mean: dict[str, Interval | None]
    """Of the mean over clients, each resampled by itself."""


def load_run_predictions(path: Path) -> SavedPredictions | None:
    """Those in the folder of a run, if it has saved any."""
    file = path / PREDICTIONS_FILE
    return load_predictions(file) if file.exists() else None


def compute_intervals(
    found: SavedPredictions, metrics: Sequence[MetricName], branch: str = "fused", resamples: int = 0
) -> ScoreIntervals:
    """Of accuracy and of further scores, from so many draws or `RESAMPLES`; they are the same each time."""
    resamples = resamples or RESAMPLES
    values = {
        client: _resample(mine, place, metrics, branch, resamples)
        for place, client in enumerate(found.clients)
        if len((mine := found.select(client)).label)
    }
    stack = np.stack(list(values.values()))  # clients x draws x scores
    names = ["accuracy", *metrics]
    with np.errstate(invalid="ignore"):
        counts = np.isfinite(stack).sum(0)
        means = np.where(counts, np.nansum(stack, 0), np.nan) / np.maximum(counts, 1)
    return {
        "round": found.round,
        "clients": {client: _find_intervals(names, each) for client, each in values.items()},
        "mean": _find_intervals(names, means),
    }


def _resample(
    mine: SavedPredictions, place: int, metrics: Sequence[MetricName], branch: str, resamples: int
) -> NDArray[np.float64]:
    """Accuracy and scores of each draw; NaN where undefined."""
    chance = np.random.default_rng([place, len(mine.label)])
    p, y, right = mine.compute_probabilities(branch), mine.label, mine.is_right(branch)
    rows = []
    for _ in range(resamples):
        drawn = chance.integers(len(y), size=len(y))
        scores: dict[str, Any] = compute_metrics(metrics, p[drawn], y[drawn])
        rows.append([right[drawn].mean(), *(np.nan if value is None else value for value in scores.values())])
    return np.array(rows, dtype=np.float64)


def _find_intervals(names: Sequence[str], draws: NDArray[np.float64]) -> dict[str, Interval | None]:
    tails = [50 * (1 - CONFIDENCE_LEVEL), 50 * (1 + CONFIDENCE_LEVEL)]
    found: dict[str, Interval | None] = {}
    for name, each in zip(names, draws.T, strict=True):
        defined = each[np.isfinite(each)]
        low, high = np.percentile(defined, tails) if 2 * len(defined) > len(each) else (np.nan, np.nan)
        found[name] = None if np.isnan(low) else (float(low), float(high))
    return found
