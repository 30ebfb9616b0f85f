"""Code that users bring, by name: ``lg:LGFedAvg``, ``./lg.py:LGFedAvg``, or the name of an installed plug-in.

A plug-in is an entry point of an installed package: ``[project.entry-points."fedco2.methods"]`` for methods, and so on
for every kind. Nothing here loads torch, and nothing is loaded to list names.

What a user names is loaded (`resolve`). What a file or a message names is only looked up (`find_extension`): among what
the user has named, and what is installed. So opening the folder of a run never executes code that lies beside it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any, Literal, get_args

from fedtrain.extensions.errors import ExtensionError, describe_code_error, mark_as_extension
from fedtrain.extensions.source import describe_module, find_package_folder, find_source, hash_source
from fedtrain.registry import AGGREGATOR_CLASSES, DATASET_NAMES, METHOD_CLASSES, MODEL_NAMES, TRACKER_CLASSES
from theory.errors import InputError
from theory.text import find_nearest_name, suggest_name

ExtensionKind = Literal["method", "model", "dataset", "callback", "aggregator", "optimizer", "tracker"]
KINDS: tuple[ExtensionKind, ...] = get_args(ExtensionKind)
WATCHING_KINDS: tuple[ExtensionKind, ...] = ("callback", "tracker")
"""Those that look on and change no number."""
BUILT_IN: dict[ExtensionKind, tuple[str, ...]] = {
    "method": tuple(METHOD_CLASSES),
    "model": (*MODEL_NAMES, "auto", "own"),
    "aggregator": tuple(AGGREGATOR_CLASSES),
    "dataset": DATASET_NAMES,
    "tracker": tuple(TRACKER_CLASSES),
}
"""Names that are taken, whatever a plug-in calls itself."""


@dataclass(frozen=True)
class Extension:
    """An object of somebody's code, and where it came from."""

    kind: ExtensionKind
    name: str
    """What configurations and manifests call it: ``lg:LGFedAvg``, wherever lg.py lies, or the name of a plug-in."""
    value: Any
    file: Path | None
    """Where it is defined; None if that is no file, as in a notebook."""
    sha256: str
    """Of the source, see `hash_source`; empty if there is no file."""
    distribution: str = ""
    """The installed package that has it, with its version."""

    @property
    def reference(self) -> str:
        """What names it in every folder and every process of this machine."""
        module, colon, attribute = self.name.partition(":")
        return f"{self.file}:{attribute}" if colon and self.file is not None and self.file.stem == module else self.name


_loaded: dict[tuple[ExtensionKind, str], Extension] = {}
"""What was loaded in this process, by the name that it has in configurations."""


def is_reference(text: str) -> bool:
    """Whether this names code, and not something that has a name of its own."""
    return ":" in text


def is_file_reference(text: str) -> bool:
    """Whether this names code by the file that it is in."""
    return _is_file(text.rpartition(":")[0])


def shorten_reference(text: str) -> str:
    """A reference as configurations have it: ``./lg.py:LGFedAvg`` is ``lg:LGFedAvg``."""
    place, colon, attribute = text.rpartition(":")
    return f"{Path(place).stem}:{attribute}" if colon and _is_file(place) else text


def resolve(kind: ExtensionKind, text: str) -> Extension:
    """Load what a user names: a reference or an installed plug-in."""
    name = shorten_reference(text)
    if (known := _loaded.get((kind, name))) is not None and not _is_file(text.rpartition(":")[0]):
        return known
    found = _load_reference(kind, text, name) if is_reference(text) else _load_installed(kind, name)
    if known is not None and known.value is not found.value:
        raise ExtensionError(f"{kind} {text}: another {name} was loaded from {known.file}; give one of them a new name")
    return _loaded.setdefault((kind, name), found)


def register(kind: ExtensionKind, value: Any) -> Extension:
    """Remember an object that was given in Python, under the name that configurations will have for it."""
    if (known := find_by_value(kind, value)) is not None:
        return known
    name = f"{value.__module__}:{getattr(value, '__qualname__', type(value).__qualname__)}"
    file = find_source(value)
    made = Extension(kind, name, value, file, hash_source(file))
    _loaded[kind, name] = made  # a class that a notebook defines again takes the place of the first
    return made


def find_extension(kind: ExtensionKind, name: str) -> Extension | None:
    """What a configuration names, if the user has named it in this process or if it is an installed plug-in."""
    if (kind, name) in _loaded:
        return _loaded[kind, name]
    return resolve(kind, name) if name in list_installed(kind) else None


def find_by_value(kind: ExtensionKind, value: Any) -> Extension | None:
    """The extension that is this object."""
    return next((one for one in _loaded.values() if one.kind == kind and one.value is value), None)


def list_loaded() -> tuple[Extension, ...]:
    """All that was loaded in this process."""
    return tuple(_loaded.values())


