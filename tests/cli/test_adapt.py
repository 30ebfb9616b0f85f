"""fedco2 train --hold-out, adapt and predict --newcomer, one after the other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from found_files import make_rows, write_images, write_table

from cli.main import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapt")
    path = write_table(folder / "t.csv")
    done = main(
        ["train", "--dataset", str(path), "--client-column", "site", "--target", "ill", "--hold-out", "geneva",
         "--rounds", "2", "--set", "model.units=4", "--out", str(folder / "run")]
    )  # fmt: skip
    assert done == 0
    return folder


def test_the_summary_speaks_of_the_client_that_was_held_out(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert main(["adapt", "run", "--shots", "0", "--metrics", "none", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    kept = json.loads((folder / "run" / "held-out.json").read_text())
    assert said["after"]["accuracy"] == kept["after"]["accuracy"]
    assert said["before"]["branch"] == "online"
    assert (said["client"], said["shots"]) == ("geneva", 0)
    assert said["run"] == "run"


def test_a_newcomer_is_adapted_and_asked(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    rows = [{**row, "site": "chur"} for row in make_rows()[:30]]
    write_table(folder / "chur.csv", rows)
    assert main(["adapt", "run", "--data", "chur.csv", "--shots", "10", "--out", "chur.safetensors"]) == 0
    out = capsys.readouterr().out
    assert "for chur" in out
    assert "after: 10 shots, 50 passes" in out
    assert "fedco2 predict run --newcomer chur.safetensors" in out.replace("\n", " ")
    assert main(["predict", "run", "--newcomer", "chur.safetensors", "chur.csv", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["client"], said["branch"], len(said["predictions"])) == ("chur", "fused", 30)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["adapt", "run", "--client", "geneva"], "--client says which client in --data"),
        (
            ["adapt", "run", "--data", "t.csv", "--client", "genf"],
            "did you mean 'geneva'? there are basel, geneva (--client)",
        ),
        (["adapt", "run", "--shots", "9999"], "shots is 9999; client geneva has 19 training samples, take fewer"),
        (["adapt", "run", "--out", "x.npz"], "let the name end in .safetensors"),
        (["predict", "run", "--newcomer", "no.safetensors", "t.csv"], "no such file; fedco2 adapt run --out"),
        (["predict", "run", "--client", "basel", "--newcomer", "x", "t.csv"], "say whose these are"),
    ],
)
def test_mistakes_are_explained(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(folder)
    assert main(arguments) == 2
    assert words in " ".join(capsys.readouterr().err.split())


def test_a_large_folder_shows_that_it_is_looked_through(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_images(tmp_path / "pets")
    arguments = ["train", "--dataset", str(folder), "--model", "mlp", "--dry-run"]
    assert main(arguments) == 0
    assert "looking through images ..." in capsys.readouterr().err
    assert main([*arguments, "--json"]) == 0
    assert capsys.readouterr().err == ""
