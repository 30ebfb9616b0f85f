"""The tables of ``heads``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from distributed_cost_lib.extrapolation import extrapolate_clients, fit_exponent
from distributed_cost_lib.head_exchange import HeadCost

GROWING_COLUMNS = ("down_mb", "held_mb", "packed_mb", "packing_s")


def fit_growth(points: Sequence[HeadCost], clients: int) -> list[dict[str, float]]:
    """For each kind of head and way of sending them: how fast each value grows, and what it would be."""
    found = []
    for (size, peers), some in groupby(points, lambda one: (one["head_mb"], one["peers"])):
        group = list(some)
        one = {"head_mb": size, "peers": peers, "clients": clients}
        for key in GROWING_COLUMNS:
            one |= {f"{key}_power": fit_exponent(group, key), key: extrapolate_clients(group, key, clients)}
        found.append(one)
    return found


def format_tables(found: dict[str, Any]) -> str:
    """In Markdown: measured, fitted, on paper."""
    columns = {
        "measured": ("head_mb", "peers", "clients", "down_mb", "notes_mb", "held_mb", "packed_mb", "packing_s"),
        "fitted": ("head_mb", "peers", "clients", *(name for key in GROWING_COLUMNS for name in (f"{key}_power", key))),
        "on_paper": (
            "network", "peers", "clients", "head_mb", "up_client_mb", "down_client_mb", "down_mb", "server_mb",
        ),
    }  # fmt: skip
    titles = {
        "measured": "Measured (head_mb 0: the head of the network for CIFAR, with its averaged entries; peers 0: all)",
        "fitted": "On paper, by fits to the measured points (power: of the number of clients)",
        "on_paper": "On paper, from the networks' sizes",
    }
    return "\n\n".join(f"{titles[name]}\n\n{format_table(found[name], keys)}" for name, keys in columns.items())


def format_table(rows: Sequence[dict[str, Any]], keys: Sequence[str]) -> str:
    """One table."""
    lines = [
        f"| {' | '.join(f'{row[key]:.4g}' if isinstance(row[key], int | float) else row[key] for key in keys)} |"
        for row in rows
    ]
    return "\n".join([f"| {' | '.join(keys)} |", "|---" * len(keys) + "|", *lines])
