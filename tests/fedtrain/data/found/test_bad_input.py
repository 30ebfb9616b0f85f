"""Mistakes in data of one's own: each is said in one line, with file, client and way out, before anything begins."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from found_files import TABLE, make_rows, write_images, write_table

import fedtrain
from fedtrain.config.data import DataSettings
from fedtrain.data.found.find_dataset import find_dataset
from fedtrain.data.found.kept_datasets import check_kept_dataset, keep_dataset, load_kept_dataset

HOW = DataSettings(**TABLE)
Change = Callable[[list[dict[str, Any]]], Any]
TABLES: dict[str, tuple[Change, str]] = {
    "text for a number": (lambda rows: rows[4].update(age="old"), r"t\.csv, line 6: age is 'old'"),
    "infinite": (lambda rows: rows[4].update(age="inf"), r"line 6: age is 'inf', no finite number"),
    "too large": (lambda rows: rows[4].update(age="1e39"), r"line 6: age is '1e39', no finite number of single"),
    "one sample": (lambda rows: rows.append({**rows[0], "site": "chur"}), "client chur has 1 sample"),
    "case": (lambda rows: rows[0].update(site="Basel"), "'Basel' and 'basel' differ only by case"),
    "slash": (lambda rows: rows[0].update(site="../basel"), r"client '\.\./basel' cannot be the name of a file"),
    "escape": (lambda rows: rows[0].update(site="b\x1b[2J"), "cannot be printed"),
    "no client": (lambda rows: rows[2].update(site=""), "line 4: site is missing"),
    "no label": (lambda rows: rows[2].update(ill=""), "line 4: ill is missing"),
    "missing at a site": (
        lambda rows: [row.update(age="") for row in rows if row["site"] == "geneva"],
        "client geneva has no value of age; ignore the column",
    ),
    "one class": (lambda rows: [row.update(ill="no") for row in rows], "all rows are of class 'no'"),
    "a number to predict": (lambda rows: [row.update(ill=i * 0.5) for i, row in enumerate(rows)], "different values"),
    "a long name": (lambda rows: [row.update({"x" * 201: 0}) for row in rows], "has a name of over 200 characters"),
    "many columns": (lambda rows: [row.update({f"c{i}": 0 for i in range(10_000)}) for row in rows], "10005 columns"),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_refused(tmp_path: Path, name: str) -> None:
    change, words = TABLES[name]
    rows = make_rows()
    change(rows)
    path = write_table(tmp_path / "t.csv", rows)
    with pytest.raises(fedtrain.InputError, match=words) as error:
        fedtrain.train(dataset=path, **TABLE, rounds=1, out=tmp_path / "run", quiet=True)
    assert "\n" not in str(error.value)
    assert sorted(tmp_path.iterdir()) == [path]


def test_a_class_that_is_only_tested_is_refused(tmp_path: Path) -> None:
    rows = [{**row, "part": "train"} for row in make_rows()]
    rows[3] |= {"ill": "perhaps", "part": "test"}
    rows[-1] |= {"part": "test"}
    path = write_table(tmp_path / "t.csv", rows)
    with pytest.raises(fedtrain.InputError, match="client basel tests class 'perhaps', of which nobody has a training"):
        find_dataset(path, DataSettings(**TABLE, split_column="part"))
    rows[3] |= {"part": "dev"}
    with pytest.raises(fedtrain.InputError, match="line 5: part is 'dev'; write train or test"):
        find_dataset(write_table(path, rows), DataSettings(**TABLE, split_column="part"))


def keep_one(client: Path) -> None:
    for file in sorted(client.rglob("*.*"))[1:]:
        file.unlink()
    for label in [one for one in client.iterdir() if not any(one.iterdir())]:
        label.rmdir()


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda folder: (folder / "ann" / "3").mkdir(), "ann/3: no image is in this folder"),
        (lambda folder: (folder / "ann" / "2" / "x.txt").touch(), r"ann/2/x\.txt: not an image file"),
        (lambda folder: (folder / "ann" / "2" / "x.png").write_text("no"), r"ann/2/x\.png: not a readable image"),
        (lambda folder: (folder / "bob").rename(folder / "ANN"), "differ only by case"),
        (lambda folder: (folder / "bob").rename(folder / "b\tb"), "cannot be printed"),
        (lambda folder: (folder / "bob").rename(folder / "b\\b"), "cannot be the name of a file"),
        (lambda folder: keep_one(folder / "bob"), "client bob has 1 sample"),
        (lambda folder: shutil.copytree(folder / "bob", folder / "test" / "bob"), "lies 3 folders deep|neither below"),
    ],
)
def test_a_folder_is_refused(tmp_path: Path, harm: Callable[[Path], Any], words: str) -> None:
    folder = write_images(tmp_path / "pets")
    harm(folder)
    with pytest.raises(fedtrain.InputError, match=words):
        find_dataset(folder, DataSettings())


@pytest.mark.skipif(sys.platform != "linux", reason="other systems take no such names")
def test_an_image_may_be_called_by_bytes_that_are_no_text(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "pets")
    (folder / "ann" / "2" / "0.bmp").rename(folder / "ann" / "2" / os.fsdecode(b"\xb1.bmp"))
    assert len(find_dataset(folder, DataSettings()).sha256) == 64
    (folder / "bob").rename(folder / os.fsdecode(b"b\xb1b"))
    with pytest.raises(fedtrain.InputError, match=r"b\\udcb1b' has characters that cannot be printed"):
        find_dataset(folder, DataSettings())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"X": np.where(np.arange(80).reshape(20, 4) == 14, np.nan, 1.0)},
            r"X\[3, 2\] \(client 0\) is nan; replace or",
        ),
        ({"y": np.full(20, 0.5)}, r"y\[0\] is 0\.5; class labels are whole numbers"),
        ({"owner": np.zeros(3)}, r"owner has shape \(3,\), and X has 20 rows"),
        ({"classes": np.array(["a", "b"]), "y": np.tile([1, 2], 10)}, "counted from 0: subtract 1 from y"),
        ({"X": np.zeros(20)}, r"X has shape \(20,\)"),
    ],
)
def test_arrays_are_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    arrays = {"X": np.random.RandomState(0).randn(20, 4), "y": np.tile([0, 1], 10), "owner": np.repeat([0, 1], 10)}
    np.savez(tmp_path / "a.npz", **(arrays | change))
    with pytest.raises(fedtrain.InputError, match=words):
        find_dataset(tmp_path / "a.npz", DataSettings())


def test_clients_from_python_are_judged_as_files_are() -> None:
    x, y = torch.randn(8, 3), torch.tensor([0, 1] * 4)

    def plan(inputs: torch.Tensor, labels: torch.Tensor) -> Any:
        part = fedtrain.Samples(inputs, labels)
        return fedtrain.plan(clients=[fedtrain.ClientData("basel", part, part)], settings={"model.width": 8})

    assert plan(x, y.int()).experiment.federation.clients[0].train.labels.dtype == torch.int64
    with pytest.raises(fedtrain.InputError, match="labels go from 1 to 2, and classes are counted from 0; subtract 1"):
        plan(x, y + 1)
    bad = x.clone()
    bad[3, 2] = torch.nan
    with pytest.raises(fedtrain.InputError, match=r"^client basel, train: X\[3, 2\] is nan; replace or drop values"):
        plan(bad, y)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "../x"}, "client '../x' cannot be the name of a file"),
        ({"name": "a\x1b[2J"}, "cannot be printed"),
        ({"name": ""}, "give it a name"),
        ({"name": "Geneva"}, "'Geneva' and 'geneva' differ only by case"),
        ({"x": torch.randn(8)}, r"^client basel, train: inputs have shape \(8,\); give a row for each sample"),
        ({"x": torch.randn(0, 3), "y": torch.zeros(0)}, "^client basel, train: there is no sample"),
        ({"y": np.array(["a", "b"] * 4)}, "must be numbers, tensors or NumPy arrays"),
        ({"y": torch.zeros(8)}, "labels must be class numbers"),
        ({"y": torch.tensor([0, 2] * 4), "classes": ["a", "b"]}, "a label is 2, and 2 classes are named"),
        ({"classes": ["a", "a"]}, "two classes are called 'a'"),
        ({"classes": ["a", "b\n"]}, "give it a name without blanks"),
    ],
)
def test_bad_clients_from_python_are_refused(change: dict[str, Any], words: str) -> None:
    x, y = torch.randn(8, 3), torch.tensor([0, 1] * 4)
    with pytest.raises(fedtrain.InputError, match=words) as error:
        fedtrain.plan(
            clients=[
                fedtrain.ClientData.from_arrays(
                    change.get("name", "basel"), train=(change.get("x", x), change.get("y", y)), test=(x, y)
                ),
                fedtrain.ClientData.from_arrays("geneva", train=(x, y), test=(x, y)),
            ],
            classes=change.get("classes"),
            settings={"model.width": 8},
        )
    assert "\n" not in str(error.value)


def test_what_is_kept_trains_to_the_same_bits(tmp_path: Path) -> None:
    path, root = write_table(tmp_path / "t.csv"), tmp_path / "data"
    found = find_dataset(path, HOW)
    place = keep_dataset(found, "cases", root)
    kept = load_kept_dataset("cases", root)
    assert (kept.info.domains, kept.info.classes, kept.info.scaling, kept.info.table) == (
        found.info.domains, found.info.classes, found.info.scaling, found.info.table,
    )  # fmt: skip
    how: dict[str, Any] = {"rounds": 1, "method": "fedbn", "quiet": True, "settings": {"model.width": 8}}
    first = fedtrain.train(dataset=path, **TABLE, **how, out=tmp_path / "first")
    again = fedtrain.train(dataset="cases", data_dir=root, **how, out=tmp_path / "again")
    assert first.rows == again.rows
    with pytest.raises(fedtrain.InputError, match="is already there"):
        keep_dataset(found, "cases", root)
    keep_dataset(found, "cases", root, replace_old=True)
    assert not any(problems for _, problems in check_kept_dataset("cases", root))
    file = place / "basel.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    assert "checksum" in dict(check_kept_dataset("cases", root))["basel"][0]
    assert sorted(one.name for one in root.iterdir()) == ["cases"]


@pytest.mark.parametrize("name", ["digits", "../x", "a b", ""])
def test_a_name_that_cannot_be_kept(tmp_path: Path, name: str) -> None:
    found = find_dataset(write_table(tmp_path / "t.csv"), HOW)
    with pytest.raises(fedtrain.InputError, match=r"choose another name|cannot be called"):
        keep_dataset(found, name, tmp_path / "data")
    assert not (tmp_path / "data").exists()
