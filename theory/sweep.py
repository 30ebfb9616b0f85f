"""A sweep from settings to a table and a figure in a folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from theory.claims import Claim
from theory.config import TheoryConfig
from theory.progress import show_progress
from theory.report.folder import reserve_folder, write_sweep
from theory.resources import allot_resources
from theory.sweep_table import SweepTable, expand_sweeps, measure_sweep

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class SweepResult:
    """The table of a sweep, and the figure that was drawn of it."""

    table: SweepTable
    figure: Path


def run_sweep(
    setting: TheoryConfig,
    sweeps: Sequence[tuple[str, list[Any]]],
    claims: Sequence[Claim],
    out: Path,
    *,
    allow_parallel: bool = False,
    threads: int | None = None,
    screen: Console | None = None,
) -> SweepResult:
    """Check the claims on every combination of the swept values, and write the table and its figure to ``out``."""
    combinations = expand_sweeps(setting, sweeps)
    settings = [one for _, one in combinations]
    with (
        allot_resources(settings, claims, figures=False, allow_parallel=allow_parallel, threads=threads, screen=screen),
        reserve_folder(out),
        show_progress(screen) as progress,
    ):
        table = measure_sweep(combinations, claims, progress)
        return SweepResult(table, write_sweep(out, table))
