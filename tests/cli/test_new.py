"""``fedco2 new``: the packages that it writes work as they are, and nothing is overwritten."""

import importlib.util
import os
import subprocess
import sys
import tomllib
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from cli.main import main
from fedtrain.extensions.references import KINDS

ROOT = Path(__file__).parents[2]
PACKAGES = {"method": ("halfway", 3), "model": ("tiny-net", 3), "site": ("basel", 4)}
"""A name for each kind, and how many tests its package has."""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a package; its folder."""
    monkeypatch.chdir(tmp_path)

    def new(kind, name, *more):
        assert main(["new", kind, name, *more]) == 0
        return tmp_path / f"fedco2-{name}"

    return new


def run_python(*arguments, cwd, path=()):
    there = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, *path))), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *arguments], cwd=cwd, env=there, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_tests_of_new_packages_pass(write, tmp_path):
    folders = [write(kind, name) for kind, (name, _) in PACKAGES.items()]
    tests = [str(folder / "tests") for folder in folders]
    said = run_python("-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, cwd=tmp_path, path=folders)
    assert f"{sum(count for _, count in PACKAGES.values())} passed" in said


@pytest.mark.parametrize("kind", PACKAGES)
def test_a_new_package_is_a_plug_in_with_code_that_is_there(write, kind):
    name, _ = PACKAGES[kind]
    folder = write(kind, name)
    about = tomllib.loads((folder / "pyproject.toml").read_text())
    assert about["project"]["name"] == f"fedco2-{name}"
    ((group, points),) = about["project"]["entry-points"].items()
    assert group in {f"fedco2.{one}s" for one in KINDS}
    ((said, target),) = points.items()
    module, _, attribute = target.partition(":")
    assert said == name
    assert about["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == [module]
    assert attribute in (folder / module / "__init__.py").read_text()
    left = [path for path in folder.rglob("*") if path.is_file() and "$" in path.name + path.read_text()]
    assert [path.name for path in left] == ["README.md"]  # the prompts of its console


@pytest.mark.skipif(importlib.util.find_spec("hatchling") is None, reason="hatchling is not installed")
def test_a_new_package_can_be_installed(write, tmp_path):
    folder, there = write("method", "halfway"), tmp_path / "site"
    pip = ["-m", "pip", "install", "--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    run_python(*pip, "--target", str(there), str(folder), cwd=tmp_path)
    (info,) = there.glob("*.dist-info")
    (point,) = PathDistribution(info).entry_points
    assert (point.group, point.name, point.value) == ("fedco2.methods", "halfway", "fedco2_halfway:Halfway")
    assert (there / "fedco2_halfway" / "__init__.py").exists()


def test_a_folder_of_ones_choice(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "model", "tiny", "--out", "deep/here"]) == 0
    assert (tmp_path / "deep/here/fedco2_tiny/__init__.py").exists()
    assert "Written to deep/here" in capsys.readouterr().out


def test_nothing_is_overwritten(write, capsys):
    folder = write("method", "mine")
    (folder / "README.md").write_text("my own")
    assert main(["new", "method", "mine"]) == 2
    assert "is there already and is not overwritten" in capsys.readouterr().err
    assert (folder / "README.md").read_text() == "my own"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["method", "fedavg"], "fedco2 has a method fedavg already; choose another name"),
        (["model", "resnet"], "fedco2 has a model resnet already"),
        (["site", "digits"], "fedco2 has a dataset digits already"),
        (["method", "My Method"], "cannot be the name of a package; take small letters and digits"),
        (["method", "../up"], "cannot be the name of a package"),
        (["method", "class"], "cannot be the name of a package"),
        (["method", "a" * 41], "cannot be the name of a package"),
        (["methd", "mine"], "unknown 'methd'; did you mean 'method'"),
    ],
)
def test_names_that_cannot_be_are_refused(arguments, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new", *arguments]) == 2
    assert said in " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert not list(tmp_path.iterdir())
