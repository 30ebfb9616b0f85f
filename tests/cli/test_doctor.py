import json
import os
import subprocess
import sys
import warnings
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement

from cli.doctor import checks
from cli.doctor.checks import (
    CheckResult,
    check_folder,
    check_hardware,
    check_import,
    check_package,
    check_plug_ins,
    get_data_folder,
)
from cli.main import main
from fedtrain.extensions import references

ROOT = Path(__file__).resolve().parents[2]


def doctor(*, path: str, cwd: Path) -> tuple[int, dict[str, dict[str, str]]]:
    """Run `doctor --json` in a process of its own; the exit code and the findings by name."""
    environment = os.environ | {"PYTHONPATH": path, "FEDCO2_DATA": str(cwd / "data")}
    command = [sys.executable, "-m", "cli", "doctor", "--json"]
    result = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert result.stderr == ""
    return result.returncode, {f["name"]: f for f in json.loads(result.stdout)["findings"]}


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[CheckResult]:
    """What the checkup finds, to be filled by the test; and no terminal."""
    findings: list[CheckResult] = []
    monkeypatch.setattr("cli.doctor.run_checks", lambda: iter(findings))
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    return findings


def test_a_sound_machine(tmp_path: Path) -> None:
    code, findings = doctor(path=str(ROOT), cwd=tmp_path)
    assert [f for f in findings.values() if not f["ok"]] == []
    assert code == 0
    wanted = {"python", "fedco2", "torch", "numpy", "scipy", "matplotlib", "click", "rich", "jinja2"}
    wanted |= {"device", "threads", "memory", "theory", "fedtrain", "cli", "data", "runs", "chromium"}
    assert wanted <= findings.keys()
    assert findings["torch"]["value"] == torch.__version__
    assert findings["data"]["value"] == f"{tmp_path / 'data'} (not there yet)"


def test_a_package_of_the_same_name_that_hides_ours(tmp_path: Path) -> None:
    other = tmp_path / "elsewhere" / "theory"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("raise RuntimeError('doctor must not import this')")
    code, findings = doctor(path=os.pathsep.join([str(other.parent), str(ROOT)]), cwd=tmp_path)
    assert code == 1
    assert [name for name, f in findings.items() if not f["ok"]] == ["theory"]
    assert findings["theory"]["value"] == f"hidden by {other / '__init__.py'}"
    assert "virtual environment" in findings["theory"]["mend"]


def test_plug_ins_are_named_and_so_are_those_that_cannot_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    made = tuple(EntryPoint(name, "lg:LG", "fedco2.methods") for name in ("fedavg", "lg"))
    monkeypatch.setattr(references, "_list_entry_points", lambda kind: made if kind == "method" else ())
    found = list(check_plug_ins())
    assert [(one.value, one.ok) for one in found] == [("lg", True), ("hidden: fedavg (an unknown package)", False)]
    assert "fedco2 has a method of this name; rename the entry point" in found[1].mend


def test_a_package_of_ours_that_is_gone() -> None:
    assert check_import("fedtrain").ok
    assert check_import("fedco2_no_such_package").value == "missing"


@pytest.mark.parametrize(
    ("need", "value", "mend"),
    [
        ("no-such-distribution>=1", "missing", "pip install 'no-such-distribution>=1'"),
        ("lame>=2", "1.0, outside >=2", "pip install 'lame>=2'"),
        ("lame", "1.0, cannot be imported: OSError: libx", "pip install 'lame' --force-reinstall"),
    ],
)
def test_a_package_that_is_missing_or_old_or_broken(
    need: str, value: str, mend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lame-1.0.dist-info").mkdir()
    (tmp_path / "lame-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: lame\nVersion: 1.0\n")
    (tmp_path / "lame.py").write_text("raise OSError('libx\\nand more')")
    monkeypatch.syspath_prepend(tmp_path)
    finding = check_package(Requirement(need))
    assert (finding.value, finding.mend) == (value, mend)


def test_fedco2_itself_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise checks.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(checks.metadata, "metadata", missing)
    (finding,) = checks.check_packages()
    assert "pip install" in finding.mend


def test_a_python_out_of_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.platform, "python_version", lambda: "3.8.1")
    monkeypatch.setattr(checks.metadata, "metadata", lambda _: {"Requires-Python": ">=3.11", "Version": "0"})
    monkeypatch.setattr(checks.metadata, "requires", lambda _: ["nothing-at-all ; extra == 'dev'"])
    python, fedco2 = checks.check_packages()  # and an extra is not required
    assert "Python >=3.11" in python.mend
    assert fedco2.ok


