"""Code of strangers: written into a folder, or seemingly installed, and forgotten after each test."""

import sys
from importlib.metadata import EntryPoint

import pytest

from fedtrain.extensions import references

LG_FEDAVG = '''"""LG-FedAvg: personal features under a shared head (Liang et al., 2020)."""

from dataclasses import dataclass
from typing import ClassVar

from fedtrain.methods.fedavg import FedAvg
from fedtrain.parameters import entries_under


@dataclass(frozen=True)
class LGFedAvg(FedAvg):
    """What is shared is the head."""

    depth: int = 1
    """Of no use."""
    title: ClassVar[str] = "LG-FedAvg"

    def shared(self, module):
        return entries_under(module, "head")
'''


@pytest.fixture
def forget(monkeypatch):
    """Forgets what was loaded, as if this were another process."""
    before = set(sys.modules)

    def now():
        references._loaded.clear()
        for name in set(sys.modules) - before:
            if not name.startswith(("torch", "fedtrain", "theory", "numpy", "matplotlib")):
                del sys.modules[name]

    monkeypatch.setattr(references, "_loaded", {})
    yield now
    now()


@pytest.fixture
def write(tmp_path, monkeypatch, forget):
    """Writes modules into a folder that is the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a file that changes within a second is read again

    def new(name, text):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    return new


@pytest.fixture
def install(monkeypatch):
    """Entry points that seem to be installed."""

    def points(kind, *pairs):
        made = tuple(EntryPoint(name, value, f"fedco2.{kind}s") for name, value in pairs)
        monkeypatch.setattr(references, "_list_entry_points", lambda asked: made if asked == kind else ())

    return points
