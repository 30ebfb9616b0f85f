"""What the README shows is what happens."""

import re
import shlex
from pathlib import Path

from printed_examples import EXAMPLE, assert_like, run_example

from cli.main import main

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMAND, SHOWN = re.search(r"^\$ (fedco2 train .*)\n((?:.*\n)*?)```", README, re.MULTILINE).groups()


def test_the_python_example_prints_what_it_says(tmp_path, monkeypatch):
    (code, promised), *others = EXAMPLE.findall(README)
    assert not others
    monkeypatch.chdir(tmp_path)
    assert_like(run_example(code, {}, "README.md"), promised)
    assert (tmp_path / "three-rounds.html").is_file()


def test_the_command_trains_what_it_shows(tmp_path, monkeypatch, capsys):
    """A dry run prints the same header."""
    monkeypatch.chdir(tmp_path)
    program, *arguments = shlex.split(COMMAND)
    assert program == "fedco2"
    assert main([*arguments, "--dry-run"]) == 0
    header = SHOWN.split("\n...\n")[0]
    assert " ".join(header.split()) in " ".join(capsys.readouterr().out.split())
    assert max(map(len, SHOWN.splitlines())) <= 80


def test_make_knows_its_commands():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    named = re.findall(r"(?:\$ |`)make ([a-z-]+)", README)
    assert {"demo", "test"} <= set(named) <= set(targets)


def test_it_stays_short():
    assert len(README.splitlines()) <= 130
