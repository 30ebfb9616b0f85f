"""Manifests: what a reader needs to trust or to repeat the numbers of a run."""

from __future__ import annotations

import platform
import subprocess
import time
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import cast

import torch

from fedtrain.config.references import find_extensions
from fedtrain.config.schema import Config
from fedtrain.data.client_data import Federation, Samples
from fedtrain.extensions.references import WATCHING_KINDS, Extension, find_by_value, register
from fedtrain.runs.json_types import DataDescription, ExtensionDescription, Manifest


def build_manifest(
    config: Config,
    data: DataDescription,
    command: str,
    build_model: Callable[..., object] | None = None,
    watchers: Sequence[object] = (),
) -> Manifest:
    """What a reader needs to trust or to repeat the numbers; ``data`` as `describe_data` gives it.

    Of the callbacks in ``watchers`` those are named that were given by name.
    """
    manifest: Manifest = {
        "command": command,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "versions": {"fedco2": get_version(), "python": platform.python_version(), "torch": torch.__version__},
        "git": get_git_commit(),
        "machine": {
            "system": platform.platform(),
            "device": str(config.machine.resolve_device()),
            "threads": torch.get_num_threads(),
        },
        "data": data,
    }
    if extensions := describe_extensions(config, build_model, watchers):
        manifest["extensions"] = extensions
    return manifest


def describe_extensions(
    config: Config, build_model: Callable[..., object] | None = None, watchers: Sequence[object] = ()
) -> list[ExtensionDescription]:
    """The code outside fedco2 that decides the numbers, and that watches; ``build_model`` was given in Python."""
    found: list[Extension | None] = [*find_extensions(config)]
    if build_model is not None:
        found.append(register("model", build_model))
    for kind in WATCHING_KINDS:
        found += [find_by_value(kind, one) or find_by_value(kind, type(one)) for one in watchers]
    return [_describe_extension(one, config) for one in found if one is not None]


def _describe_extension(one: Extension, config: Config) -> ExtensionDescription:
    known: dict[str, str] = {"kind": one.kind, "name": one.name, "sha256": one.sha256, "package": one.distribution}
    known |= {"file": str(one.file or ""), "title": config.method.title if one.kind == "method" else ""}
    return cast(ExtensionDescription, {key: value for key, value in known.items() if value})


def describe_data(data: Federation) -> DataDescription:
    """The data, for who does not have them."""
    about = describe_clients(data)
    for entry, client in zip(about["clients"], data.clients, strict=True):
        entry["sha256"] = client.fingerprint
        if client.scaling is not None:
            entry["scaling"] = client.scaling.to_table()
    about["sha256"] = data.fingerprint
    if data.is_own:
        inputs = data.clients[0].train.inputs
        about["input_shape"], about["input_type"] = list(inputs.shape[1:]), str(inputs.dtype)
        about["mean"], about["std"] = list(data.preprocessing.mean), list(data.preprocessing.std)
        if data.scaling is not None:
            about["scaling"] = data.scaling.to_table()
        if data.table is not None:
            about["table"] = data.table.to_table()
    return about


def describe_clients(data: Federation) -> DataDescription:
    """What can be said without a look at the images."""
    return {
        "title": data.title,
        "standin": data.standin,
        "classes": list(data.classes),
        "notes": list(data.notes),
        "clients": [
            {
                "name": client.name,
                "train": count_classes(client.train, len(data.classes)),
                "val": count_classes(client.val, len(data.classes)),
                "test": count_classes(client.test, len(data.classes)),
                "noise": client.noise,
            }
            for client in data.clients
        ],
    }


def count_classes(samples: Samples | None, classes: int) -> list[int]:
    """How many of each class."""
    return [0] * classes if samples is None else torch.bincount(samples.labels.cpu(), minlength=classes).tolist()


def get_version() -> str:
    """Of the installed distribution."""
    try:
        return version("fedco2")
    except PackageNotFoundError:
        return "not installed"


def get_git_commit() -> str | None:
    """The commit of the source tree that runs, with a plus if it was changed; None outside one."""
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(here), *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        if git("ls-files", "--error-unmatch", __file__) and (commit := git("rev-parse", "HEAD")):
            return commit + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        pass
    return None
