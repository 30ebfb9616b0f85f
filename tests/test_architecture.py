"""The arrows go one way, ``cli -> fedtrain -> theory``, and inside both libraries too; what is quick stays quick.

An arrow is an import, wherever it stands, or a string that names a module: ``"fedtrain.flower.client_app:app"``.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("theory", "fedtrain", "cli")
"""From the lowest to the highest; none of them may know of tests and benchmarks."""
LAYERS = {
    "theory": [
        "errors json_types text memory",
        "ball_arithmetic",
        "rng network",
        "problem",
        "user_data kernels",
        "training",
        "study",
        "claims certify forecast leave_one_out",
        "formula_certificates",
        "networks",
        "config",
        "assumptions cost results",
        "figure_data sweep_table",
        "collect_results progress report resources",
        "verification sweep",
    ],
    "fedtrain": [
        "registry",
        "errors extensions metrics rng parameters utils",
        "models analysis.flops",
        "methods aggregators",
        "config",
        "data",
        "federated",
        "serialization",
        "runs",  # what is in the folder of a run; what drives one is above
        "backends",
        "runs.experiment",
        "runs.callbacks analysis",
        "report trackers runs.loop runs.distributed",
        "inference testing",
        "run",
        "comparison forecasting training",
        "flower reproduction",
    ],
}
"""From the lowest to the highest. A part may use itself and lower layers; parts of one layer do not know each other."""
HEAVY = {"torch", "numpy", "scipy", "matplotlib", "jinja2", "theory"}
LIGHT = {"fedtrain", "fedtrain.registry"}
"""What of the library the command line may load to show its help."""
FOLDERS = (ROOT, ROOT / "benchmarks")
"""Where Python looks for modules of ours, while a benchmark runs."""
OURS = {*PACKAGES, "tests", "benchmarks", *(file.parent.name for file in FOLDERS[1].glob("*/__init__.py"))}
MODULE_NAME = re.compile(rf"({'|'.join(sorted(OURS))})(\.[A-Za-z_]\w*)+(:[A-Za-z_]\w*)?")


def path_of(module: str) -> Path | None:
    """The file of one of our modules."""
    stems = [folder.joinpath(*module.split(".")) for folder in FOLDERS]
    files = (file for stem in stems for file in (stem.with_suffix(".py"), stem / "__init__.py"))
    return next((file for file in files if file.is_file()), None)


def modules(package: str) -> list[str]:
    files = sorted((ROOT / package).rglob("*.py"))
    return [".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for file in files]


def imported(tree: ast.AST, package: str) -> Iterator[str]:
    """What is imported, wherever the import stands; ``package`` is what a leading dot means."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.rsplit(".", node.level - 1)[0] if node.level else ""
            source = ".".join(filter(None, [base, node.module]))
            for alias in node.names:
                whole = f"{source}.{alias.name}"
                yield whole if path_of(whole) else source


