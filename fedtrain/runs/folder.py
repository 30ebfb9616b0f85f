"""The folder of a run: what is written there, how, and what is never overwritten."""

from __future__ import annotations

import json
import lzma
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from fedtrain.config.old_names import upgrade_tables
from fedtrain.config.schema import Config, format_config, load_toml, parse_config
from fedtrain.config.toml import TomlTable, format_error
from fedtrain.runs import checkpoint
from fedtrain.runs.client_state import ClientStateStore
from fedtrain.runs.json_types import Manifest, MetricRow, RunSummary
from fedtrain.runs.selection import parse_row
from fedtrain.utils.atomic_files import replace_atomically
from fedtrain.utils.locks import acquire_lock, is_same_file
from theory.errors import InputError

CONFIG_FILE, MANIFEST_FILE, METRICS_FILE, SUMMARY_FILE = "config.toml", "manifest.json", "metrics.jsonl", "summary.json"
PACKED_METRICS_FILE = f"{METRICS_FILE}.xz"
"""What a published record has instead of its metrics."""
MAX_UNPACKED_METRICS = 2**28
"""Bytes; the 71 evaluations of 100 clients in full CIFAR-10 have a hundredth of it."""
LOCK_FILE, UNFINISHED_START_FILE = ".lock", ".beginning"
LAST_CHECKPOINT = Path("checkpoints") / "last.safetensors"
CLIENT_STATES_FOLDER = Path("checkpoints") / "own"
"""What clients keep, if it is not in the checkpoint itself."""


