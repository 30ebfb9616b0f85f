"""Parquet files, and folders of Hugging Face's datasets, are read as CSV files and folders of images are."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from arrow_files import IMAGE_FEATURES, make_image_columns, write_split, write_splits
from found_files import TABLE, make_rows, write_table
from PIL import Image

import fedtrain
from fedtrain.config.data import DataSettings
from fedtrain.data.build import build_federation
from fedtrain.data.found.find_dataset import find_dataset
from fedtrain.data.found.kept_datasets import keep_dataset, load_kept_dataset

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402 - only if it is there


def write_parquet(path: Path, rows: list[dict[str, Any]], **types: Any) -> Path:
    table = pa.Table.from_pylist(rows)
    for name, kind in types.items():
        place = table.column_names.index(name)
        table = table.set_column(place, name, table.column(name).cast(kind))
    pq.write_table(table, path)
    return path


def test_a_parquet_file_is_the_csv_file(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = make_rows()
    rows[3]["pain"] = rows[5]["age"] = None
    path = write_parquet(tmp_path / "t.parquet", rows)
    plain = write_table(tmp_path / "t.csv", rows)
    for more in ({}, {"categories": ("grade",)}, {"standardise": "none", "missing": "drop"}):
        ours, theirs = (build_federation(DataSettings(str(one), **TABLE, **more)) for one in (path, plain))
        assert ours.fingerprint == theirs.fingerprint
        assert ours.table == theirs.table
        assert ours.notes == theirs.notes


def test_columns_of_many_types_are_numbers(tmp_path: Path) -> None:
    rows = make_rows()
    kinds = {"grade": pa.int8(), "age": pa.float32(), "pain": pa.dictionary(pa.int32(), pa.string())}
    path = write_parquet(tmp_path / "t.parquet", rows, **kinds)
    plain = find_dataset(write_table(tmp_path / "t.csv", rows), DataSettings(**TABLE))
    found = find_dataset(path, DataSettings(**TABLE))
    assert found.info.table == plain.info.table
    assert found.info.classes == plain.info.classes
    with_decimals = write_parquet(tmp_path / "d.parquet", rows, grade=pa.decimal128(25, 2))
    assert find_dataset(with_decimals, DataSettings(**TABLE)).info.table == plain.info.table


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda row: row.update(when=pa.scalar(0, pa.timestamp("s")).as_py()), r"when is of type timestamp.*ignore"),
        (lambda row: row.update(many=[1, 2]), "many is of type list"),
        (lambda row: row.update(age=float("inf")), r"t\.parquet, row 1: age is inf, no finite number"),
        (lambda row: row.update(ill=None), r"row 1: ill is missing"),
        (lambda row: row.update(site="ba/sel"), "cannot be the name of a file"),
    ],
)
def test_a_parquet_file_is_refused(tmp_path: Path, change: Any, words: str) -> None:
    rows: list[dict[str, Any]] = make_rows()
    for row in rows:
        change(row)
    path = write_parquet(tmp_path / "t.parquet", rows)
    with pytest.raises(fedtrain.InputError, match=words) as error:
        fedtrain.train(dataset=path, **TABLE, rounds=1, out=tmp_path / "run", quiet=True)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_what_is_no_parquet_file_is_said(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "t.parquet", make_rows())
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(fedtrain.InputError, match=r"t\.parquet: not a readable Parquet file"):
        find_dataset(path, DataSettings(**TABLE))
    wide = pa.table({f"c{i}": [0.0] for i in range(5000)})
    pq.write_table(wide, path)
    with pytest.raises(fedtrain.InputError, match="it has 5000 columns, more than 4096"):
        find_dataset(path, DataSettings(**TABLE))


def test_a_run_on_parquet_predicts_rows_of_csv(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "t.parquet", make_rows())
    run = fedtrain.train(
        dataset=path, **TABLE, rounds=1, method="fedbn", quiet=True, metrics="none", settings={"model.units": 4},
        out=tmp_path / "run",
    )  # fmt: skip
    asked = [{"age": 50.0, "pain": "some", "grade": 2}, {"age": 30.0, "pain": "none", "grade": 1}]
    one, other = write_parquet(tmp_path / "q.parquet", asked), write_table(tmp_path / "q.csv", asked)
    assert torch.equal(run.predict("basel", [one]).probabilities, run.predict("basel", [other]).probabilities)


def test_a_folder_of_images(tmp_path: Path) -> None:
    """Each image is where its row says, whether kept or read anew."""
    columns = make_image_columns()
    folder = write_split(tmp_path / "pets", columns, IMAGE_FEATURES)
    found = find_dataset(folder, DataSettings(str(folder), client_column="writer"))
    assert list(found.info.domains) == ["ann", "bob"]
    assert found.info.classes == ("dog", "cat")  # in the order of the data set
    assert found.info.input_shape == (1, 6, 5)
    keep_dataset(found, "pets", tmp_path / "data")
    for one in (found, load_kept_dataset("pets", tmp_path / "data")):
        for number, pool in enumerate(one.pools):
            everything = []
            for part in ("train", "test"):
                labels = getattr(pool, part)
                inputs = pool.load_inputs(part, np.arange(len(labels)))
                everything += [(x.numpy().tobytes(), y) for x, y in zip(inputs, labels.tolist(), strict=True)]
            wanted = [
                (np.array(Image.open(io.BytesIO(image["bytes"]))).tobytes(), label)
                for image, label in zip(columns["image"], columns["label"], strict=True)
            ][12 * number :][:12]
            assert sorted(everything) == sorted(wanted)


def test_splits_are_those_of_the_data_set(tmp_path: Path) -> None:
    parts = {"train": make_image_columns(16), "validation": make_image_columns(4, 1), "test": make_image_columns(8, 2)}
    folder = write_splits(tmp_path / "pets", parts, IMAGE_FEATURES)
    found = find_dataset(folder, DataSettings(client_column="writer"))
    assert [(len(pool.train), len(pool.test)) for pool in found.pools] == [(8, 4), (8, 4)]
    assert "split validation is left out" in found.notes[0]
    rows = make_rows()
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    table = write_splits(tmp_path / "t", {"train": columns, "test": columns}, {})
    read = find_dataset(table, DataSettings(**TABLE))
    assert [(len(pool.train), len(pool.test)) for pool in read.pools] == [(31, 31), (24, 24)]
    plain = find_dataset(write_table(tmp_path / "t.csv", rows), DataSettings(**TABLE)).info.table
    assert read.info.table is not None
    assert plain is not None
    assert read.info.table.columns == plain.columns


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda f: (f / "state.json").write_text("{}"), "it names no files"),
        (lambda f: (f / "state.json").write_text('{"_data_files": [{"filename": "../x"}]}'), "it names no files"),
        (lambda f: (f / "state.json").write_text("["), "not a readable JSON file"),
        (lambda f: (f / "data-00000-of-00001.arrow").write_bytes(b"x" * 40), "not a readable Arrow file"),
        (lambda f: (f / "data-00000-of-00001.arrow").unlink(), "no such file|not an image|no images"),
    ],
)
def test_a_damaged_folder_is_refused(tmp_path: Path, harm: Any, words: str) -> None:
    folder = write_split(tmp_path / "pets", make_image_columns(), IMAGE_FEATURES)
    harm(folder)
    with pytest.raises(fedtrain.InputError, match=words):
        find_dataset(folder, DataSettings(client_column="writer"))


@pytest.mark.parametrize(
    ("change", "how", "words"),
    [
        ({"label": [7] * 24}, {}, "row 1: label is 7, and there are 2 classes"),
        ({"image": [{"bytes": None, "path": "/etc/passwd"}] * 24}, {}, "row 1: image holds no bytes of an image"),
        ({"image": [{"bytes": b"no", "path": ""}] * 24}, {}, r"row 1: not a readable image"),
        ({}, {"client_column": "author"}, "no column 'author'"),
        ({}, {"target": "what"}, "no column 'what'"),
        ({"writer": [None] * 24}, {"client_column": "writer"}, "row 1: writer is missing"),
        ({"\x1b[2J": [0] * 24}, {"target": "what"}, "give every column a name that can be printed"),
    ],
)
def test_bad_rows_are_refused(tmp_path: Path, change: dict[str, Any], how: dict[str, Any], words: str) -> None:
    folder = write_split(tmp_path / "pets", {**make_image_columns(), **change}, IMAGE_FEATURES)
    with pytest.raises(fedtrain.InputError, match=words) as error:
        find_dataset(folder, DataSettings(**how))
    assert "\n" not in str(error.value)


def test_names_of_fields_that_are_no_text_are_refused(tmp_path: Path) -> None:
    folder = write_split(tmp_path / "pets", make_image_columns(), IMAGE_FEATURES)
    file = folder / "data-00000-of-00001.arrow"
    file.write_bytes(file.read_bytes().replace(b"path", b"p\xffth"))
    with pytest.raises(fedtrain.InputError, match="row 1: not a readable image: UnicodeDecodeError"):
        find_dataset(folder, DataSettings())


def test_what_datasets_itself_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With that package, if it is installed: saved to a disk, and in its cache."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    columns = make_image_columns()
    features = datasets.Features(
        image=datasets.Image(), label=datasets.ClassLabel(names=["dog", "cat"]), writer=datasets.Value("string")
    )
    whole = datasets.Dataset.from_dict(columns, features=features)
    whole.save_to_disk(str(tmp_path / "saved"))
    ours = write_split(tmp_path / "ours", columns, IMAGE_FEATURES)
    how = DataSettings(client_column="writer")
    saved, made = (find_dataset(path, how) for path in (tmp_path / "saved", ours))
    assert saved.info.classes == made.info.classes
    for one, other in zip(saved.pools, made.pools, strict=True):
        everything = np.arange(len(one.train))
        assert torch.equal(one.load_inputs("train", everything), other.load_inputs("train", everything))
    whole.train_test_split(0.25, seed=0).save_to_disk(str(tmp_path / "parts"))
    assert sum(len(pool.test) for pool in find_dataset(tmp_path / "parts", how).pools) == 6
    rows = make_rows()
    with (tmp_path / "t.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    datasets.load_dataset("csv", data_files=str(tmp_path / "t.csv"), cache_dir=str(tmp_path / "cache"))
    [cached] = {path.parent for path in (tmp_path / "cache").rglob("*.arrow")}
    table = find_dataset(cached, DataSettings(**TABLE)).info.table
    assert table == find_dataset(tmp_path / "t.csv", DataSettings(**TABLE)).info.table
