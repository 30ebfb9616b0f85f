"""The mean of the clients' models (McMahan et al., 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedtrain.aggregators.base import Aggregate, Aggregator, CohortReplies, average_states


@dataclass(frozen=True)
class Mean(Aggregator):
    """Σ w_k s_k / Σ w_k over the clients k of the round."""

    title: ClassVar[str] = "mean"

    def combine(self, replies: CohortReplies) -> Aggregate:
        """The weighted mean of every entry."""
        return Aggregate(average_states(replies.states, replies.weights))
