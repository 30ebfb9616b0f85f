"""Keep the records of finished runs beside the pages of results.

``python docs/tools/add_records.py docs/results/records/FOLDER RUN [RUN ...]``. Settings, manifest and summary are
stored as they are, the metrics as ``metrics.jsonl.xz``, which reports read too. Checkpoints and figures stay behind.
Then run ``compact_records.py``.
"""

from __future__ import annotations

import lzma
import shutil
import sys
from pathlib import Path

KEPT = ("config.toml", "manifest.json", "summary.json")


def add_record(run: Path, folder: Path) -> None:
    """Copy what others need to check a result; a record that is there already is not replaced."""
    record = folder / run.name
    record.mkdir(parents=True)
    for name in KEPT:
        shutil.copyfile(run / name, record / name)
    rows = (run / "metrics.jsonl").read_bytes()
    (record / "metrics.jsonl.xz").write_bytes(lzma.compress(rows, preset=9 | lzma.PRESET_EXTREME))


def main() -> None:
    """The folder first, then the runs."""
    folder, *runs = map(Path, sys.argv[1:])
    for run in runs:
        add_record(run, folder)


if __name__ == "__main__":
    main()
