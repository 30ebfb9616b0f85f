"""Bytes on the wire beside those that a run counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from distributed_cost_lib.event_log import Event

TrafficRow = dict[str, Any]


def summarise_deployment(events: Sequence[Event], counted: Mapping[str, Any]) -> list[TrafficRow]:
    """One client's, a round, by the proxy; all clients', all rounds, by Flower itself."""
    rounds = [event for event in events if event["what"] == "round"]
    last, made = rounds[-1], len(rounds)
    whose = {
        "deployment, one client (proxy)": {
            way: (median(counted[way]), last[way] / last["clients"]) for way in DIRECTIONS
        },
        "deployment, all clients (Flower's own count)": {
            "up": (counted["inbound"] / made, last["up"]),
            "down": (counted["outbound"] / made, last["down"]),
        },
    }
    return [build_row(name, **ways) for name, ways in whose.items()]


DIRECTIONS = ("up", "down")


def summarise_ranks(events: Sequence[Event], world: int) -> TrafficRow:
    """What rank 0 gives to the others, each of them, and what they give to it, in the last round."""
    rounds = [event for event in events if event["what"] == "round"]
    before, last = rounds[-2], rounds[-1]
    # a rank that answers notes it when it has been heard, perhaps after rank 0 noted the end of the round
    given = [
        event
        for event in events
        if event["what"] == "give" and before["at"] < event["at"] - event["seconds"] < last["at"]
    ]
    up = sum(event["bytes"] for event in given if event["rank"])
    down = sum(event["bytes"] * (world - 1) for event in given if not event["rank"])
    return build_row(f"torchrun, {world} ranks", up=(up, last["up"]), down=(down, last["down"]))


def build_row(whose: str, up: tuple[float, float], down: tuple[float, float]) -> TrafficRow:
    """On the wire and counted, a round."""
    found: TrafficRow = {"whose": whose}
    for way, (wire, counted) in zip(DIRECTIONS, (up, down), strict=True):
        found |= {f"{way}_wire": wire, f"{way}_counted": counted, f"{way}_ratio": wire / counted}
    return found


def format_table(found: Sequence[TrafficRow]) -> str:
    """In Markdown, bytes of a round."""
    heads = ("network, method", "whose", "up: wire", "counted", "ratio", "down: wire", "counted", "ratio")
    rows = []
    for one in found:
        cells = [f"{one['size']}, {one['method']}", one["whose"]]
        for way in DIRECTIONS:
            cells += [f"{one[f'{way}_wire']:,.0f}", f"{one[f'{way}_counted']:,.0f}", f"{one[f'{way}_ratio']:.4f}"]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join([f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *rows])
