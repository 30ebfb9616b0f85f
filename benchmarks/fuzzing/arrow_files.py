"""Parquet and Arrow files, and what lies beside them, for the readers that need pyarrow."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fuzzing.seed_file import Seed, build_plain_seed

ARROW_FILE = "data-00000-of-00001.arrow"
FEATURES = {"image": {"_type": "Image"}, "label": {"names": ["dog", "cat"], "_type": "ClassLabel"}}
STATE = {"_data_files": [{"filename": ARROW_FILE}]}
STATE_WORDS = [b"null", b'"../x"', b'"/etc/passwd"', b"[[[[", b"1e999", b'""', b'"data-00000-of-00001.arrow"', b"{}"]


def _build_table() -> Any:
    import pyarrow as pa

    return pa.table(
        {
            "site": pa.array(["ward", "lab"] * 6).dictionary_encode(),
            "age": pa.array([40.5, None, *range(10)]),
            "pain": ["some", "much", None] * 4,
            "grade": pa.array(range(12), pa.int8()),
            "ill": [i % 3 == 0 for i in range(12)],
            "part": ["train", "train", "test"] * 4,
        }
    )


def build_parquet_seeds() -> list[Seed]:
    """Plain, packed in two ways, with checksums of pages, and in both versions of pages."""
    import pyarrow.parquet as parquet

    ways: Sequence[dict[str, Any]] = (
        {"compression": "none"},
        {"compression": "snappy", "use_dictionary": False},
        {"compression": "zstd", "data_page_version": "2.0", "write_page_checksum": True},
    )
    seeds = []
    for way in ways:
        file = io.BytesIO()
        parquet.write_table(_build_table(), file, **way)
        seeds.append(build_plain_seed(file.getvalue()))
    return seeds


def build_image_row_seeds() -> list[Seed]:
    """An Arrow stream of images with their labels, and one of a plain table."""
    import numpy as np
    import pyarrow as pa
    from PIL import Image

    images = []
    for shade in range(12):
        file = io.BytesIO()
        Image.fromarray(np.full((3, 4), 20 * shade, np.uint8)).save(file, "PNG")
        images.append({"bytes": file.getvalue(), "path": "x.png"})
    pictures = pa.table({"image": images, "label": [0, 1] * 6}).replace_schema_metadata(
        {"huggingface": json.dumps({"info": {"features": FEATURES}})}
    )
    return [build_plain_seed(_write_stream(table)) for table in (pictures, _build_table())]


def _write_stream(table: Any) -> bytes:
    import pyarrow as pa

    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def build_state_seeds() -> list[Seed]:
    """What ``datasets`` says of its files."""
    text = json.dumps(STATE).encode()
    return [build_plain_seed(text), build_plain_seed(json.dumps({**STATE, "_split": "train"}, indent=2).encode())]


def lay_out_folder(target: Path, arrow: bytes, state: bytes) -> Path:
    """The folder that ``datasets`` would write."""
    target.mkdir(exist_ok=True)
    (target / ARROW_FILE).write_bytes(arrow)
    (target / "state.json").write_bytes(state)
    (target / "dataset_info.json").write_text("{}")
    return target