def explain_extension_error(error: BaseException) -> str | None:
    """What to say of an error that code of somebody's has raised while we ran it; None if it is not of such code."""
    homes = [(one, find_package_folder(one.file) or one.file) for one in list_loaded() if one.file is not None]
    for code in reversed([frame.f_code for frame, _ in walk_tb(error.__traceback__)]):
        found = [one for one, home in homes if Path(code.co_filename).resolve().is_relative_to(home)]
        if found:
            inside = [one for one in found if code.co_qualname.startswith(getattr(one.value, "__qualname__", "-"))]
            names = " or ".join(f"{one.kind} {one.name}" for one in inside or found)
            return f"{names} failed: {describe_code_error(error)}"
    return None


def list_installed(kind: ExtensionKind) -> list[str]:
    """Names of installed plug-ins, without those whose names are taken (see `list_hidden`); nothing is loaded."""
    return sorted({point.name for point in _list_entry_points(kind)} - set(BUILT_IN.get(kind, ())))


def list_hidden(kind: ExtensionKind) -> list[str]:
    """Plug-ins that cannot be chosen since fedco2 has something of that name, as ``name (package)``."""
    taken = BUILT_IN.get(kind, ())
    return sorted(
        f"{point.name} ({_name_distribution(point)})" for point in _list_entry_points(kind) if point.name in taken
    )


def build_unknown_error(kind: ExtensionKind, name: str) -> InputError:
    """What to say of a name that nobody has."""
    known = [*BUILT_IN.get(kind, ()), *list_installed(kind)]
    if is_reference(name):
        return InputError(
            f"{kind} {name} is code outside fedco2, and no file or message makes fedco2 load code; name it yourself",
            options=(kind,),
        )
    return InputError(f"unknown {kind} {name!r}; {suggest_name(name, known)}")


@cache
def _list_entry_points(kind: ExtensionKind) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=f"fedco2.{kind}s"))


def _load_installed(kind: ExtensionKind, name: str) -> Extension:
    points = [point for point in _list_entry_points(kind) if point.name == name]
    if not points or name in BUILT_IN.get(kind, ()):
        raise build_unknown_error(kind, name)
    if len({point.value for point in points}) > 1:
        both = " and ".join(_name_distribution(point) for point in points)
        raise ExtensionError(f"{kind} {name}: {both} both have one of this name; uninstall one")
    module, _, attribute = points[0].value.partition(":")
    found = _load(kind, name, lambda: _import_module(module), attribute)
    return Extension(kind, name, found, *_trace(found, module), _name_distribution(points[0]))


def _load_reference(kind: ExtensionKind, text: str, name: str) -> Extension:
    place, _, attribute = text.rpartition(":")
    if not place or not attribute:
        raise ExtensionError(f"{kind} {text}: write module:Name, for instance lg:LGFedAvg or ./lg.py:LGFedAvg")
    if _is_file(place):
        found = _load(kind, text, lambda: _import_file(Path(place)), attribute)
        return Extension(kind, name, found, *_trace(found, Path(place).stem))
    found = _load(kind, text, lambda: _import_module(place), attribute)
    return Extension(kind, name, found, *_trace(found, place))


def _trace(found: Any, module: str) -> tuple[Path | None, str]:
    file = find_source(found, module)
    return file, hash_source(file)


def _load(kind: ExtensionKind, text: str, load: Callable[[], ModuleType], attribute: str) -> Any:
    """The attribute of a module; whatever goes wrong is one line that names the place in the stranger's code."""
    try:
        module = load()
    except ExtensionError as error:
        raise ExtensionError(f"{kind} {text}: {error}") from error.__cause__
    except (Exception, SystemExit) as error:
        raise ExtensionError(f"{kind} {text} cannot be loaded: {describe_code_error(error)}") from error
    found: Any = module
    for step in attribute.split("."):
        if not hasattr(found, step):
            names = [one for one in dir(found) if not one.startswith("_")]
            near = find_nearest_name(step, names)
            way = f"did you mean {near!r}?" if near else "name what is defined there"
            raise ExtensionError(f"{kind} {text}: {describe_module(module)} has no {step!r}; {way}")
        found = getattr(found, step)
    return found


def _import_module(name: str) -> ModuleType:
    """A module that is installed, or lies in the folder where the command was given."""
    mark_as_extension(name)
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)  # at the end: it hides nothing that is installed
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise ExtensionError(
            f"no module {error.name!r} is installed or in {here}; name its file (./lg.py:Name) or install it"
        ) from None


def _import_file(path: Path) -> ModuleType:
    """A file as the module that it would be from within its folder."""
    path = path.expanduser().resolve()
    if not path.is_file():
        raise ExtensionError(f"there is no file {path}")
    name = path.stem
    if (known := sys.modules.get(name)) is not None and getattr(known, "__file__", None) == str(path):
        return known
    if (other := _find_other(name, path)) is not None:
        raise ExtensionError(f"the name of {path.name} is taken by the module {name} ({other}); rename the file")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # so that it can import its neighbours
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up while they are made
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _find_other(name: str, path: Path) -> str | None:
    """The module that has this name already, if it is not this file."""
    try:
        spec: ModuleSpec | None = find_spec(name)
    except (ImportError, ValueError):  # __main__ has no spec
        return None
    return None if spec is None or spec.origin == str(path) else str(spec.origin)


def _is_file(place: str) -> bool:
    return place.endswith(".py")


def _name_distribution(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "an unknown package"