def named(tree: ast.AST) -> Iterator[str]:
    """Strings that name a module of ours, or something in one; and what ``python -m`` is told to run."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and MODULE_NAME.fullmatch(node.value):
            yield node.value
        elif isinstance(node, ast.List | ast.Tuple):
            words = [word.value if isinstance(word, ast.Constant) else None for word in node.elts]
            for option, word in pairwise(words):
                if option == "-m" and isinstance(word, str) and word in PACKAGES:
                    yield word


@cache
def tree_of(module: str) -> ast.Module:
    path = path_of(module)
    assert path is not None, module
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(module: str) -> set[str]:
    """The modules of ours that a module imports."""
    path = path_of(module)
    package = module if path and path.name == "__init__.py" else module.rpartition(".")[0]
    return {name for name in imported(tree_of(module), package) if name.split(".")[0] in OURS}


def targets(module: str) -> set[str]:
    """The modules of ours that a module knows."""
    return imports(module) | {name.partition(":")[0] for name in named(tree_of(module))}


@cache
def place(module: str) -> tuple[str, int] | None:
    """The part that a module belongs to, by the longest name that fits, and its layer; None for a package itself."""
    package, _, rest = module.partition(".")
    if not rest:
        return None
    parts = {part: level for level, layer in enumerate(LAYERS[package]) for part in layer.split()}
    fitting = [part for part in parts if f"{rest}.".startswith(f"{part}.")]
    assert fitting, f"{module} has no place in LAYERS"
    part = max(fitting, key=len)
    return part, parts[part]


def may_use(module: str, target: str) -> bool:
    """Whether an arrow goes the right way."""
    mine, other = module.split(".")[0], target.split(".")[0]
    if mine != other:
        return other in PACKAGES[: PACKAGES.index(mine)]
    if mine not in LAYERS or "." not in module:  # the package itself gathers what is public
        return True
    here, there = place(module), place(target)
    return here is not None and there is not None and (here[0] == there[0] or there[1] < here[1])


def python(code: str, cwd: Path) -> str:
    command = [sys.executable, "-c", code]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=True).stdout


def test_imports_are_seen() -> None:
    source = "import cli.main as m\ndef f():\n  from fedtrain.parameters import pick\nfrom . import report\nimport a, b"
    seen = ["a", "b", "cli.main", "fedtrain.parameters", "theory.report"]
    assert sorted(imported(ast.parse(source), "theory")) == seen
    assert list(imported(ast.parse("from ..models import net"), "fedtrain.methods")) == ["fedtrain.models.net"]


def test_strings_are_seen() -> None:
    source = "a = f('cli.flower.run:app'), 'cli.x y', 'cli'\nb = [exe, '-m', 'cli', 'train']\nc = 'theory.errors'"
    assert sorted(named(ast.parse(source))) == ["cli", "cli.flower.run:app", "theory.errors"]


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("cli.main", True),
        ("cli.main:main", True),
        ("distributed_cost_lib.metered_apps:client_app", True),
        ("cli.main:missing", False),
        ("cli.missing:main", False),
    ],
)
def test_what_a_string_names_is_looked_for(name: str, there: bool) -> None:
    assert exists(name) is there


@pytest.mark.parametrize(
    ("module", "target", "allowed"),
    [
        ("fedtrain.flower.app_project", "cli.flower.server_app", False),
        ("cli.flower.run", "fedtrain.flower.app_project", True),
        ("cli.train.run", "benchmarks.soak", False),
        ("fedtrain.config.schema", "fedtrain.federated.server", False),
        ("fedtrain.federated.server", "fedtrain.config.schema", True),
        ("fedtrain.backends.serial", "fedtrain.report.page", False),
        ("fedtrain.backends.serial", "fedtrain.runs.folder", True),
        ("fedtrain.backends.serial", "fedtrain.runs.experiment", False),
        ("fedtrain.runs.folder", "fedtrain", False),
        ("fedtrain", "fedtrain.runs.loop", True),
        ("theory.claims.deep", "theory.claims.base", True),
    ],
)
def test_arrows_are_judged(module: str, target: str, allowed: bool) -> None:
    assert may_use(module, target) is allowed


@pytest.mark.parametrize("package", PACKAGES)
def test_arrows_go_one_way(package: str) -> None:
    wrong = {
        module: bad
        for module in modules(package)
        if (bad := sorted(target for target in targets(module) if not may_use(module, target)))
    }
    assert not wrong


@pytest.mark.parametrize("package", PACKAGES)
def test_no_modules_import_each_other_in_a_circle(package: str) -> None:
    known = modules(package)
    graph = {module: imports(module).intersection(known) for module in known}
    assert set(TopologicalSorter(graph).static_order()) == set(known)  # or it raises, and shows the circle


@pytest.mark.parametrize("package", LAYERS)
def test_every_part_has_a_place_and_every_place_a_part(package: str) -> None:
    placed = [place(module) for module in modules(package)]
    parts = [part for layer in LAYERS[package] for part in layer.split()]
    assert {part for part, _ in filter(None, placed)} == set(parts)
    assert len(parts) == len(set(parts))


@pytest.mark.parametrize("package", [*PACKAGES, "benchmarks", "examples"])
def test_strings_name_modules_that_exist(package: str) -> None:
    wrong = {
        module: bad
        for module in modules(package)
        if (bad := sorted(name for name in named(tree_of(module)) if not exists(name)))
    }
    assert not wrong


def test_the_command_that_is_installed_exists() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    assert scripts
    assert all(exists(name) for name in scripts.values())


def exists(name: str) -> bool:
    """Whether there is a module, and in it what stands behind the colon."""
    module, _, attribute = name.partition(":")
    if path_of(module) is None:
        return False
    made = {node.name for node in tree_of(module).body if isinstance(node, ast.FunctionDef)}
    for node in tree_of(module).body:
        if isinstance(node, ast.Assign):
            made |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return not attribute or attribute in made


@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_hides_our_packages(package: str) -> None:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    ours = ROOT / package / "__init__.py"
    assert spec.origin == str(ours), f"'import {package}' gives {spec.origin}, not {ours}: use a clean environment"


def test_the_command_line_starts_without_heavy_imports(tmp_path: Path) -> None:
    loaded = python("import sys, cli.main; print(*sys.modules)", tmp_path).split()
    assert "cli" in loaded
    assert not HEAVY.intersection(loaded)
    assert {name for name in loaded if name.split(".")[0] == "fedtrain"} <= LIGHT


LOOK_UPS = (
    "aggregate backend certificate checkpoint client codec dirichlet distributed fedavg flops manifest partition "
    "preset resume server significance standin tls vmap"
)


@pytest.mark.parametrize("word", LOOK_UPS.split())
def test_a_look_up_finds_its_file(word: str) -> None:
    """The words that people search a tree for are in the names of files or folders."""
    found = [path.relative_to(ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    assert any(word in part for path in found for part in path.parts)
