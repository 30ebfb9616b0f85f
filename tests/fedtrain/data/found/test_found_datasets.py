"""Data sets that are found at a path: what is in them, what is said of them, and that training takes them."""

from __future__ import annotations

import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from found_files import SITES, TABLE, make_rows, write_images, write_table
from PIL import Image

import fedtrain
from fedtrain.config.data import DataSettings
from fedtrain.data.build import build_federation, build_single_client, count_clients
from fedtrain.data.source import load_dataset

TINY: dict[str, Any] = {"rounds": 2, "method": "fedbn", "quiet": True, "settings": {"model.width": 8}}


def settings_for(path: Path, **given: Any) -> DataSettings:
    return DataSettings(dataset=str(path), **given)


def test_a_table_is_encoded_as_by_hand(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv")
    data = build_federation(settings_for(path, **TABLE, categories=("grade",)))
    assert [client.name for client in data.clients] == list(SITES)
    assert data.classes == ("no", "yes")
    for client in data.clients:
        mine = [row for row in make_rows() if row["site"] == client.name]
        ages = np.array([row["age"] for row in mine])
        decoded = client.train.inputs[:, 0].double() * client.scaling.std[0] + client.scaling.mean[0]
        assert all(np.abs(ages - age).min() < 1e-3 for age in decoded.tolist())
        assert client.train.inputs[:, 0].mean().abs() < 1e-5
        assert abs(float(client.train.inputs[:, 0].std(correction=0)) - 1) < 1e-5
        for samples in (client.train, client.test):
            assert samples.inputs.shape[1] == 1 + 4 + 4  # a number, three pains and three grades, each with an unknown
            assert (samples.inputs[:, 1:5].sum(1) == 1).all()
            assert (samples.inputs[:, 5:].sum(1) == 1).all()
        for row in mine:
            wanted = ["much", "none", "some"].index(row["pain"]), [1, 2, 3].index(row["grade"])
            ours = torch.cat([client.train.inputs, client.test.inputs])
            place = (ours[:, 0] * client.scaling.std[0] + client.scaling.mean[0] - row["age"]).abs() < 1e-3
            assert any((int(one[1:5].argmax()), int(one[5:].argmax())) == wanted for one in ours[place])


def test_the_split_is_stratified_seeded_and_whole(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv")
    first, again, other = (
        build_federation(settings_for(path, **TABLE, split_seed=seed)).fingerprint for seed in (0, 0, 1)
    )
    assert first == again != other
    for client in build_federation(settings_for(path, **TABLE)).clients:
        both = torch.cat([client.train.labels, client.test.labels])
        assert len(both) == SITES[client.name]
        assert len(client.test) == round(0.2 * SITES[client.name])
        share = client.test.labels.double().mean() - both.double().mean()
        assert abs(float(share)) < 1 / len(client.test)


def test_twins_are_all_trained_on_even_at_different_clients(tmp_path: Path) -> None:
    rows = make_rows()
    twin = {**rows[0], "site": "geneva"}
    data = build_federation(settings_for(write_table(tmp_path / "t.csv", [*rows, twin]), **TABLE, standardise="none"))
    for client in data.clients:
        assert float((client.test.inputs[:, 0] - rows[0]["age"]).abs().min()) > 1e-4
        assert float((client.train.inputs[:, 0] - rows[0]["age"]).abs().min()) < 1e-4
    assert "2 samples that are byte by byte the same are all trained on" in " ".join(data.notes)


def test_unknown_categories_and_missing_values_have_a_place(tmp_path: Path) -> None:
    rows = make_rows()
    for row in rows:
        row["part"] = "train"
    rows[3]["age"], rows[5]["pain"] = "", "NA"
    rows[7] |= {"pain": "unheard of", "part": "test"}
    rows[40] |= {"part": "Test"}
    path = write_table(tmp_path / "t.csv", rows)
    found = load_dataset(settings_for(path, **TABLE, split_column="part"))
    assert found.info.table is not None
    assert found.info.table.columns[1].categories == ("much", "none", "some")
    basel = build_federation(settings_for(path, **TABLE, split_column="part")).clients[0]
    assert basel.test.inputs[0, 2:6].tolist() == [0, 0, 0, 1] or basel.test.inputs[0, 1:5].tolist() == [0, 0, 0, 1]
    assert (basel.train.inputs[:, 0] == 0).any()  # the mean, standardised
    assert basel.train.inputs.isfinite().all()
    dropped = build_federation(settings_for(path, **TABLE, split_column="part", missing="drop"))
    assert len(dropped.clients[0].train) == len(basel.train) - 2
    assert "2 rows are left out" in dropped.notes[0]


def test_a_folder_and_its_zip_are_the_same_data(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "pets")
    with zipfile.ZipFile(tmp_path / "pets.zip", "w") as archive:
        for file in sorted(folder.rglob("*.*")):
            archive.write(file, file.relative_to(tmp_path))
    plain, packed = (build_federation(settings_for(tmp_path / name)) for name in ("pets", "pets.zip"))
    assert plain.fingerprint == packed.fingerprint
    assert plain.classes == ("2", "10")
    assert plain.clients[0].train.inputs.shape == (10, 1, 8, 6)
    images = torch.cat([plain.clients[0].train.inputs, plain.clients[0].test.inputs])
    for file in (folder / "ann").rglob("*.*"):
        pixels = torch.from_numpy(np.array(Image.open(file)))
        assert (images[:, 0] == pixels).all((1, 2)).sum() == 1


def test_images_of_many_sizes_are_resized_and_it_is_said(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "pets")
    alike = build_federation(settings_for(folder, image_size=5))
    assert alike.notes[0] == "images of 8x6 pixels are resized to 5x5"
    Image.new("RGB", (30, 20)).save(folder / "bob" / "2" / "odd.jpg")
    data = build_federation(settings_for(folder))
    assert data.clients[0].train.inputs.shape[1:] == (3, 8, 6)
    assert data.notes[0] == "images of 8x6 to 20x30 pixels are resized to 8x6"
    assert build_federation(settings_for(folder, image_size=5)).clients[1].test.inputs.shape[1:] == (3, 5, 5)


@pytest.mark.parametrize("kind", ["numbers", "pixels", "names"])
def test_arrays_are_taken_as_they_are(tmp_path: Path, kind: str) -> None:
    order = np.random.RandomState(0)
    owner, y = np.repeat([0, 1], 20), np.tile([1, 2], 20)
    X = order.randint(0, 255, (40, 7, 5, 3)).astype(np.uint8) if kind == "pixels" else order.randn(40, 3)
    more = {"clients": ["ann", "bob"], "classes": ["-", "x", "y"]} if kind == "names" else {}
    np.savez(tmp_path / "a.npz", X=X, y=y, owner=owner, **more)
    data = build_federation(settings_for(tmp_path / "a.npz"))
    assert [client.name for client in data.clients] == (["ann", "bob"] if more else ["0", "1"])
    assert data.classes == (("-", "x", "y") if more else ("1", "2"))
    mine = torch.cat([data.clients[0].train.inputs, data.clients[0].test.inputs])
    wanted = torch.from_numpy(X[:20].transpose(0, 3, 1, 2) if kind == "pixels" else X[:20].astype(np.float32))
    assert {one.numpy().tobytes() for one in mine} == {one.contiguous().numpy().tobytes() for one in wanted}


@pytest.mark.parametrize("skew", ["domain", "iid", "pathological", "dirichlet"])
def test_every_skew_shares_samples_out_once(tmp_path: Path, skew: Any) -> None:
    path = write_table(tmp_path / "t.csv")
    how = {} if skew == "domain" else {"clients": 3, "alpha": 5.0, "least": 1}
    settings = settings_for(path, **TABLE, skew=skew, **how, standardise="none")
    data = build_federation(settings)
    assert count_clients(settings) == len(data.clients) == (2 if skew == "domain" else 3)
    ages = torch.cat([part.inputs[:, 0] for client in data.clients for part in (client.train, client.test)])
    taken, there = Counter(ages.tolist()), Counter(float(np.float32(row["age"])) for row in make_rows())
    assert taken <= there
    if skew != "pathological":  # which leaves some to nobody
        assert taken == there
    for place, client in enumerate(data.clients):
        assert build_single_client(settings, place).clients[0].fingerprint == client.fingerprint


def test_a_table_is_trained_resumed_evaluated_and_asked(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv")
    run = fedtrain.train(dataset=path, **TABLE, **TINY, out=tmp_path / "run")
    assert run.config.data.dataset == str(path)
    assert len(run.config.data.sha256) == 64
    assert [row["accuracy"] for row in run.evaluate()] == list(
        {row["client"]: row["accuracy"] for row in run.rows if row["split"] == "test"}.values()
    )
    again = fedtrain.train(resume=run.path, rounds=3, quiet=True)
    straight = fedtrain.train(dataset=path, **TABLE, **{**TINY, "rounds": 3}, out=tmp_path / "straight")
    assert again.rows == straight.rows
    data = build_federation(run.config.data)
    wanted = again.model("geneva")(data.clients[1].test.inputs)
    answers = again.predict("geneva", [path]).probabilities
    rows = [again.trained.read_inputs([path], "geneva").inputs]
    assert all((rows[0] == one).all(1).any() for one in data.clients[1].test.inputs)
    assert len(answers) == sum(SITES.values())
    assert wanted.shape == (len(data.clients[1].test), 2)


def test_what_was_planned_with_other_bytes_is_refused(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv")
    run = fedtrain.train(dataset=path, **TABLE, **TINY, out=tmp_path / "run")
    write_table(path, make_rows()[:-1])
    for attempt in (run.evaluate, lambda: fedtrain.train(resume=run.path, rounds=3, quiet=True)):
        with pytest.raises(fedtrain.InputError, match=r"t\.csv: it is not what the run was planned with"):
            attempt()


def test_images_are_trained_and_asked(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "pets", mode="RGB")
    run = fedtrain.train(dataset=folder, **TINY, out=tmp_path / "run")
    file = folder / "ann" / "10" / "1.png"
    asked = run.predict("ann", [file]).probabilities
    held = run.predict("ann", torch.from_numpy(np.array(Image.open(file))).permute(2, 0, 1)[None]).probabilities
    assert torch.equal(asked, held)
