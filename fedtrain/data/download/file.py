"""Fetch a file over HTTP: several places in turn, going on where a cut connection stopped, done only once checked."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from fedtrain.data.download.http_transfer import ConnectionCutError, DownloadRefusedError, resume_download
from fedtrain.data.download.sources import RemoteFile
from fedtrain.data.errors import DataError
from fedtrain.data.progress import Progress, ignore_progress
from fedtrain.data.readers.safe_read import CHUNK

CHECKSUMS_FILE = "checksums.json"
MAX_TRIES = 3
"""Attempts at one place, as long as each brings the file forward."""
MAX_UNKNOWN_SIZE = 2**34
"""Bytes of a file whose size is not known."""


def list_urls(remote: RemoteFile) -> tuple[str, ...]:
    """Its places; $FEDCO2_MIRROR, a folder on some server, is asked first."""
    own = os.environ.get("FEDCO2_MIRROR")
    return (*([f"{own.rstrip('/')}/{remote.name}"] if own else []), *remote.urls)


def download_file(remote: RemoteFile, folder: Path, checksums_path: Path, progress: Progress = ignore_progress) -> Path:
    """The file, in ``folder``. Without a published checksum the first one seen is kept in ``ledger`` and must recur."""
    folder.mkdir(parents=True, exist_ok=True)
    target, part = folder / remote.name, folder / f"{remote.name}.part"
    expected = remote.checksum or _read_checksums(checksums_path).get(remote.name)
    if target.exists():
        if expected is not None and _has_checksum(target, expected):
            return target
        target.unlink()
    failures = []
    for url in list_urls(remote):
        if expected is None:
            part.unlink(missing_ok=True)  # nothing could tell whether pieces of two places belong together
        failure = _download_from(url, part, remote, expected, progress)
        if failure is None:
            if expected is None:
                _record_checksum(checksums_path, remote.name, f"sha256:{_hash_file(part, 'sha256')}")
            os.replace(part, target)
            return target
        failures.append(f"{url} ({failure})")
    raise DataError(f"{remote.name} could not be fetched from {', '.join(failures)}")


def _download_from(url: str, part: Path, remote: RemoteFile, expected: str | None, progress: Progress) -> str | None:
    """Complete ``part`` from one place; what went wrong, or None."""
    for _ in range(MAX_TRIES):
        before = _get_size(part)
        try:
            resume_download(url, part, remote.size or MAX_UNKNOWN_SIZE, progress)
        except DownloadRefusedError as error:
            return str(error)
        except ConnectionCutError as error:
            if _get_size(part) == before:
                return str(error)
            continue
        if expected is None or _has_checksum(part, expected):
            return None
        part.unlink()
        if not before:
            return "of the wrong checksum"
        # what lay here from another time or place may be to blame: once more from the start
    return f"the connection was cut {MAX_TRIES} times"


def _get_size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _has_checksum(path: Path, checksum: str) -> bool:
    kind, _, value = checksum.partition(":")
    return _hash_file(path, kind) == value


def _hash_file(path: Path, kind: str) -> str:
    digest = hashlib.new(kind, usedforsecurity=False)
    with path.open("rb") as file:
        while piece := file.read(CHUNK):
            digest.update(piece)
    return digest.hexdigest()


def _read_checksums(checksums_path: Path) -> dict[str, str]:
    try:
        seen = json.loads(checksums_path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise DataError(f"{checksums_path}: not readable; remove it to trust the next download anew") from error
    if not isinstance(seen, dict) or not all(isinstance(value, str) for value in seen.values()):
        raise DataError(f"{checksums_path}: not a list of checksums; remove it to trust the next download anew")
    return seen


def _record_checksum(checksums_path: Path, name: str, checksum: str) -> None:
    fresh = checksums_path.with_name(f".{checksums_path.name}-{os.getpid()}")
    with fresh.open("w", encoding="utf-8") as file:
        json.dump({**_read_checksums(checksums_path), name: checksum}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, checksums_path)
