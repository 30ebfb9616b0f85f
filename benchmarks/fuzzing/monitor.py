"""One hostile file, one reader, and whatever happens: time, memory, warnings, files touched, programs called."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from theory.errors import InputError

TIME_LIMIT = 5.0
MAX_MESSAGE_LENGTH = 2000
"""Characters of an error: it may hold the path, a name and a value, not the whole file."""
FORBIDDEN_EVENTS = (
    *("os.system", "os.exec", "os.fork", "os.posix_spawn", "subprocess.", "socket.", "pickle.find_class"),
    *("os.symlink", "os.link", "os.chown", "ctypes.", "webbrowser.", "ftplib.", "urllib."),
)
PATH_EVENTS = {"os.mkdir": (0,), "os.rename": (0, 1), "os.remove": (0,), "os.rmdir": (0,), "os.truncate": (0,)}
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class TimeLimitExceeded(BaseException):
    """Raised by the clock; no reader catches it as an error of its own."""


@dataclass(frozen=True)
class Outcome:
    """What a reader did; ``wrong`` is empty if all of it is allowed."""

    accepted: bool
    seconds: float
    memory: int
    """Bytes by which the process is now larger than it ever was."""
    violation: str


class ReaderMonitor:
    """Follows the process by Python's audit events; they cannot be switched off again, only not listened to."""

    def __init__(self, target: Path) -> None:
        self.target, self.listening = target.resolve(), False
        self.violations: list[str] = []
        sys.addaudithook(self._on_audit_event)

    def run_reader(self, read: Callable[[], object], inside: Path) -> Outcome:
        """Run it; ``inside`` is a folder in which nothing may change but the target."""
        before, peak, start = _list_files(inside, self.target), _read_peak_memory(), time.process_time()
        self.violations = []
        accepted, wrong = False, ""
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                with self._enable(), _limit_time(TIME_LIMIT):
                    read()
                accepted = True
            except InputError as error:
                wrong = _check_message(error)
            except TimeLimitExceeded:
                wrong = f"took over {TIME_LIMIT:g} s"
            except Exception as error:
                wrong = f"{type(error).__name__}: {error}"
        seconds = time.process_time() - start
        wrong = wrong or "; ".join(self.violations) or "; ".join(f"warns: {one.message}" for one in warned)
        if not wrong and _list_files(inside, self.target) != before:
            wrong = "files beside the target were changed"
        return Outcome(accepted, seconds, _read_peak_memory() - peak, wrong)

    @contextmanager
    def _enable(self) -> Iterator[None]:
        self.listening = True
        try:
            yield
        finally:
            self.listening = False

    def _on_audit_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.listening:
            return
        if event.startswith(FORBIDDEN_EVENTS):
            self.violations.append(f"calls {event} {arguments!r:.200}")
        elif event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITE_FLAGS:
            self._check_path(event, arguments[0])
        for place in PATH_EVENTS.get(event, ()):
            self._check_path(event, arguments[place])

    def _check_path(self, event: str, path: object) -> None:
        """Fine are the target, the hidden folder beside it in which it is made, and folders above, which are there."""
        if isinstance(path, int) or (
            isinstance(path, str | bytes | os.PathLike) and self._is_allowed(os.fsdecode(path))
        ):
            return
        self.violations.append(f"{event} outside of the target: {path!r}")

    def _is_allowed(self, path: str) -> bool:
        full, target = os.path.abspath(path), str(self.target)
        hidden = os.path.join(os.path.dirname(target), f".{os.path.basename(target)}-")
        # removal of a tree goes by names within folders that are open already, so they come without their path
        return full.startswith((target, hidden)) or target.startswith(full + os.sep) or os.sep not in path


def _check_message(error: InputError) -> str:
    """Empty if the error is as errors should be: one line, printable, short, and not for want of memory."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError):
            return f"ran out of memory: {error}"
        cause = cause.__cause__ or cause.__context__
    text = str(error)
    if not text.isprintable():
        return f"a message with characters that steer a terminal: {text!r:.200}"
    return f"a message of {len(text)} characters: {text:.200}" if len(text) > MAX_MESSAGE_LENGTH else ""


@contextmanager
def _limit_time(seconds: float) -> Iterator[None]:
    def ring(number: int, frame: FrameType | None) -> None:
        raise TimeLimitExceeded

    old = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)  # time of the processor: others may be at work too
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, old)


def _read_peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _list_files(folder: Path, target: Path) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for entry in os.scandir(folder):
        if entry.path == str(target):
            continue
        about = entry.stat(follow_symlinks=False)
        found[entry.path] = (about.st_mode, 0 if entry.is_dir(follow_symlinks=False) else about.st_size)
        if entry.is_dir(follow_symlinks=False):
            found |= _list_files(Path(entry.path), target)
    return found
