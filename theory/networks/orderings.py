"""O1-O4 for kernels of networks that are trained: verdicts that come out of the eigenvalues, not out of the theorem.

With equal weights online and offline the claims must hold. After a round the two models differ, and nothing is
guaranteed: then a difference within rounding is undecided.
"""

from __future__ import annotations

import torch
from torch import Tensor

from theory.claims.base import FAILS, HOLDS, UNDECIDED, Finding, compute_margin_digits, compute_relative_error
from theory.kernels.federated import keep_client_blocks
from theory.networks.spectrum import get_rounding
from theory.study import compute_max_eigenvalue, compute_min_eigenvalue

EQUAL_DIGITS = 0.5
"""Kernels are equal where they agree in so large a share of the digits of their numbers."""


def judge_orderings(online: Tensor, offline: Tensor, owner: Tensor) -> dict[str, Finding]:
    """Measure the four claims on the online and the offline kernel."""
    mean = (online + offline) / 2
    low = {name: compute_min_eigenvalue(K) for name, K in (("on", online), ("off", offline), ("mean", mean))}
    high = {name: compute_max_eigenvalue(K) for name, K in (("on", online), ("off", offline), ("mean", mean))}
    rounding = get_rounding(online, max(high.values()))
    o1 = _judge_blocks(online, offline, owner)
    certain = o1.verdict == HOLDS  # then the rest is a theorem, and what is missing is rounding
    middle = (low["on"] + low["off"]) / 2
    return {
        "O1": o1,
        "O2": _judge(
            low["off"], low["on"], low["off"] - low["on"], rounding, certain,
            f"λ_min is {low['off']:.4g} offline and {low['on']:.4g} online", {"lambda_min": low},
        ),
        "O3": _judge(
            low["mean"], low["on"], min(low["mean"] - middle, middle - low["on"]), rounding, certain,
            f"λ_min of the mean is {low['mean']:.4g}, the mean of λ_min {middle:.4g}, online {low['on']:.4g}",
            {"lambda_min": low, "mean_of_both": middle, "gain": low["mean"] - low["on"]},
        ),
        "O4": _judge(
            high["mean"], high["on"], high["on"] - high["mean"], rounding, certain,
            f"λ_max of the mean is {high['mean']:.4g}, online {high['on']:.4g}",
            {"lambda_max": high, "condition": {k: high[k] / low[k] if low[k] > rounding else None for k in low}},
        ),
    }  # fmt: skip


def _judge_blocks(online: Tensor, offline: Tensor, owner: Tensor) -> Finding:
    blocks = keep_client_blocks(online, owner)
    difference = (offline - blocks).norm().item()
    relative = compute_relative_error(difference, blocks.norm().item())
    tolerance = torch.finfo(online.dtype).eps ** EQUAL_DIGITS
    return Finding(
        HOLDS if relative <= tolerance else FAILS,
        lhs=difference,
        rhs=0.0,
        margin=compute_margin_digits(relative, tolerance),
        unit="digits",
        words=f"the offline kernel differs from the client blocks of the online one by {relative:.2g} of their norm",
        evidence={"relative_difference": relative},
    )


def _judge(
    lhs: float, rhs: float, margin: float, rounding: float, certain: bool, words: str, evidence: dict[str, object]
) -> Finding:
    within = HOLDS if certain else UNDECIDED
    verdict = within if abs(margin) <= rounding else HOLDS if margin > 0 else FAILS
    return Finding(verdict, lhs, rhs, margin, "absolute", words, evidence)
