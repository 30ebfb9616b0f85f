"""``fedco2 predict`` as a user meets it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from cli.main import main
from fedtrain.data.client_data import Samples
from fedtrain.data.standin import build_standin_pools
from fedtrain.inference.evaluate import evaluate_clients, load_run_data
from fedtrain.inference.trained_run import load_trained_run

TRAIN = ["train", "--dataset", "digits", "--data", "standin", "--rounds", "1", "--lr", "0.0001", "--threads", "1"]
SMALL = ["--set", "model.name=two-layer", "--set", "model.width=32", "--set", "data.percent=0.01", "--json"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("predict")

    def train(method):
        if not (path / method).exists():
            assert main([*TRAIN, *SMALL, "--method", method, "--out", str(path / method)]) == 0
        return path / method

    return train


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """The first test images of SVHN's stand-in as PNG files, and their labels."""
    pool = next(pool for pool in build_standin_pools("digits") if pool.domain == "svhn")
    folder = tmp_path_factory.mktemp("pictures")
    paths = [folder / f"{i}.png" for i in range(40)]
    for path, image in zip(paths, pool.load_inputs("test", np.arange(40)), strict=True):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(path)
    return paths, pool.test[:40]


@pytest.fixture
def ask(capsys):
    def run(*arguments):
        capsys.readouterr()  # what training said
        code = main(["predict", *map(str, arguments)])
        out = capsys.readouterr()
        return code, out.out, out.err

    return run


def shorter(data):
    """The same clients with forty test images each."""

    def first(samples):
        return Samples(samples.inputs[:40], samples.labels[:40])

    return replace(data, clients=tuple(replace(client, test=first(client.test)) for client in data.clients))


def test_files_are_classified_as_evaluation_does(trained, pictures, ask):
    folder, (paths, labels) = trained("fedco2"), pictures
    run = load_trained_run(folder)
    data = shorter(load_run_data(run))
    rows = {row["branch"]: row["accuracy"] for row in evaluate_clients(run, data, "test", "svhn")}
    logits = run.compute_logits("svhn", data.clients[1].test.inputs)
    assert list(rows) == list(logits) == ["fused", "online", "offline"]
    for branch, accuracy in rows.items():
        code, out, _ = ask(folder, "--client", "svhn", "--branch", branch, "--top", 99, "--json", *paths)
        report = json.loads(out)
        assert (code, report["branch"], report["client"], report["standin"]) == (0, branch, "svhn", True)
        tops = [one["top"] for one in report["predictions"]]
        first = np.array([int(top[0]["class"]) for top in tops])
        assert np.mean(first == labels) == accuracy
        assert first.tolist() == logits[branch].argmax(-1).tolist()
        for top in tops:
            chances = [guess["probability"] for guess in top]
            assert sorted(int(guess["class"]) for guess in top) == list(range(10))
            assert chances == sorted(chances, reverse=True)
            assert sum(chances) == pytest.approx(1)


def test_clients_have_models_of_their_own(trained, pictures, ask):
    run, (paths, _) = trained("fedco2"), pictures
    one, two = (json.loads(ask(run, "--client", name, "--json", *paths)[1]) for name in ("svhn", "mnist"))
    assert one["predictions"] != two["predictions"]


def test_the_data_are_not_needed(trained, pictures, ask, monkeypatch):
    run, (paths, _) = trained("fedco2"), pictures
    monkeypatch.setattr("fedtrain.data.source.build_standin_pools", None)
    assert ask(run, "--client", "svhn", paths[0])[0] == 0


