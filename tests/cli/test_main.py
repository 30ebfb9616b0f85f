import importlib.metadata
import os
import re
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import click
import pytest
import torch
from rich.console import Console

from cli.main import fedco2, main
from fedtrain.errors import TrainingError
from theory.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
Raise = Callable[[BaseException], None]


@pytest.fixture
def boom(monkeypatch: pytest.MonkeyPatch) -> Raise:
    """Give `fedco2 boom` an error to raise."""

    def install(error: BaseException) -> None:
        def callback() -> None:
            raise error

        monkeypatch.setitem(fedco2.commands, "boom", click.Command("boom", callback=callback))

    return install


def run(*arguments: str, stdout: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}  # what is printed waits for a flush
    return subprocess.run(command, env=environment, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False)


def run_closed(*arguments: str) -> tuple[int, str]:
    """Run with nobody reading what it prints; the exit code and what it says on stderr."""
    read, write = os.pipe()
    os.close(read)
    try:
        result = run(*arguments, stdout=write)
    finally:
        os.close(write)
    return result.returncode, result.stderr


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_teaches(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([option]) == 0
    out = capsys.readouterr().out
    assert "fedco2 theory --clients 5" in out
    assert "Exit codes:" in out
    for name in ("theory", "doctor", "completion"):
        assert f"\n  {name}  " in out


@pytest.mark.parametrize("name", ["theory", "doctor", "completion"])
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "-h"]) == 0
    assert f"fedco2 {name}" in capsys.readouterr().out


def list_commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    inner = [(name, command) for name, command in group.commands.items() if not command.hidden]
    found = [path]
    for name, command in inner:
        found += list_commands(command, (*path, name)) if isinstance(command, click.Group) else [(*path, name)]
    return found


@pytest.mark.parametrize("command", list_commands(fedco2), ids=" ".join)
def test_help_fits_eighty_columns_and_names_pages_that_exist(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--help"]) == 0
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if len(line) > 80] == []
    commands = out.partition("\nCommands:\n")[2].splitlines()
    assert [line for line in commands if line.endswith("...")] == []  # a sentence that did not fit
    assert [page for page in re.findall(r"docs/[\w/-]+\.md", out) if not (ROOT / page).exists()] == []