class RunFolder:
    """``config.toml``, ``manifest.json``, ``metrics.jsonl``, ``summary.json``, ``checkpoints/`` and ``figures/``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def has_run(self) -> bool:
        """Whether a run was begun here."""
        return (self.path / CONFIG_FILE).exists()

    @property
    def client_state_store(self) -> ClientStateStore:
        """Where clients that do not train in the server's process keep what is theirs."""
        return ClientStateStore(self.path / CLIENT_STATES_FOLDER)

    @property
    def is_finished(self) -> bool:
        """Whether it came to its end."""
        return (self.path / SUMMARY_FILE).exists() and bool(self.read_summary().get("finished"))

    def begin(self, config: Config, manifest: Manifest) -> None:
        """Make the folder; config.toml comes last, so its presence means that the run was begun."""
        with self._report_write_errors():
            self.path.mkdir(parents=True, exist_ok=True)
            if (self.path / UNFINISHED_START_FILE).exists():  # a process was killed here
                self._remove_unfinished_start()
        for name in (CONFIG_FILE, MANIFEST_FILE, METRICS_FILE, SUMMARY_FILE, "checkpoints", "figures"):
            if (self.path / name).exists():
                raise InputError(
                    f"{self.path} holds {name} already, which is not overwritten; choose another folder",
                    options=("out",),
                )
        try:
            with self._report_write_errors():
                (self.path / UNFINISHED_START_FILE).touch()
                for name in ("checkpoints", "figures"):
                    (self.path / name).mkdir()
                (self.path / METRICS_FILE).touch()
                self.write_json(MANIFEST_FILE, manifest)
                self.write_text(CONFIG_FILE, format_config(config))
                (self.path / UNFINISHED_START_FILE).unlink()
        except BaseException:
            self._remove_unfinished_start()
            raise

    def _remove_unfinished_start(self) -> None:
        """A run that was not begun leaves nothing in the way of the next one."""
        for name in (CONFIG_FILE, METRICS_FILE, MANIFEST_FILE, UNFINISHED_START_FILE):
            (self.path / name).unlink(missing_ok=True)
        for name in ("checkpoints", "figures"):
            with suppress(OSError):
                (self.path / name).rmdir()

    @contextmanager
    def exclusive_lock(self) -> Iterator[None]:
        """Keep other processes out, and clear away what one that was killed left half-written."""
        with self._report_write_errors():
            self.path.mkdir(parents=True, exist_ok=True)
            file = (self.path / LOCK_FILE).open("w")
        with file:
            busy = f"{self.path}: another process is at work here; wait for it or stop it"
            acquire_lock(file.fileno(), busy)
            if not is_same_file(file.fileno(), self.path / LOCK_FILE):
                raise InputError(busy)  # the process before took its lock away, and a third one has a new one
            try:
                self._remove_partial_files()
                yield
            finally:
                with suppress(OSError):
                    (self.path / LOCK_FILE).unlink(missing_ok=True)
                    self.path.rmdir()  # if nothing came of it

    def _remove_partial_files(self) -> None:
        """Take away what a process that was killed left half-written, and nothing that is not ours."""
        if not self.has_run and not (self.path / UNFINISHED_START_FILE).exists():
            return
        for pattern in (
            ".*.part",
            "figures/.*.part",
            "checkpoints/.*",
            f"{CLIENT_STATES_FOLDER}/*/.*",
        ):  # safetensors has temporary files of its own
            for part in self.path.glob(pattern):
                part.unlink()
        if self.has_run:
            (self.path / UNFINISHED_START_FILE).unlink(missing_ok=True)

    @contextmanager
    def _report_write_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InputError(
                f"cannot write to {self.path} ({error.strerror}); choose another folder", options=("out",)
            ) from None

    def load_tables(self) -> TomlTable:
        """What the run was begun with, unread."""
        if not self.has_run:
            raise InputError(f"{self.path}: no run is here (no {CONFIG_FILE}); name the folder that a run has written")
        return upgrade_tables(load_toml(self.path / CONFIG_FILE))

    def load_config(self) -> Config:
        """What the run was begun with."""
        return parse_config(self.load_tables())

    def append_rows(self, rows: Iterable[MetricRow]) -> int:
        """Add rows to the metrics, in one piece; the length of the file afterwards."""
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        path = self.path / METRICS_FILE
        before = path.stat().st_size
        try:
            with path.open("ab") as file:
                file.write(text.encode())
        except BaseException:  # a full disk: no half row stays
            os.truncate(path, before)
            raise
        return before + len(text.encode())

    def load_rows(self) -> list[MetricRow]:
        """All rows so far; of a published record, which is not written to, the packed ones."""
        path = self.path / METRICS_FILE
        if not path.exists() and (packed := self.path / PACKED_METRICS_FILE).exists():
            return _load_packed_rows(packed)
        try:
            with path.open("rb") as file:
                return [parse_row(json.loads(line)) for line in file]
        except (OSError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InputError(f"{path}: damaged ({format_error(error)}); start the run anew") from None

    def truncate_rows(self, end: int) -> None:
        """Forget rows of a round that was not completed."""
        if (self.path / METRICS_FILE).stat().st_size < end:
            raise InputError(
                f"{self.path / METRICS_FILE}: shorter than when the checkpoint was written; start the run anew"
            )
        os.truncate(self.path / METRICS_FILE, end)

    def save_checkpoint(self, state: checkpoint.RunState, keep: int = 0) -> None:
        """Write the checkpoint; it stays beside the next one, as one of the ``keep`` latest, if that is not 0."""
        with (self.path / METRICS_FILE).open("rb") as file:
            os.fsync(file.fileno())  # the rows that the checkpoint counts on
        checkpoint.save_checkpoint(state, self.path / LAST_CHECKPOINT)
        self.keep_checkpoint(state.message.round, keep)
        self._prune_client_states(state)

    def keep_checkpoint(self, round: int, limit: int) -> None:
        """Let the last checkpoint, of this round, stay as one of the ``limit`` latest; done twice it is done once."""
        if not limit:
            return
        last = self.path / LAST_CHECKPOINT
        named = last.with_name(f"round-{round:06}.safetensors")
        named.unlink(missing_ok=True)
        os.link(last, named)  # no second copy on the disk until the next one is written
        for old in sorted(last.parent.glob("round-*.safetensors"))[:-limit]:
            old.unlink()

    def _prune_client_states(self, state: checkpoint.RunState) -> None:
        """Take away what no checkpoint needs; a round that is not over may have left more, which stays."""
        if not (self.path / CLIENT_STATES_FOLDER).exists():
            return
        needed = self.find_needed_rounds()
        for client in (*state.client_states, *state.last_trained_round):
            self.client_state_store.prune(client, needed[client], before=state.message.round)

    def find_needed_rounds(self) -> defaultdict[str, set[int]]:
        """The turns of each client that a checkpoint speaks of."""
        needed: defaultdict[str, set[int]] = defaultdict(set)
        for path in (self.path / LAST_CHECKPOINT).parent.glob("*.safetensors"):
            for client, turn in checkpoint.read_last_trained_rounds(path).items():
                needed[client].add(turn)
        return needed

    def load_checkpoint(self) -> checkpoint.RunState | None:
        """The last checkpoint, if one was written."""
        path = self.path / LAST_CHECKPOINT
        return checkpoint.load_checkpoint(path) if path.exists() else None

    def read_last_saved_round(self) -> int:
        """How many rounds are safe."""
        path = self.path / LAST_CHECKPOINT
        return checkpoint.read_round(path) if path.exists() else 0

    def write_text(self, name: str, text: str) -> None:
        """A file that is complete or absent."""
        with replace_atomically(self.path / name) as part:
            part.write_text(text, encoding="utf-8")

    def write_json(self, name: str, value: Any) -> None:
        """The same for JSON."""
        self.write_text(name, json.dumps(value, indent=1, ensure_ascii=False) + "\n")

    def read_manifest(self) -> Manifest:
        """What the run was made with, as its file has it: whoever takes a value from it checks that value."""
        return cast(Manifest, self.read_json(MANIFEST_FILE))

    def read_summary(self) -> RunSummary:
        """The results, as their file has them."""
        return cast(RunSummary, self.read_json(SUMMARY_FILE))

    def read_json(self, name: str) -> dict[str, Any]:
        """A JSON file of the run."""
        try:
            return dict(json.loads((self.path / name).read_text(encoding="utf-8")))
        except (OSError, TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"{self.path / name}: cannot be read ({format_error(error)}); is this the folder of a run?"
            ) from None


def _load_packed_rows(path: Path) -> list[MetricRow]:
    try:
        with lzma.open(path) as file:
            text = file.read(MAX_UNPACKED_METRICS + 1)
        if len(text) > MAX_UNPACKED_METRICS:
            raise ValueError(f"it unpacks to more than {MAX_UNPACKED_METRICS // 2**20} MiB")
        return [parse_row(json.loads(line)) for line in text.splitlines()]
    except (OSError, EOFError, lzma.LZMAError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InputError(f"{path}: damaged ({format_error(error)}); copy the record anew") from None
