"""Where code comes from, and the checksum that says whether it is still the same."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from fedtrain.extensions.errors import is_somebodys, shorten_path


def find_source(value: Any, module: str = "") -> Path | None:
    """The file that defines a class or function; ``module`` is where it was found, for what does not know itself."""
    home = sys.modules.get(getattr(value, "__module__", None) or module)
    file = getattr(home, "__file__", None)
    return Path(file).resolve() if file and Path(file).exists() else None


def hash_source(file: Path | None) -> str:
    """SHA-256 of a file, or of all the Python files of the package that it is part of; empty if there is none."""
    if file is None:
        return ""
    folder = find_package_folder(file)
    sources = [file] if folder is None else sorted(folder.rglob("*.py"))
    if len(sources) == 1:
        return hashlib.sha256(sources[0].read_bytes()).hexdigest()
    digest = hashlib.sha256()
    for source in sources:
        digest.update(f"{source.relative_to(folder or source.parent).as_posix()}\n".encode())
        digest.update(hashlib.sha256(source.read_bytes()).digest())
    return digest.hexdigest()


def find_package_folder(file: Path) -> Path | None:
    """The folder of the outermost package that a file is part of."""
    folder = None
    for parent in file.parents:
        if not (parent / "__init__.py").exists():
            break
        folder = parent
    return folder


def describe_module(module: ModuleType) -> str:
    """A module by its file's name."""
    file = getattr(module, "__file__", None)
    return Path(file).name if file else f"module {module.__name__}"


def locate_definition(value: type | Callable[..., Any]) -> str:
    """``lg.py:14``: where a class or function begins, for an error about it; its name if that is not known."""
    try:
        file, (_, line) = inspect.getsourcefile(value), inspect.getsourcelines(value)
    except (OSError, TypeError):
        file = None
    return f"{shorten_path(Path(file))}:{line}" if file else getattr(value, "__qualname__", repr(value))


def locate_own_code(*values: type | Callable[..., Any]) -> str:
    """`` (lg.py:14)``, the first of these that is not ours, to be said of what went wrong in it; empty if all are."""
    found = next((one for one in values if _is_somebodys(one)), None)
    return "" if found is None else f" ({locate_definition(found)})"


def _is_somebodys(value: type | Callable[..., Any]) -> bool:
    package = str(value.__module__).partition(".")[0]
    return is_somebodys(package, str(getattr(sys.modules.get(value.__module__), "__file__", None) or "<notebook>"))