def test_version(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", {"fedco2": "1.2.3"}.__getitem__)
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "fedco2 1.2.3\n"


def test_version_of_a_source_tree(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert main(["--version"]) == 0
    assert "not installed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "hint"), [(["theroy"], "'theory'"), (["doctro"], "'doctor'"), (["doctor", "--jso"], "--json")]
)
def test_a_misspelling_is_guessed(arguments: list[str], hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert err.count("Did you mean") == 1
    assert hint in err


def test_a_misspelling_is_guessed_with_an_old_click_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: click.Group, ctx: click.Context, args: list[str]) -> None:
        ctx.fail(f"No such command {args[0]!r}.")

    monkeypatch.setattr(click.Group, "resolve_command", refuse)
    assert main(["theroy"]) == 2
    assert "No such command 'theroy'. Did you mean 'theory'?" in capsys.readouterr().err


def test_nothing_is_guessed_for_what_is_far_off(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["xyzzy"]) == 2
    assert "Did you mean" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (InputError("clients is 0; give at least 1"), "clients is 0; give at least 1"),
        (InputError("choose another folder", options=("out",)), "choose another folder (--out)"),
        (InputError("seeds differ", options=("seed", "data_seed")), "seeds differ (--seed, --data-seed)"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (PermissionError(13, "Permission denied", "/runs/x"), "Permission denied: /runs/x"),
        (TimeoutError(), "TimeoutError"),
        (MemoryError(), "out of memory; make the setting smaller or free some memory"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_user_can_mend_is_one_line(
    error: Exception, line: str, boom: Raise, capsys: pytest.CaptureFixture[str]
) -> None:
    boom(error)
    assert main(["boom"]) == 2
    assert capsys.readouterr().err == f"error: {line}\n"


@pytest.mark.parametrize("arguments", [["boom"], ["predict", "run"]])
def test_a_terminal_breaks_errors_between_words(
    arguments: list[str], boom: Raise, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Console(file=StringIO(), force_terminal=True, width=30, highlight=False)
    monkeypatch.setattr("cli.main.make_console", lambda stderr: screen)
    boom(InputError("there is no client called mnst; there are mnist and svhn"))
    assert main(arguments) == 2
    lines = screen.file.getvalue().splitlines()
    assert len(lines) > 1
    assert max(map(len, lines)) <= 30
    assert " ".join(lines).split()[-1] in ("svhn", "'FILE...'.")


def test_an_error_of_somebodys_code_says_how_to_see_where(boom: Raise, capsys: pytest.CaptureFixture[str]) -> None:
    error = TrainingError("client a, round 1: ZeroDivisionError: division by zero")
    error.__cause__ = ZeroDivisionError("division by zero")
    boom(error)
    assert main(["boom"]) == 1
    assert capsys.readouterr().err == f"error: {error} (fedco2 --debug shows where)\n"


def test_debug_shows_the_traceback(boom: Raise, capsys: pytest.CaptureFixture[str]) -> None:
    boom(InputError("clients is 0"))
    assert main(["--debug", "boom"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    assert err.endswith("error: clients is 0\n")


def test_torch_out_of_memory_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def callback() -> None:
        torch.empty(2**60, dtype=torch.uint8)

    monkeypatch.setitem(fedco2.commands, "boom", click.Command("boom", callback=callback))
    assert main(["boom"]) == 2
    assert capsys.readouterr().err.startswith("error: out of memory")


@pytest.mark.parametrize("error", [ValueError("plain"), KeyError("key"), RuntimeError("shapes differ")])
def test_a_bug_keeps_its_traceback(error: Exception, boom: Raise, capsys: pytest.CaptureFixture[str]) -> None:
    boom(error)
    assert main(["boom"]) == 70
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    assert err.splitlines()[-1] == "error: this is a bug in fedco2; please report it with the lines above"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_interrupted(error: BaseException, boom: Raise, capsys: pytest.CaptureFixture[str]) -> None:
    boom(error)
    assert main(["boom"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize("code", [0, 1, 3])
def test_a_command_chooses_its_exit_code(code: int, boom: Raise) -> None:
    boom(click.exceptions.Exit(code))
    assert main(["boom"]) == code


@pytest.mark.parametrize("arguments", [["--help"], ["completion", "zsh"]], ids=" ".join)
def test_a_closed_pipe_is_quiet(arguments: list[str]) -> None:
    assert run_closed("-m", "cli", *arguments) == (141, "")


@pytest.mark.parametrize("speak", ["make_console().print", "print"])
def test_a_closed_pipe_is_quiet_however_a_command_speaks(speak: str) -> None:
    code = f"""
import sys, click, cli.main
from cli.console import make_console
cli.main.fedco2.add_command(click.Command("speak", callback=lambda: {speak}("x")))
sys.exit(cli.main.main(["speak"]))
"""
    assert run_closed("-c", code) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
@pytest.mark.parametrize("arguments", [["--help"], ["completion", "zsh"]], ids=" ".join)
def test_a_full_disk_is_one_line(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        result = run("-m", "cli", *arguments, stdout=full.fileno())
    assert (result.returncode, result.stderr) == (2, "error: No space left on device\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert f"_FEDCO2_COMPLETE={shell}_complete" in capsys.readouterr().out


def test_completion_completes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_FEDCO2_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "fedco2 doc")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert main([]) == 0
    assert capsys.readouterr().out == "plain,doctor\n"


def test_completion_of_an_unknown_shell() -> None:
    assert main(["completion", "tcsh"]) == 2


@pytest.mark.parametrize(
    ("arguments", "end"),
    [
        (["--rounds", "0"], "at least 1 (--rounds)"),
        (["--batch-size=0"], "at least 1 (--batch-size)"),
        (["--set", "server.rounds=0"], "at least 1"),
    ],
)
def test_errors_name_the_flag_that_was_typed(
    arguments: list[str], end: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--data", "standin", "--dry-run", *arguments]) == 2
    assert capsys.readouterr().err.strip().endswith(end)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["data", "clients", "--dataset", "cifar"], "did you mean 'cifar10'? there are digits"),
        (["methods", "fedbm"], "did you mean 'fedbn'?"),
        (["theory", "--covariance", "isotropc"], "did you mean 'isotropic'?"),
        (["reproduce", "T7", "--rule", "best"], "did you mean 'best-by-validation'?"),
        (["evaluate", "run", "--split", "tests"], "did you mean 'test'?"),
        (["train", "--model", "resnet18"], "digits, alexnet, cifar, two-layer"),
    ],
)
def test_a_word_that_is_no_choice_gets_the_nearest_and_all(capsys, command, words):
    assert main(command) == 2
    assert words in capsys.readouterr().err


def test_help_is_as_wide_as_the_terminal(capsys, monkeypatch):
    lines = {}
    for columns in (80, 140):
        monkeypatch.setenv("COLUMNS", str(columns))
        main(["train", "--help"])
        lines[columns] = capsys.readouterr().out.splitlines()
        assert 0.8 * columns < max(map(len, lines[columns])) <= columns
    assert len(lines[140]) < len(lines[80])
