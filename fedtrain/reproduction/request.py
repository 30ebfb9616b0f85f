"""The request of a reproduction: what to run, and how much of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fedtrain.config.data import DataSource
from fedtrain.config.schema import SelectionRule
from fedtrain.config.toml import TomlTable
from theory.errors import InputError

MAX_SEEDS = 1000
"""Seeds, at most."""


@dataclass(frozen=True)
class Request:
    """What the user asks for; by default all is as in the paper."""

    seeds: str | None = None
    """How many, or which: separated by commas."""
    rounds: int | None = None
    methods: tuple[str, ...] = ()
    source: DataSource = "auto"
    dataset: str | None = None
    eval_every: int | None = None
    rule: SelectionRule | None = None
    legacy: bool = False
    sets: TomlTable = field(default_factory=dict)
    data_dir: Path | None = None


def parse_seeds(text: str | None, full: tuple[int, ...]) -> tuple[int, ...]:
    """The paper's; the first so many from its first on; or those of a list (``3,`` is seed 3 alone)."""
    if text is None:
        return full
    try:
        numbers = [int(word) for word in text.split(",") if word.strip()]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 0 or (len(numbers) == 1 and "," not in text and not 0 < numbers[0] <= MAX_SEEDS):
        raise InputError(
            f"seeds {text!r}: say how many, as in 3, or which, as in 1,2,5 (one alone: 4,)", options=("seeds",)
        )
    if "," not in text:
        return tuple(range(full[0], full[0] + numbers[0]))
    return tuple(dict.fromkeys(numbers))
