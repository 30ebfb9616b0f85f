"""The output folder of a run: report.json, matrices.npz, figures and the page, written all or not at all."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from theory.errors import InputError
from theory.report.figures import draw_figures, draw_sweep
from theory.report.html_page import write_page
from theory.study import Study
from theory.verify import Report

RESULT_FILES = ("report.json", "sweep.json")
OUTPUT_NAMES = (*RESULT_FILES, "report.html", "matrices.npz", "figures", ".part")


def reserve_folder(folder: Path) -> Path:
    """Create the folder, or refuse it if it holds anything that would be overwritten."""
    for name in OUTPUT_NAMES:
        if (folder / name).exists():
            raise InputError(f"{folder} holds {name} already, which is not overwritten; choose another --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InputError(f"cannot write to {folder} ({error.strerror}); choose another --out") from None
    return folder


def release_folder(folder: Path) -> None:
    """Remove the folder again if nothing was written to it."""
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def make_json_safe(value: Any) -> Any:
    """Convert to what strict JSON can hold: numbers that are not finite become null."""
    if isinstance(value, dict):
        return {str(k): make_json_safe(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [make_json_safe(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_json(path: Path, value: Any) -> None:
    """Write strict JSON and flush it to disk."""
    with path.open("w", encoding="utf-8") as file:
        json.dump(make_json_safe(value), file, indent=1, ensure_ascii=False, allow_nan=False)
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


def write_report(folder: Path, report: Report, study: Study) -> None:
    """Write all files of a run; report.json comes last, so its presence means that the rest is complete."""
    with stage_output(folder) as stage:
        write_matrices(stage / "matrices.npz", study)
        write_page(report, draw_figures(report, stage / "figures"), stage / "report.html")
        write_json(stage / "report.json", report)


def write_sweep(folder: Path, table: Report) -> Path:
    """Write the table and its figure; returns the path of the figure."""
    with stage_output(folder) as stage:
        figure = draw_sweep(table["rows"], table["swept"], stage / "figures")
        write_json(stage / "sweep.json", table)
        return folder / figure.relative_to(stage)


def write_matrices(path: Path, study: Study) -> None:
    """Write the matrices as float64 arrays for independent checks; the limits only where a claim needed them."""
    arrays = {
        "X": study.problem.x,
        "y": study.problem.y,
        "S": study.problem.S,
        "v": study.online.v,
        "c": study.online.c,
        "gamma": study.online.gamma.T,
        "V_on": study.online_kernel.V,
        "V_off": study.offline_kernel.V,
        "V": study.fused_kernel.V,
        "G_on": study.online_kernel.G,
        "G_off": study.offline_kernel.G,
    }
    if study.computed_limit_kernels:
        limit = study.computed_limit_kernels["online"]
        arrays |= {"V_on_inf": limit.V, "G_on_inf": limit.G}
    numbers = {name: tensor.detach().double().cpu().numpy() for name, tensor in arrays.items()}
    with path.open("wb") as file:
        numbers |= {"owner": study.problem.owner.cpu().numpy(), "alpha": np.asarray(study.alpha)}
        np.savez_compressed(file, **numbers)  # type: ignore[arg-type]
