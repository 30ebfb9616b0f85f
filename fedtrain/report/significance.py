"""Is a difference of accuracies more than chance? Paired tests over seeds; with one seed, an approximation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import isclose, sqrt
from statistics import fmean, stdev

import numpy as np

MAX_EXACT_PAIRS = 12
"""Up to so many pairs every assignment of signs is tried."""
CONFIDENCE_LEVEL = 0.95


@dataclass(frozen=True)
class DifferenceEstimate:
    """B - A, an interval of 95 %, and two-sided p values; None where there is nothing to judge by."""

    difference: float
    std: float | None
    """Of the differences over the pairs, ddof 1."""
    low: float | None
    high: float | None
    p: float | None
    """Paired t test over seeds, or the approximate z test of two proportions."""
    wilcoxon: float | None


def run_paired_tests(a: Sequence[float], b: Sequence[float]) -> DifferenceEstimate:
    """Two or more pairs: the t test and Wilcoxon's signed-rank test."""
    from scipy.stats import t

    gaps = [y - x for x, y in zip(a, b, strict=True)]
    mean, std = fmean(gaps), stdev(gaps)
    if isclose(std, 0, abs_tol=1e-12):  # all alike: no spread to measure the mean by
        return DifferenceEstimate(mean, std, None, None, None, compute_wilcoxon_p(gaps))
    error, freedom = std / sqrt(len(gaps)), len(gaps) - 1
    half = float(t.ppf((1 + CONFIDENCE_LEVEL) / 2, freedom)) * error
    p = float(2 * t.sf(abs(mean) / error, freedom))
    return DifferenceEstimate(mean, std, mean - half, mean + half, p, compute_wilcoxon_p(gaps))


def compute_wilcoxon_p(gaps: Sequence[float]) -> float | None:
    """Signed-rank test, exact with ties for few pairs; pairs without a difference are left out."""
    from scipy import stats

    rounded = np.round([gap for gap in gaps if not isclose(gap, 0, abs_tol=1e-12)], 12)  # ties are ties
    if not len(rounded):
        return None
    if len(rounded) > MAX_EXACT_PAIRS:
        return float(stats.wilcoxon(rounded).pvalue)
    ranks = stats.rankdata(abs(rounded))
    found = abs(float(np.sign(rounded) @ ranks))
    signs = np.array(list(product((-1, 1), repeat=len(ranks))))
    return float(np.mean(abs(signs @ ranks) >= found - 1e-9))


def run_two_proportion_test(
    a: Sequence[float], b: Sequence[float], sizes: Sequence[int], other_sizes: Sequence[int] | None = None
) -> DifferenceEstimate:
    """The mean over clients (or one client) of one run each, each accuracy a share of so many independent images.

    That both runs were tested on the same images is ignored; with another seed of the data B may have had more or less
    of them, ``other_sizes``. Errors are those of one success and one failure more, so
    that an accuracy of 100 % has one too.
    """
    from scipy.stats import norm

    def variance(share: float, size: int) -> float:
        guess = (share * size + 1) / (size + 2)
        return guess * (1 - guess) / (size + 2)

    mean = fmean(y - x for x, y in zip(a, b, strict=True))
    shares = (*zip(a, sizes, strict=True), *zip(b, other_sizes or sizes, strict=True))
    error = sqrt(sum(variance(share, size) for share, size in shares)) / len(sizes)
    half = float(norm.ppf((1 + CONFIDENCE_LEVEL) / 2)) * error
    return DifferenceEstimate(mean, None, mean - half, mean + half, float(2 * norm.sf(abs(mean) / error)), None)
