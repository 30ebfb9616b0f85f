"""Seconds of a round beyond training, from what the meters of all processes say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from distributed_cost_lib.event_log import Event

OverheadRow = dict[str, Any]


def find_longest_chain(events: Iterable[Event], what: str, round: int) -> float:
    """Seconds of the process that is at it longest: what one does is done in turn, what several do at the same time."""
    chains: defaultdict[int, float] = defaultdict(float)
    for event in events:
        if event["what"] == what and event["round"] == round:
            chains[event["pid"]] += event["seconds"]
    return max(chains.values(), default=0.0)


def summarise_overhead(events: Sequence[Event]) -> OverheadRow:
    """Medians over all rounds but the first."""
    rounds = [event for event in events if event["what"] == "round"][1:]
    chains = {
        what: [find_longest_chain(events, what, event["round"]) for event in rounds]
        for what in ("train", "site", "load")
    }
    seconds = [event["seconds"] for event in rounds]
    rest = [whole - training for whole, training in zip(seconds, chains["train"], strict=True)]
    return {
        "rounds": len(rounds),
        "round_s": median(seconds),
        "training_s": median(chains["train"]),
        "beyond_s": median(rest),
        "beyond_low_s": min(rest),
        "beyond_high_s": max(rest),
        "site_s": median(chains["site"]),
        "load_s": median(chains["load"]),
    }


def format_table(found: Sequence[OverheadRow]) -> str:
    """In Markdown."""
    heads = ("network, method", "backend", "a round, s", "training, s", "beyond, s", "of it data anew", "torch anew")
    rows = [
        f"| {one['size']}, {one['method']} | {one['backend']} | {one['round_s']:.3g} | {one['training_s']:.3g} | "
        f"{one['beyond_s']:.3g} ({one['beyond_low_s']:.3g} to {one['beyond_high_s']:.3g}) | {one['site_s']:.2g} | "
        f"{one['load_s']:.2g} |"
        for one in found
    ]
    return "\n".join([f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *rows])
