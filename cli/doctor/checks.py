"""What ``fedco2 doctor`` looks at."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.requirements import Requirement

SOURCE_ROOT = Path(__file__).resolve().parents[2]

IMPORT_NAMES = {"pillow": "PIL", "scikit-learn": "sklearn", "tomli-w": "tomli_w"}
"""Distributions that are imported under another name than their own."""


@dataclass(frozen=True)
class CheckResult:
    """One thing looked at; what is wrong with it has a way to mend it."""

    name: str
    value: str
    mend: str = ""

    @property
    def ok(self) -> bool:
        """Nothing to mend."""
        return not self.mend


def run_checks() -> Iterator[CheckResult]:
    """All findings, in the order to read them."""
    yield from check_packages()
    yield from check_hardware()
    yield check_memory()
    yield from (check_import(name) for name in ("theory", "fedtrain", "cli"))
    yield from check_plug_ins()
    yield check_folder("data", get_data_folder(), "set FEDCO2_DATA to a folder that you may write in")
    yield check_folder("runs", Path("runs").absolute(), "go to a folder that you may write in")
    yield check_browser()


def check_packages() -> Iterator[CheckResult]:
    """Python, fedco2 and what it needs, against the ranges in the installed metadata."""
    try:
        from packaging.requirements import Requirement
        from packaging.specifiers import SpecifierSet

        about = metadata.metadata("fedco2")
        needs = [Requirement(line) for line in metadata.requires("fedco2") or []]
    except ModuleNotFoundError as error:  # PackageNotFoundError is one
        yield CheckResult(
            "fedco2", f"not installed: {error}", "pip install fedco2, or pip install -e . in its source tree"
        )
        return
    python, allowed = platform.python_version(), SpecifierSet(about["Requires-Python"] or "")
    mend = "" if allowed.contains(python, prereleases=True) else f"make a virtual environment with Python {allowed}"
    yield CheckResult("python", f"{python}, {sys.executable}", mend)
    yield CheckResult("fedco2", f"{about['Version']}, {SOURCE_ROOT}")
    yield from (check_package(need) for need in needs if need.marker is None or need.marker.evaluate({"extra": ""}))


def check_plug_ins() -> Iterator[CheckResult]:
    """What installed packages offer, by kind, and what of it cannot be chosen; nothing of theirs is loaded."""
    if not all(check_import(name).ok for name in ("theory", "fedtrain")):
        return  # or we would import what hides ours
    from fedtrain.extensions.references import KINDS, list_hidden, list_installed

    for kind in KINDS:
        if names := list_installed(kind):
            yield CheckResult(f"{kind}s of others", ", ".join(names))
        if hidden := list_hidden(kind):
            mend = f"fedco2 has a {kind} of this name; rename the entry point in that package, or uninstall it"
            yield CheckResult(f"{kind}s of others", f"hidden: {', '.join(hidden)}", mend)


def check_package(need: Requirement) -> CheckResult:
    """One requirement: there, in range, and not broken."""
    install = f"pip install '{need.name}{need.specifier}'"
    try:
        version = metadata.version(need.name)
    except metadata.PackageNotFoundError:
        return CheckResult(need.name, "missing", install)
    if not need.specifier.contains(version, prereleases=True):
        return CheckResult(need.name, f"{version}, outside {need.specifier}", install)
    try:
        importlib.import_module(IMPORT_NAMES.get(need.name, need.name))
    except Exception as error:  # a broken installation can raise anything
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        return CheckResult(need.name, f"{version}, cannot be imported: {reason}", f"{install} --force-reinstall")
    return CheckResult(need.name, version)


def check_hardware() -> Iterator[CheckResult]:
    """Where torch computes, and with how many threads."""
    try:
        import torch
    except Exception:  # said under packages
        return
    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        devices = range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
        cuda = ", ".join(torch.cuda.get_device_name(i) for i in devices)
    why = f" (cuda: {complaints[0].message})" if complaints else ""
    hint = "fedco2 was never run on a GPU by its authors; make test-gpu, in its source, compares this one with the CPU"
    yield CheckResult("device", f"cuda: {cuda} ({hint})" if cuda else f"cpu{why}")
    omp = os.environ.get("OMP_NUM_THREADS")
    limit = f", OMP_NUM_THREADS={omp}" if omp else ""
    yield CheckResult("threads", f"{torch.get_num_threads()} of {os.cpu_count()} processors{limit}")


def check_memory() -> CheckResult:
    """What is available, within the limit of the container if there is one."""
    if not check_import("theory").ok:  # reported there; another package of that name must not run here
        return CheckResult("memory", "unknown while theory is not ours")
    from theory.memory import get_available_memory

    return CheckResult("memory", f"{get_available_memory() / 2**30:.1f} GiB available")


def check_import(name: str) -> CheckResult:
    """Does ``import name`` give our package, or another of that name that stands earlier on the path?"""
    spec = importlib.util.find_spec(name)
    if spec is None:
        return CheckResult(name, "missing", "pip install --force-reinstall fedco2")
    where = Path(spec.origin or next(iter(spec.submodule_search_locations or []))).resolve()
    if where == SOURCE_ROOT / name / "__init__.py":
        return CheckResult(name, "ours")
    return CheckResult(
        name, f"hidden by {where}", "give fedco2 a virtual environment of its own; leave PYTHONPATH unset"
    )


def get_data_folder() -> Path:
    """Where data are looked for: FEDCO2_DATA, else the user's folder for data."""
    if chosen := os.environ.get("FEDCO2_DATA"):
        return Path(os.path.expanduser(chosen)).absolute()
    if sys.platform == "darwin":
        base = "~/Library/Application Support"
    elif sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    else:
        base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(os.path.expanduser(base)).absolute() / "fedco2"


def check_folder(name: str, path: Path, mend: str) -> CheckResult:
    """Can it be written in, or made?"""
    nearest = next(p for p in (path, *path.parents) if os.path.exists(p))
    if not nearest.is_dir():
        return CheckResult(name, f"{path}: {nearest} is not a folder", mend)
    if not os.access(nearest, os.W_OK | os.X_OK):
        return CheckResult(name, f"{path}: no permission to write in {nearest}", mend)
    return CheckResult(name, f"{path} ({'there' if nearest == path else 'not there yet'})")


def check_browser() -> CheckResult:
    """Only the tests of the report's page need one."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    found = next(filter(None, map(shutil.which, names)), None)
    return CheckResult("chromium", found or "none (only some tests need it)")
