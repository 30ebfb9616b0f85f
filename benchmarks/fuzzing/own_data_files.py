"""Small valid files around data of a user's own: packed folders, kept data sets, predictions, personal parts."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from fedtrain.config.data import DataSettings
from fedtrain.data.found.find_dataset import find_dataset
from fedtrain.data.found.kept_datasets import DATASET_FILE, keep_dataset
from fedtrain.data.found.pools import FoundDataset
from fedtrain.data.scaling import Scaling
from fedtrain.inference.personal_file import FORMAT
from fedtrain.runs.predictions import SavedPredictions, save_predictions
from fedtrain.serialization.checked_file import save_checked
from fuzzing.containers import build_tar_seed, build_zip_seed, encode_npy
from fuzzing.project_files import CSV_TEXT, build_checked_seeds, build_csv_seeds, capture_file
from fuzzing.seed_file import Seed, build_plain_seed

TABLE_SETTINGS = DataSettings(dataset="t.csv", client_column="site", target="ill", split_column="part")
KEPT_NAME = "cases"


def build_packed_folder_seeds() -> list[Seed]:
    """Images of two clients and two classes, with and without a split; as zip and tar."""
    files: dict[str, bytes] = {}
    divided: dict[str, bytes] = {}
    for client in ("ann", "bob"):
        for label in ("cat", "dog"):
            for number in range(3):
                file = io.BytesIO()
                pixels = np.full((3, 4), 20 * number + len(files), np.uint8)
                Image.fromarray(pixels).save(file, "PNG" if number else "BMP")
                name = f"{number}.{'png' if number else 'bmp'}"
                files[f"pets/{client}/{label}/{name}"] = file.getvalue()
                divided[f"{client}/{'test' if number == 2 else 'train'}/{label}/{name}"] = file.getvalue()
    return [build_zip_seed(files), build_zip_seed(divided), build_tar_seed(files, pack=True)]


@contextmanager
def unpack_into(folder: Path) -> Iterator[None]:
    """Within, temporary folders are made there."""
    folder.mkdir(exist_ok=True)
    usual, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = usual


@cache
def find_table() -> FoundDataset:
    """A small table."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "t.csv"
        path.write_bytes(CSV_TEXT)
        return find_dataset(path, TABLE_SETTINGS)


def build_newcomer_seeds() -> list[Seed]:
    """Other tables with the same columns."""
    find_table()  # which writes a file, as no reader may
    return build_csv_seeds()


@cache
def keep_table() -> dict[str, bytes]:
    """What the same table becomes when it is kept: by name of the file."""
    with tempfile.TemporaryDirectory() as name:
        place = keep_dataset(find_table(), KEPT_NAME, Path(name))
        return {path.name: path.read_bytes() for path in place.iterdir()}


def build_kept_seeds() -> list[Seed]:
    """``dataset.toml``, line by line."""
    return [Seed(tuple(keep_table()[DATASET_FILE].splitlines(keepends=True)))]


def lay_out_kept(root: Path, description: bytes) -> None:
    """A data folder with the table, described so."""
    place = root / KEPT_NAME
    place.mkdir(parents=True, exist_ok=True)
    for name, content in keep_table().items():
        (place / name).write_bytes(description if name == DATASET_FILE else content)


def build_prediction_seeds() -> list[Seed]:
    """Those of two clients and branches: packed, and its arrays by themselves."""
    places = np.arange(6) % 2
    logits = {name: np.full((6, 2), value, np.float32) for name, value in (("fused", 0.5), ("online", 1.0))}
    found = SavedPredictions(3, ("ann", "bob"), ("test",), places, 0 * places, places.astype(np.uint64), places, logits)
    content = capture_file(lambda path: save_predictions(path, found))
    with np.load(io.BytesIO(content)) as arrays:
        whole = {f"{name}.npy": encode_npy(arrays[name]) for name in arrays.files}
    return [build_plain_seed(content), build_zip_seed(whole), build_zip_seed(whole, 0)]


def build_personal_seeds() -> list[Seed]:
    """With and without numbers to standardise by."""
    about = {"format": FORMAT, "client": "carla", "branch": "fused", "data": "ab", "method": "fedbn", "round": 3}
    scaling = Scaling((1.0, 0.0), (2.0, 1.0), (1.0, 0.0)).to_table()
    entries = {"features.1.weight": torch.ones(3), "features.1.num_batches_tracked": torch.tensor(4)}

    def capture(scaling: dict[str, list[float]] | None) -> bytes:
        return capture_file(lambda path: save_checked(path, entries, {**about, "seed": 0, "scaling": scaling}))

    return [seed for one in (None, scaling) for seed in build_checked_seeds(capture(one))]
