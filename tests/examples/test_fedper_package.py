"""The method of ``examples/fedper_package`` is FedPer, bit by bit, and a plug-in."""

import importlib.util
import subprocess
import sys
import tomllib
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from fedtrain import FedPer
from fedtrain.methods.own import check_method_class
from fedtrain.testing.small_federation import find_difference, train

PACKAGE = Path(__file__).parents[2] / "examples" / "fedper_package"


@pytest.fixture
def references(monkeypatch):
    from fedtrain.extensions import references

    monkeypatch.setattr(references, "_loaded", {})
    monkeypatch.setattr(sys, "path", [*sys.path, str(PACKAGE)])
    yield references
    sys.modules.pop("fedco2_myfedper", None)


def test_it_is_fedper_in_twenty_lines(references):
    source = PACKAGE / "fedco2_myfedper.py"
    assert len(source.read_text().splitlines()) <= 20
    kind = check_method_class(references.resolve("method", f"{source}:MyFedPer"))
    mine, theirs = train(kind()), train(FedPer())
    assert find_difference(mine.message.shared, theirs.message.shared) is None
    for client, state in theirs.backend.client_states.items():
        assert find_difference(mine.backend.client_states[client], state) is None


def test_its_entry_point_names_it(references):
    points = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]["entry-points"]["fedco2.methods"]
    assert references.resolve("method", points["myfedper"]).value.title == "My FedPer"


@pytest.mark.skipif(importlib.util.find_spec("hatchling") is None, reason="hatchling is not installed")
def test_it_can_be_installed(tmp_path):
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    subprocess.run([*pip, "--target", str(tmp_path), str(PACKAGE)], check=True, capture_output=True)
    (info,) = tmp_path.glob("*.dist-info")
    assert [point.name for point in PathDistribution(info).entry_points] == ["myfedper"]
    assert (tmp_path / "fedco2_myfedper.py").exists()
