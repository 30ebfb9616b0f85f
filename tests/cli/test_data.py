import json
from pathlib import Path

import numpy as np
import pytest

from cli.data import DATASET_NAMES
from cli.main import main
from fedtrain.data.datasets import DATASETS

Out = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDCO2_DATA", str(tmp_path / "data"))
    return tmp_path


def npz(path: Path) -> str:
    images, labels = np.random.default_rng(0).integers(0, 256, (20, 32, 32, 3), dtype=np.uint8), np.arange(20) % 10
    np.savez(path, x_train=images, y_train=labels, x_test=images, y_test=labels)
    return str(path)


def test_names_are_the_catalogues() -> None:
    assert list(DATASETS) == list(DATASET_NAMES)


@pytest.mark.parametrize("command", ["list", "status", "get", "add", "check"])
def test_every_command_has_help(command: str, capsys: Out) -> None:
    assert main(["data", command, "-h"]) == 0
    assert f"fedco2 data {command}" in capsys.readouterr().out


def test_list(folder: Path, capsys: Out) -> None:
    assert main(["data", "list"]) == 0
    out = capsys.readouterr().out
    for data in DATASETS.values():
        assert data.title in out
    main(["data", "add", "cifar10", npz(folder / "c.npz")])
    capsys.readouterr()
    assert main(["data", "list", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["cifar10"]["present"] == ["cifar10"]
    assert rows["digits"]["present"] == []
    assert all(row["terms"] for row in rows.values())


def test_status_tells_where_and_what(folder: Path, capsys: Out) -> None:
    assert main(["data", "status"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{folder / 'data'} ($FEDCO2_DATA)\n")
    assert out.splitlines()[1] == "digits     not here; to get it: fedco2 data get digits"
    assert len(out.splitlines()) == 1 + len(DATASETS) + 1
    assert "nothing here yet; to import files that you have: fedco2 data add NAME PATH" in out
    assert main(["data", "add", "digits", npz(folder / "usps.npz"), npz(folder / "synth_recreated.npz")]) == 0
    assert "added SynthDigits (re-created), 20 + 20 images" in capsys.readouterr().out
    assert main(["data", "status"]) == 0
    line = capsys.readouterr().out.splitlines()[1]
    assert line.startswith("digits     here: USPS (subset of 20 + 20), SynthDigits (re-created), ")
    assert line.endswith("; missing: MNIST, SVHN, MNIST-M; to get the rest: fedco2 data get digits")
    assert main(["data", "status", "--data-dir", str(folder / "data"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["from"] == "--data-dir"
    rows = {row["domain"]: row for row in told["domains"]}
    assert rows["usps"]["state"] == "present"
    assert rows["usps"]["title"] == "USPS (subset of 20 + 20)"
    assert rows["usps"]["bytes"] > 2 * 20 * 3 * 28 * 28
    assert rows["mnist"]["state"] == "absent"


@pytest.mark.parametrize("columns", [80, 140])
@pytest.mark.parametrize("command", ["list", "status"])
def test_a_terminal_breaks_nothing_within_a_word(folder: Path, capsys: Out, terminal, command, columns) -> None:
    assert main(["data", "add", "digits", npz(folder / "usps.npz")]) == 0
    capsys.readouterr()
    terminal(columns)
    assert main(["data", command]) == 0
    lines = capsys.readouterr().out.splitlines()[command == "status" :]  # the first is a path
    assert max(map(len, lines)) <= columns
    words = " ".join(lines).replace(",", " ").split()
    assert {"Office-Caltech10", "Quickdraw", "SynthDigits"} <= set(words) or command == "status"
    assert any("fedco2 data get digits" in line for line in lines) or command == "list"


def test_check_finds_damage(folder: Path, capsys: Out) -> None:
    main(["data", "add", "cifar10", npz(folder / "c.npz")])
    capsys.readouterr()
    assert main(["data", "check", "cifar10"]) == 0
    assert capsys.readouterr().out.split() == ["cifar10", "ok"]
    path = folder / "data" / "cifar10" / "cifar10.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert main(["data", "check", "cifar10", "--json"]) == 3
    told = json.loads(capsys.readouterr().out)
    assert not told["ok"]
    assert "checksum" in told["problems"]["cifar10"][0]
    path.write_bytes(data[:-1])
    assert main(["data", "status"]) == 0
    assert "broken" in capsys.readouterr().out
    assert main(["data", "check", "digits"]) == 3


def test_exit_codes(folder: Path, capsys: Out) -> None:
    missing, odd = str(folder / "no.npz"), npz(folder / "odd.npz")
    assert main(["data", "add", "digits", missing]) == 3  # data are missing
    assert main(["data", "add", "digits", odd]) == 2  # the request is not clear
    assert "--domain" in capsys.readouterr().err
    assert main(["data", "add", "digits", odd, "--domain", "svhn"]) == 0
    assert main(["data", "add", "digits", odd, "--domain", "svhn"]) == 2
    assert "--replace" in capsys.readouterr().err
    assert main(["data", "add", "digits", odd, "--domain", "svhn", "--replace"]) == 0
    assert main(["data", "get", "nonsense"]) == 2


def test_get_that_cannot_be_had(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out) -> None:
    from fedtrain.data.download.sources import DOWNLOAD_SOURCES, DownloadSource, RemoteFile

    nowhere = DownloadSource(("cifar10",), (RemoteFile(("file:///c.tar.gz",), "md5:0"),))
    monkeypatch.setitem(DOWNLOAD_SOURCES, "cifar10", (nowhere,))
    monkeypatch.delenv("FEDCO2_MIRROR", raising=False)
    assert main(["data", "get", "cifar10"]) == 3
    assert "fedco2 data add cifar10 PATH" in capsys.readouterr().err
    main(["data", "add", "cifar10", npz(folder / "c.npz")])
    assert main(["data", "get", "cifar10"]) == 0
    assert "is there already" in capsys.readouterr().out


def test_plain_lines_without_a_terminal(folder: Path, capsys: Out) -> None:
    assert main(["data", "add", "cifar10", npz(folder / "c.npz")]) == 0
    assert capsys.readouterr().err == "reading c.npz ...\n"
