"""McNemar's test: two runs compared on the very same samples, from the predictions that they have saved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from fedtrain.runs.predictions import SavedPredictions

ALL_CLIENTS = "all"


class SampleTestEntry(TypedDict):
    """McNemar's test on a client's samples, or on all."""

    name: str
    samples: int
    only_a: int
    only_b: int
    p: float


@dataclass(frozen=True)
class SampleTest:
    """The samples on which exactly one of two runs is right, and how likely so uneven a split of them is by chance."""

    name: str
    """A client, or all."""
    samples: int
    """That both runs have predicted."""
    only_a: int
    """On which A is right and B is wrong."""
    only_b: int
    p: float
    """Exact and two-sided: if the runs are equally good, each such sample is a fair coin."""

    def to_dict(self) -> SampleTestEntry:
        """As JSON can hold it."""
        return {
            "name": self.name,
            "samples": self.samples,
            "only_a": self.only_a,
            "only_b": self.only_b,
            "p": self.p,
        }


def compare_samples(a: SavedPredictions, b: SavedPredictions) -> list[SampleTest]:
    """One test for each client, and one for all their samples together."""
    tests: list[SampleTest] = []
    for client in a.clients:
        mine, theirs = a.select(client), b.select(client)
        rows, other_rows = match_samples(mine.sample, theirs.sample)
        right, other_right = mine.is_right()[rows], theirs.is_right()[other_rows]
        only_a, only_b = int((right & ~other_right).sum()), int((other_right & ~right).sum())
        tests.append(SampleTest(client, len(rows), only_a, only_b, compute_mcnemar_p(only_a, only_b)))
    only_a, only_b = sum(one.only_a for one in tests), sum(one.only_b for one in tests)
    p = compute_mcnemar_p(only_a, only_b)
    return [*tests, SampleTest(ALL_CLIENTS, sum(one.samples for one in tests), only_a, only_b, p)]


def compute_mcnemar_p(only_a: int, only_b: int) -> float:
    """The exact two-sided p of a fair coin."""
    from scipy.stats import binomtest

    return float(binomtest(only_a, only_a + only_b).pvalue) if only_a + only_b else 1.0


def match_samples(one: NDArray[np.uint64], other: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the samples that both have are; of equal samples the first is matched with the first, and so on."""
    places = {key: row for row, key in enumerate(_number_repeats(other))}
    pairs = [(row, places[key]) for row, key in enumerate(_number_repeats(one)) if key in places]
    found = np.array(pairs, np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _number_repeats(samples: NDArray[np.uint64]) -> list[tuple[int, int]]:
    seen: dict[int, int] = {}
    keys = []
    for sample in samples.tolist():
        seen[sample] = seen.get(sample, -1) + 1
        keys.append((sample, seen[sample]))
    return keys
