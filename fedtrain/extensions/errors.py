"""What to say of code that is not ours and fails: one line, with the file and the line where it does."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import dropwhile
from pathlib import Path
from types import FrameType

from theory.errors import InputError

MAX_LENGTH = 200
OURS = ("theory", "fedtrain", "cli")
STANDARD_LIBRARY = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))
INSTALLED = {"site-packages", "dist-packages"}
"""Folders that hold libraries, of whatever environment."""

_plug_in_packages: set[str] = set()


class ExtensionError(InputError):
    """Somebody's code is not there or does not do; the error of that code, if there is one, is the cause."""


def mark_as_extension(module: str) -> None:
    """Take the package of a module for somebody's own, although it is installed among the libraries."""
    _plug_in_packages.add(module.partition(".")[0])


@contextmanager
def explain_failure(what: str, place: str = "") -> Iterator[None]:
    """Turn an error in somebody's code into one line that names ``what`` and the place; others pass.

    With the ``place`` of a definition that is called here, no error passes: one without a place of its own is there.
    """
    try:
        yield
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        found = locate_code_error(error)
        if found is None and not place:
            raise
        where = "" if found else f"{place}: "
        raise ExtensionError(f"{what} failed: {where}{describe_code_error(error)}") from error


def describe_code_error(error: BaseException) -> str:
    """``lg.py:12: NameError: name 'F' is not defined``; the place as `locate_code_error` finds it."""
    if isinstance(error, SystemExit):
        text = "it ends the program; raise an error, and put what a script does under if __name__ == '__main__'"
    elif isinstance(error, SyntaxError):
        text = f"{type(error).__name__}: {error.msg}"
    else:
        text = f"{type(error).__name__}: {error}"
    text, place = " ".join(text.split())[:MAX_LENGTH], locate_code_error(error)
    return f"{place}: {text}" if place else text


def locate_code_error(error: BaseException) -> str | None:
    """File and line of the innermost code that we call and that is neither ours nor a library's; None without any."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{shorten_path(Path(error.filename))}:{error.lineno}"
    called = dropwhile(lambda pair: _get_package(pair[0]) not in OURS, traceback.walk_tb(error.__traceback__))
    places = [
        (frame.f_code.co_filename, line)
        for frame, line in called
        if is_somebodys(_get_package(frame), frame.f_code.co_filename)
    ]
    return f"{shorten_path(Path(places[-1][0]))}:{places[-1][1]}" if places else None


def shorten_path(path: Path) -> str:
    """As seen from here, if it lies below."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _get_package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def is_somebodys(package: str, file: str) -> bool:
    """Whether code is neither ours nor a library's that nobody has plugged in."""
    if package in OURS or file.startswith("<"):
        return False
    path = Path(file)
    is_library = INSTALLED.intersection(path.parts) or any(path.is_relative_to(folder) for folder in STANDARD_LIBRARY)
    return package in _plug_in_packages or not is_library