def test_pictures_of_any_size_and_a_table_for_people(trained, pictures, ask, tmp_path, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    run, (paths, _) = trained("fedco2"), pictures
    with Image.open(paths[0]) as image:
        image.convert("L").resize((50, 70)).save(tmp_path / "grey.jpg")
    code, out, _ = ask(run, "--client", "svhn", "--top", 3, paths[0], tmp_path / "grey.jpg")
    assert code == 0
    assert out.startswith("Fed-CO2 on Digits (stand-in), model of svhn, branch fused, after round 1 of 1")
    rows = out.splitlines()[-6:]  # three classes for each
    assert [line.split()[0] for line in (rows[0], rows[3])] == [str(paths[0]), str(tmp_path / "grey.jpg")]


@pytest.mark.parametrize("columns", [80, 140])
def test_a_terminal_breaks_no_name_of_a_file(trained, pictures, ask, tmp_path, terminal, columns):
    terminal(columns)
    long = tmp_path / f"{'a_photograph_' * 6}.png"
    long.write_bytes(pictures[0][0].read_bytes())
    code, out, _ = ask(trained("fedco2"), "--client", "svhn", "--top", 3, long)
    assert code == 0
    lines = out.splitlines()
    assert str(long) in lines
    assert len(lines[lines.index(str(long)) + 1 :]) == 3  # a class and its probability each
    assert max(len(line) for line in lines if line != str(long)) <= columns


def test_a_client_that_was_never_seen(trained, pictures, ask):
    run, (paths, _) = trained("fedco2"), pictures
    code, out, _ = ask(run, "--new-client", "online-average", *paths)
    assert code == 0
    assert "for a client that was never seen (online-average), branch online" in out
    assert "statistics are those of these 40 images" in out
    assert "rough" not in out
    few = json.loads(ask(run, "--new-client", "online-average", "--json", *paths[:3])[1])
    assert (few["client"], few["policy"], few["branch"]) == (None, "online-average", "online")
    assert any("rough with fewer than 16" in note for note in few["notes"])
    code, _, err = ask(run, "--new-client", "online-average", paths[0])
    assert (code, "give at least 2" in err) == (2, True)


@pytest.mark.parametrize(("method", "what"), [("singleset", "everything"), ("fedper", "head")])
def test_methods_without_a_shared_classifier_have_nothing_for_a_stranger(trained, pictures, ask, method, what):
    code, out, err = ask(trained(method), "--new-client", "online-average", *pictures[0])
    assert (code, out) == (2, "")
    assert f"no model for a client that was never seen: {what} was never shared" in err
    assert "--client" in err
    assert ask(trained(method), "--client", "usps", *pictures[0])[0] == 0


def test_an_unreadable_picture_is_named(trained, ask, tmp_path):
    (tmp_path / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\nnonsense")
    for name in ("bad.png", "."):
        code, out, err = ask(trained("fedco2"), "--client", "svhn", tmp_path / name)
        assert (code, out) == (3, "")
        assert f"error: {tmp_path / name}: " in err


def test_a_picture_that_is_not_there_is_named(trained, pictures, ask, tmp_path):
    code, out, err = ask(trained("fedco2"), "--client", "svhn", pictures[0][0], tmp_path / "a.png", tmp_path / "b.png")
    assert (code, out) == (3, "")
    assert f"error: no such image file: {tmp_path / 'a.png'}, {tmp_path / 'b.png'}; give the path of an image" in err
    assert "data set" not in err


def test_bad_wishes_are_refused(trained, pictures, ask):
    run, picture = trained("fedco2"), pictures[0][0]
    for wrong in ([], ["--client", "svhn", "--new-client", "online-average"]):
        code, _, err = ask(run, *wrong, picture)
        assert (code, "--client NAME, --new-client online-average, or --newcomer FILE" in err) == (2, True)
    code, _, err = ask(run, "--new-client", "online-average", "--branch", "online", picture)
    assert (code, "--branch contradicts --new-client" in err) == (2, True)
    code, _, err = ask(run, "--client", "svhn", "--branch", "onlin", picture)
    assert (code, "did you mean 'online'" in err) == (2, True)
    code, _, err = ask(run, "--client", "svnh", picture)
    assert (code, "did you mean 'svhn'" in err) == (2, True)
    assert ask(run, "--client", "svhn")[0] == 2
    assert ask(run, "--new-client", "guess", picture)[0] == 2
    assert ask(run, "--client", "svhn", "--top", "0", picture)[0] == 2
