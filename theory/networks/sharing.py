"""How much to share, asked of the networks of a run in three ways: how large is the best share w of the online model?

- By the paper's criterion: w with the largest λ_min of w V_on + (1 - w) V_off. With equal weights it is 0 (claim O5).
- By samples left out: for each client the w with the least leave-one-out error of regression with that kernel.
- By held-out data: for each client the w whose fused logits, 2 (w f_on + (1 - w) f_off), have the least cross entropy
  there. w = 1/2 is the sum that the paper's Fed-CO2 predicts with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from theory.kernels.mixture import MixtureCurve, trace_mixture
from theory.leave_one_out import SharingChoice, choose_sharing
from theory.networks.kernels import ClientSamples, FederatedKernel
from theory.networks.spectrum import get_rounding

BISECTIONS = 50


@dataclass(frozen=True)
class HeldOut:
    """What the models say of data that nobody trained on."""

    split: str
    """val, or test where there is no val."""
    outputs: Mapping[str, Sequence[Tensor]]
    """Logits of each model, by each client's network on the client's data."""
    labels: Sequence[Tensor]


@dataclass(frozen=True)
class SharingFindings:
    """The best share of the online model by each of the three."""

    curve: MixtureCurve
    rounding: float
    """Below this λ_min is rounding."""
    left_out: dict[str, float] | None
    """By client; None where no ridge makes the kernels definite."""
    ridge: float | None
    held_out: dict[str, float | None] | None
    """By client, None where both models say the same; None where the method does not predict with both."""
    split: str | None

    @property
    def by_lambda_min(self) -> float | None:
        """None where λ_min is rounding for every w."""
        return self.curve.best_w if max(self.curve.lambda_min) > self.rounding else None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "by_lambda_min": self.by_lambda_min, "left_out": self.left_out, "ridge": self.ridge,
            "held_out": self.held_out, "split": self.split, "w": self.curve.w, "lambda_min": self.curve.lambda_min,
            "federated_lambda_min": self.curve.federated_lambda_min,
        }  # fmt: skip


def examine_sharing(
    online: FederatedKernel, offline: FederatedKernel, samples: ClientSamples, held_out: HeldOut | None = None
) -> SharingFindings:
    """Ask all three; ``held_out`` has the outputs of the models online and offline."""
    rows, labels = online.owner, torch.cat(list(samples.labels))
    curve = trace_mixture(online.whole, rows, offline.whole, averaged=online.averaged)
    classes = len(rows) // len(labels)
    targets = F.one_hot(labels, classes).double() - 1 / classes
    small = [average_outputs(one.whole.double(), classes) for one in (online, offline)]
    choice = choose_sharing(small[0], rows[::classes], targets, small[1])
    fusion = None
    if held_out is not None:
        answers = zip(*held_out.outputs.values(), held_out.labels, strict=True)
        fusion = {name: choose_fusion(*one) for name, one in zip(samples.names, answers, strict=True)}
    return SharingFindings(
        curve,
        get_rounding(online.whole, max(curve.lambda_max)),
        _name_best(choice, samples.names),
        None if choice is None else choice.ridge,
        fusion,
        None if held_out is None else held_out.split,
    )


def average_outputs(kernel: Tensor, classes: int) -> Tensor:
    """One row for each sample: the mean over outputs. Of a wide network all outputs have this kernel.

    A sample is left out with all its outputs; of one output alone the others would tell, as targets add up to zero.
    """
    count = len(kernel) // classes
    return kernel.view(count, classes, count, classes).diagonal(dim1=1, dim2=3).mean(-1)


def choose_fusion(online: Tensor, offline: Tensor, labels: Tensor) -> float | None:
    """The w in [0, 1] of the least cross entropy of 2 (w f_on + (1 - w) f_off), which is convex in w.

    None where both say the same, and any w is as good.
    """
    if torch.allclose(online, offline):
        return None
    on, off = online.double(), offline.double()
    y = F.one_hot(labels, on.shape[-1])

    def rises(w: float) -> bool:
        p = (2 * (w * on + (1 - w) * off)).softmax(-1)
        return bool(((p - y) * (on - off)).sum() > 0)

    low, high = 0.0, 1.0
    if rises(low):
        return low
    if not rises(high):
        return high
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if rises(middle) else (middle, high)
    return (low + high) / 2


def _name_best(choice: SharingChoice | None, names: Sequence[str]) -> dict[str, float] | None:
    if choice is None:
        return None
    return {name: one.best_w for name, one in zip(names, choice.clients, strict=True)}
