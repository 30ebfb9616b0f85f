"""Small data sets of a user's own: a table of two sites, a folder of two clients."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SITES = {"basel": 31, "geneva": 24}
TABLE = {"client_column": "site", "target": "ill"}


def write_table(path: Path, rows: list[dict[str, Any]] | None = None) -> Path:
    rows = make_rows() if rows is None else rows
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def make_rows() -> list[dict[str, Any]]:
    order = np.random.RandomState(3)
    rows = []
    for site, count in SITES.items():
        for i in range(count):
            ill = "yes" if i % 3 == 0 else "no"
            age = round(float(order.normal(60 if ill == "yes" else 40, 9)), 1)
            pain = ["none", "some", "much"][int(order.randint(3))]
            rows.append({"site": site, "age": age, "pain": pain, "grade": int(order.randint(1, 4)), "ill": ill})
    return rows


def write_images(folder: Path, *, size: tuple[int, int] = (8, 6), mode: str = "L", per_class: int = 6) -> Path:
    order = np.random.RandomState(4)
    for client in ("ann", "bob"):
        for label in ("2", "10"):
            place = folder / client / label
            place.mkdir(parents=True)
            for i in range(per_class):
                shape = (*size, 3) if mode == "RGB" else size
                pixels = order.randint(0, 100, shape).astype(np.uint8) + (100 if label == "2" else 0)
                Image.fromarray(pixels.astype(np.uint8), mode).save(place / f"{i}.{'png' if i % 2 else 'bmp'}")
    return folder
