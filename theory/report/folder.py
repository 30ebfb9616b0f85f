"""The output folder of a run: report.json, matrices.npz, figures and the page, written all or not at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from theory.errors import InputError
from theory.report.figures import draw_figures
from theory.report.html_page import write_page
from theory.report.sweep_figure import draw_sweep
from theory.results import VerificationResults
from theory.sweep_table import SweepTable

RESULT_FILES = ("report.json", "sweep.json")
OUTPUT_NAMES = (*RESULT_FILES, "report.html", "matrices.npz", "figures", ".part")


@contextmanager
def reserve_folder(folder: Path) -> Iterator[Path]:
    """Create the folder, or refuse it if it holds anything that would be overwritten; if it stays empty, remove it."""
    for name in OUTPUT_NAMES:
        if (folder / name).exists():
            raise InputError(
                f"{folder} holds {name} already, which is not overwritten; choose another folder with out", ["out"]
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InputError(
            f"cannot write to {folder} ({error.strerror}); choose another folder with out", ["out"]
        ) from None
    try:
        yield folder
    finally:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def write_json(path: Path, value: Any) -> None:
    """Write strict JSON and flush it to disk."""
    with path.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=1, ensure_ascii=False, allow_nan=False)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def stage_output(folder: Path) -> Iterator[Path]:
    """A temporary folder whose files are moved into ``folder`` when all are written, and removed on an error."""
    stage = folder / ".part"
    stage.mkdir()
    try:
        yield stage
        for item in sorted(stage.iterdir(), key=lambda item: item.name in RESULT_FILES):  # the result last
            item.rename(folder / item.name)
    finally:
        shutil.rmtree(stage)


def write_report(folder: Path, results: VerificationResults) -> None:
    """Write all files of a verification; report.json comes last, so its presence means that the rest is complete."""
    with stage_output(folder) as stage:
        with (stage / "matrices.npz").open("wb") as file:
            np.savez_compressed(file, **results.matrices)  # type: ignore[arg-type]
        write_page(results, draw_figures(results, stage / "figures"), stage / "report.html")
        write_json(stage / "report.json", results.to_dict())


def write_sweep(folder: Path, table: SweepTable) -> Path:
    """Write the table and its figure; returns the path of the figure."""
    with stage_output(folder) as stage:
        figure = draw_sweep(table, stage / "figures")
        write_json(stage / "sweep.json", table.to_dict())
        return folder / figure.relative_to(stage)
