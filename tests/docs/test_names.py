"""What the documentation names exists: files, modules, functions, options, settings. Old words stay out."""

from __future__ import annotations

import ast
import dataclasses
import re
from importlib import import_module
from pathlib import Path

import click
import pytest

from cli.main import fedco2
from fedtrain.aggregators import AGGREGATORS
from fedtrain.config.schema import SECTIONS
from fedtrain.methods import METHODS

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z-]+)")
SETTING = re.compile(rf"(?<![\w./])((?:{'|'.join([*SECTIONS, 'method', 'aggregator'])})\.[a-z_]+)(?![\w.(/])")
OUR_TREES = [ROOT, ROOT / "fedtrain", ROOT / "docs"]
OPTIONS_OF_OTHERS = {
    "--nproc-per-node",
    "--directory",
    "--all-files",
    "--node-config",
    "--logdir",
    "--backend-store-uri",
}
"""Of torchrun, http.server, pre-commit, Flower, TensorBoard and MLflow."""
OLD_WORDS = re.compile(
    r"(?<![\w-])(fleets?|cupboards?|shelf|shelved|in-turn|parcels?|ledger|--sample|--engine|--personal)(?![\w-])", re.I
)
IN_EXAMPLES = {"method.depth", "aggregator.share"}
"""Of classes that a page defines."""
NO_SETTINGS = {"server.pem", "server.key", "server.py"}


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")) if kind in languages]


def code(page: Path) -> list[str]:
    """Spans of code, and commands."""
    text = page.read_text(encoding="utf-8")
    return [*SPAN.findall(BLOCK.sub("", text)), *blocks(page, "console")]


def is_our_path(word: str) -> bool:
    """A file or folder of the source tree; not one that a run writes, nor a test, which has a test of its own."""
    first, *others = word.split("/")
    if not others or not re.fullmatch(r"\.?\w[\w./*-]*", word) or others[-1].startswith("test_"):
        return False
    is_written = first in ("runs", "reproduce") and not word.endswith(".py")
    return not is_written and any((tree / first).is_dir() for tree in OUR_TREES)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_exist(page):
    named = {word.rstrip("/") for text in code(page) for word in re.split(r"[\s=`']+", text) if is_our_path(word)}
    missing = [path for path in sorted(named) if not any(list(tree.glob(path)) for tree in OUR_TREES)]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_tests_exist(page):
    named = {path for text in code(page) for path in re.findall(r"(?<![\w/])(?:\w+/)*test_\w+\.py", text)}
    missing = [path for path in sorted(named) if not list((ROOT / "tests").rglob(path.removeprefix("tests/")))]
    assert not missing


def exists(dotted: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    thing, path = import_module(dotted.split(".")[0]), dotted.split(".")
    for place, part in enumerate(path[1:], 1):
        fields = {field.name for field in dataclasses.fields(thing)} if dataclasses.is_dataclass(thing) else set()
        if part in fields:
            return True
        if not hasattr(thing, part):
            try:
                import_module(".".join(path[: place + 1]))
            except ImportError:
                return False
        thing = getattr(thing, part)
    return True


def find_names(source: str) -> set[str]:
    """Attributes of our packages, and what is imported from them."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found.add(f"{node.value.id}.{node.attr}")
        if isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {dotted for dotted in found if dotted.split(".")[0] in ("fedtrain", "theory", "cli")}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_python_names_exist(page):
    named = {
        dotted for text in code(page) for dotted in re.findall(r"(?<![\w/.-])(?:fedtrain|theory|cli)(?:\.\w+)+", text)
    }
    named |= {dotted for source in blocks(page, "python") for dotted in find_names(source)}
    missing = [dotted for dotted in sorted(named) if not exists(dotted)]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_what_is_called_can_be_called(page):
    """A module is not a function."""
    calls = [
        node for source in blocks(page, "python") for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)
    ]
    for called in (node.func for node in calls):
        owner = called.value.id if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) else ""
        if owner in ("fedtrain", "theory"):
            assert callable(getattr(import_module(owner), called.attr)), ast.unparse(called)


def list_options(command: click.Command) -> set[str]:
    mine = {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
    inner = command.commands.values() if isinstance(command, click.Group) else ()
    return mine.union({"--help"}, *map(list_options, inner))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_options_exist(page):
    """In a command or a benchmark of ours; lines that call other programs are not looked at."""
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "benchmarks").rglob("*.py")]
    known = list_options(fedco2) | OPTIONS_OF_OTHERS
    known |= {option for source in sources for option in re.findall(r"\"(--[a-z-]+)\"", source)}
    ours = [re.sub(r"^\$ (?!fedco2|python |torchrun).*", "", text, flags=re.MULTILINE) for text in code(page)]
    missing = {option for text in ours for option in OPTION.findall(text)} - known
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_settings_exist(page):
    known = {f"{section}.{field.name}" for section, kind in SECTIONS.items() for field in dataclasses.fields(kind)}
    known |= {f"method.{field.name}" for kind in METHODS.values() for field in dataclasses.fields(kind)}
    known |= {f"aggregator.{field.name}" for kind in AGGREGATORS.values() for field in dataclasses.fields(kind)}
    named = {setting for text in code(page) for setting in SETTING.findall(text)}
    assert not named - known - NO_SETTINGS - {"method.name", "aggregator.name"} - IN_EXAMPLES


@pytest.mark.parametrize("section", SECTIONS)
def test_the_configuration_page_has_every_key_and_its_default(section):
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")
    part = re.search(rf"^## `\[{section}\]`\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL).group(1)
    shown = dict(re.findall(r"^\| `(\w+)` \| ([^|]*?) \|", part, re.MULTILINE))
    assert set(shown) == {field.name for field in dataclasses.fields(SECTIONS[section])}
    for field in dataclasses.fields(SECTIONS[section]):
        known = field.default
        words = {None: "none", True: "true", False: "false", (): "empty", "": "empty"}
        is_number = isinstance(known, int | float) and not isinstance(known, bool)
        assert float(shown[field.name]) == known if is_number else shown[field.name] == words.get(known, known), field


@pytest.mark.parametrize("package", ["fedtrain", "theory"])
def test_the_reference_has_every_public_name(package):
    """With its docstring, or in the text if it is a constant; the overview leaves out methods and aggregators alone."""
    reference = ROOT / "docs" / "reference"
    page = (reference / f"{package}.md").read_text(encoding="utf-8")
    public = set(import_module(package).__all__)
    assert not public - {*re.findall(rf"^::: {package}\.(\w+)$", page, re.MULTILINE), *re.findall("`([A-Z]+)`", page)}
    overview = set(re.findall(r"`(\w+)`", (reference / "api.md").read_text(encoding="utf-8")))
    assert not public - overview - {kind.__name__ for kind in (*METHODS.values(), *AGGREGATORS.values())}


SOURCES = [file for folder in ("examples", "benchmarks") for file in sorted((ROOT / folder).rglob("*.py"))]


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CITATION.cff", *SOURCES], ids=name)
def test_old_words_stay_out(page):
    """The changelog alone says what things were called."""
    assert not OLD_WORDS.findall(page.read_text(encoding="utf-8"))