def test_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", "GPU {}".format)
    value = next(check_hardware()).value
    assert value.startswith("cuda: GPU 0, GPU 1 (fedco2 was never run on a GPU")
    assert "make test-gpu" in value


def test_a_device_that_torch_complains_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: warnings.warn("driver too old", stacklevel=1))
    assert next(check_hardware()).value == "cpu (cuda: driver too old)"


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        ("linux", {}, "/home/ann/.local/share/fedco2"),
        ("linux", {"XDG_DATA_HOME": "/x"}, "/x/fedco2"),
        ("darwin", {"XDG_DATA_HOME": "/x"}, "/home/ann/Library/Application Support/fedco2"),
        ("win32", {"LOCALAPPDATA": "/l"}, "/l/fedco2"),
        ("darwin", {"FEDCO2_DATA": "~/d"}, "/home/ann/d"),
        ("linux", {"FEDCO2_DATA": ""}, "/home/ann/.local/share/fedco2"),
    ],
)
@pytest.mark.skipif(os.name == "nt", reason="paths are spelt the POSIX way")
def test_where_data_are_looked_for(
    platform: str, environment: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FEDCO2_DATA", "XDG_DATA_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.setattr(sys, "platform", platform)
    assert str(get_data_folder()) == expected


def test_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    assert check_folder("runs", tmp_path, "mend").value == f"{tmp_path} (there)"
    assert check_folder("runs", tmp_path / "a" / "b", "mend").value == f"{tmp_path / 'a' / 'b'} (not there yet)"
    blocked = check_folder("runs", tmp_path / "file" / "b", "mend")
    assert blocked == CheckResult("runs", f"{tmp_path / 'file' / 'b'}: {tmp_path / 'file'} is not a folder", "mend")
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere, so permission is played
    assert check_folder("runs", tmp_path / "a", "mend").mend == "mend"


def test_the_report_is_plain_in_a_pipe(found: list[CheckResult], capsys: pytest.CaptureFixture[str]) -> None:
    found += [CheckResult("device", "cpu"), CheckResult("torch", "missing [bold]", "pip install torch")]
    assert main(["doctor"]) == 1
    assert capsys.readouterr().out == (
        "ok       device        cpu\n"
        "PROBLEM  torch         missing [bold]\n"
        "\n"
        "torch: missing [bold]\n"
        "  to mend it: pip install torch\n"
    )


def test_all_well(found: list[CheckResult], capsys: pytest.CaptureFixture[str]) -> None:
    found += [CheckResult("device", "cpu")]
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.endswith("nothing is wrong\n")


@pytest.mark.parametrize("colour", [True, False])
def test_a_table_on_a_terminal(
    colour: bool, found: list[CheckResult], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    if not colour:
        monkeypatch.setenv("NO_COLOR", "1")
    found += [CheckResult("torch", "missing [bold]", "pip install torch")]
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert out.count("missing [bold]") == 2  # in the table and below it: text as it is, no markup
    assert ("\x1b[31m" in out) is colour


@pytest.mark.parametrize("columns", [80, 140])
def test_a_terminal_breaks_lines_between_words(found, capsys, terminal, columns):
    terminal(columns)
    words = [f"word{k}" for k in range(40)]
    found += [CheckResult("data", " ".join(words))]
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()[:-1]
    assert max(map(len, lines)) <= columns
    assert " ".join(lines).split() == ["ok", "data", *words]
    assert all(line.startswith(" " * lines[0].index("word0")) for line in lines[1:])


def test_a_report_without_rich(
    found: list[CheckResult], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    found += [CheckResult("rich", "missing", "pip install rich")]
    assert main(["doctor"]) == 1
    assert "PROBLEM  rich" in capsys.readouterr().out
