"""Resume a run: make sure that it is the same one, and note what has changed around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fedtrain.config.data import DataSettings
from fedtrain.config.schema import Config, format_config, parse_config, serialize_config
from fedtrain.config.toml import TomlTable, merge_tables
from fedtrain.extensions.references import WATCHING_KINDS
from fedtrain.runs.folder import CONFIG_FILE, MANIFEST_FILE, RunFolder
from fedtrain.runs.json_types import Circumstances, ExtensionDescription, Manifest, Resumption
from theory.errors import InputError

CHANGEABLE_KEYS = {
    "server.rounds",
    "server.on_client_failure",
    "evaluation.every",
    "evaluation.save_predictions",
    "checkpoints.every",
    "checkpoints.keep",
    "machine.device",
    "machine.threads",
    "machine.fast_path",
    "machine.backend",
    "machine.client_state",
}
"""What may change when a run goes on."""


def resume_config(folder: RunFolder, tables: TomlTable) -> Config:
    """The configuration of a run that goes on, with the changes that are allowed.

    As many threads as before, unless clients now train in other processes: these share the cores anew.
    """
    begun = folder.load_config()
    for section, was in (("method", begun.method_name), ("aggregator", begun.aggregator_name)):
        name = merge_tables({"name": was}, tables.get(section, {}))["name"]
        if name != was:  # before the parameters of one are read as those of the other
            raise InputError(f"{folder.path} holds a run of {was}, not of {name}; start a new one", options=("out",))
    new = parse_config(merge_tables(serialize_config(begun), tables))
    check_same_run(folder, new)
    if new.machine.backend != begun.machine.backend and "threads" not in tables.get("machine", {}):
        new = replace(new, machine=replace(new.machine, threads=None))
    return new


def resolve_original_data(folder: RunFolder, config: Config) -> DataSettings:
    """The data that the run was begun with: what ``auto`` meant then, whatever was added since."""
    return config.data.with_resolved_source(standin=folder.read_manifest().get("data", {}).get("standin", False))


def check_same_run(folder: RunFolder, new: Config) -> None:
    """Two configurations in one folder would be neither."""
    changed = find_differences(serialize_config(folder.load_config()), serialize_config(new))
    if other := {key: pair for key, pair in changed.items() if key not in CHANGEABLE_KEYS}:
        shown = ", ".join(f"{key} {old!r} -> {now!r}" for key, (old, now) in other.items())
        raise InputError(
            f"{folder.path} was begun with other settings, which cannot change when it goes on ({shown}); leave them "
            "out, or start a new run in another folder"
        )


def find_differences(old: TomlTable, new: TomlTable) -> dict[str, tuple[Any, Any]]:
    """Keys whose values differ, by their path."""
    found: dict[str, tuple[Any, Any]] = {}
    for section in old.keys() | new.keys():
        a, b = old.get(section), new.get(section)
        if isinstance(a, dict) and isinstance(b, dict):
            found |= {f"{section}.{key}": pair for key, pair in find_differences(a, b).items()}
        elif a != b:
            found[section] = a, b
    return dict(sorted(found.items()))


def list_changed_extensions(before: Sequence[ExtensionDescription], now: Sequence[ExtensionDescription]) -> list[str]:
    """What to say of code outside fedco2 that is not what it was."""
    known = {(one["kind"], one["name"]): one.get("sha256") for one in before}
    return [
        f"the source of {one['kind']} {one['name']} has changed since this run was saved: its next rounds are made by "
        "other code than those before"
        for one in now
        if one["kind"] not in WATCHING_KINDS
        and known.get((one["kind"], one["name"]), one.get("sha256")) != one.get("sha256")
    ]


def prepare_resume(folder: RunFolder, config: Config, now: Manifest) -> list[str]:
    """Make sure that the run in the folder is this one and has rounds to make; what to say of the change of scene.

    ``now`` is the manifest that a run begun now would have; what differs is added to the old one.
    """
    check_same_run(folder, config)
    manifest = folder.read_manifest()
    was_standin = manifest.get("data", {}).get("standin", False)
    if was_standin and not now["data"]["standin"]:
        raise InputError(
            f"{folder.path} was begun with stand-in images, and real ones are here now; go on with "
            f"fedco2 train --resume {folder.path}, or choose another folder",
            options=("out",),
        )
    if manifest.get("data", {}).get("sha256") != now["data"]["sha256"]:
        raise InputError(
            f"{folder.path} was begun with other data (their checksum differs); name the folder of those, "
            "or choose another for the run",
            options=("data_dir", "out"),
        )
    done, rounds, before = folder.read_last_saved_round(), config.server.rounds, folder.load_config().server.rounds
    concluded = folder.read_summary().get("rounds", 0) if folder.is_finished else 0  # of a shorter run, maybe
    if concluded and not done:  # to go on would be to begin anew, over what it has written
        raise InputError(
            f"{folder.path} holds the records of a finished run and no checkpoint; choose another folder",
            options=("out",),
        )
    if min(concluded, done) >= rounds:
        raise InputError(
            f"{folder.path} holds this run, finished after {concluded} rounds; ask for more rounds to go on, "
            "or choose another folder",
            options=("rounds", "out"),
        )
    if rounds != before and done >= rounds:
        raise InputError(f"{folder.path} has made {done} of its {before} rounds; to go on, ask for more than {done}")
    folder.write_text(CONFIG_FILE, format_config(config))
    scene: Resumption = {
        "round": done,
        "command": now["command"],
        "started": now["started"],
        "versions": now["versions"],
        "git": now["git"],
        "machine": now["machine"],
    }
    if "extensions" in now:
        scene["extensions"] = now["extensions"]
    resumed = manifest.get("resumed", [])
    before_this: Circumstances = resumed[-1] if resumed else manifest
    was, is_now = ({"versions": one.get("versions"), "machine": one.get("machine")} for one in (before_this, scene))
    folder.write_json(MANIFEST_FILE, {**manifest, "resumed": [*resumed, scene]})
    notes = list_changed_extensions(before_this.get("extensions", []), now.get("extensions", []))
    return notes + [
        f"{key} was {old!r} and is {new!r} now: the last digits may differ from a run that was not interrupted"
        for key, (old, new) in find_differences(was, is_now).items()
    ]
