"""Folders as Hugging Face's ``datasets`` writes them, made with pyarrow alone."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def write_split(folder: Path, columns: dict[str, list[Any]], features: dict[str, Any]) -> Path:
    """One split: an Arrow stream, and what is said of it."""
    import pyarrow as pa

    folder.mkdir(parents=True)
    table = pa.table(columns).replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    name = "data-00000-of-00001.arrow"
    with pa.OSFile(str(folder / name), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}]}))
    (folder / "dataset_info.json").write_text(json.dumps({"features": features}))
    return folder


def write_splits(folder: Path, splits: dict[str, dict[str, list[Any]]], features: dict[str, Any]) -> Path:
    for name, columns in splits.items():
        write_split(folder / name, columns, features)
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": list(splits)}))
    return folder


IMAGE_FEATURES: dict[str, Any] = {
    "image": {"_type": "Image"},
    "label": {"names": ["dog", "cat"], "_type": "ClassLabel"},
    "writer": {"dtype": "string", "_type": "Value"},
}


def make_image_columns(count: int = 24, seed: int = 0) -> dict[str, list[Any]]:
    """Small grey PNG images of two classes by two writers."""
    order = np.random.RandomState(seed)
    images = []
    for i in range(count):
        file = io.BytesIO()
        Image.fromarray((order.randint(0, 100, (6, 5)) + 100 * (i % 2)).astype(np.uint8)).save(file, "PNG")
        images.append({"bytes": file.getvalue(), "path": f"{i}.png"})
    writers = ["ann" if i < count // 2 else "bob" for i in range(count)]
    return {"image": images, "label": [i % 2 for i in range(count)], "writer": writers}
