"""What ``fedco2 new`` does once its options are read: templates, filled in and written."""

from __future__ import annotations

import keyword
import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template

from fedtrain.extensions.references import BUILT_IN, ExtensionKind
from theory.errors import InputError

TEMPLATES = files("cli.new") / "templates"
SUFFIX = ".txt"
"""Of templates, so that nobody takes them for code of ours."""
EXTENSION_KINDS: dict[str, ExtensionKind] = {"method": "method", "model": "model", "site": "dataset"}
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
MAX_LENGTH = 40


def write_package(kind: str, name: str, out: Path | None = None) -> Path:
    """A new folder with the files of this kind; where it is."""
    check_package_name(kind, name)
    folder = out or Path(f"fedco2-{name}")
    if folder.exists():
        raise InputError(f"{folder} is there already and is not overwritten; choose another folder", options=("out",))
    words = describe_package(kind, name)
    for place, template in (*list_templates(kind), *list_templates("common")):
        path = folder / place.replace("MODULE", words["module"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(Template(template.read_text(encoding="utf-8")).substitute(words), encoding="utf-8")
    return folder


def check_package_name(kind: str, name: str) -> None:
    """Refuse what cannot be the name of a plug-in, of a Python module and of a folder, or is taken."""
    if not NAME.fullmatch(name) or len(name) > MAX_LENGTH or keyword.iskeyword(name.replace("-", "_")):
        raise InputError(
            f"{name!r} cannot be the name of a package; take small letters and digits, with single hyphens between them"
        )
    if name in BUILT_IN[EXTENSION_KINDS[kind]]:
        raise InputError(f"fedco2 has a {EXTENSION_KINDS[kind]} {name} already; choose another name")


def describe_package(kind: str, name: str) -> dict[str, str]:
    """What stands for what in the templates."""
    words = [word.capitalize() for word in name.split("-")]
    return {
        "name": name,
        "package": f"fedco2-{name}",
        "module": f"fedco2_{name.replace('-', '_')}",
        "Class": "".join(words),
        "title": " ".join(words),
        "kind": kind,
        "group": f"fedco2.{EXTENSION_KINDS[kind]}s",
        "object": {"method": "".join(words), "model": "make", "site": "load"}[kind],
    }


def list_templates(kind: str) -> list[tuple[str, Traversable]]:
    """The templates of a kind, each with its place in the package."""
    return _walk(TEMPLATES / kind, "")


def _walk(folder: Traversable, place: str) -> list[tuple[str, Traversable]]:
    found: list[tuple[str, Traversable]] = []
    for entry in sorted(folder.iterdir(), key=lambda one: one.name):
        if entry.is_dir():
            found += _walk(entry, f"{place}{entry.name}/")
        elif entry.name.endswith(SUFFIX):
            found.append((f"{place}{entry.name.removesuffix(SUFFIX)}", entry))
    return found
