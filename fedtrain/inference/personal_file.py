"""The personal part of a newcomer in a file of its own, beside the run whose shared part it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedtrain.data.client_data import ClientData
from fedtrain.data.found.names import check_client_names
from fedtrain.data.readers.safe_read import summarise_error
from fedtrain.data.scaling import Scaling
from fedtrain.inference.adapt import AdaptedClient
from fedtrain.inference.trained_run import TrainedRun
from fedtrain.parameters import StateDict
from fedtrain.serialization.checked_file import CORRUPT_FILE_ERRORS, load_checked, save_checked
from theory.errors import InputError

FORMAT = "fedco2 personal part 1"


@dataclass(frozen=True)
class PersonalPart:
    """What a newcomer got, as it is kept."""

    client: str
    branch: str
    entries: StateDict
    scaling: Scaling | None
    about: Mapping[str, Any]


def save_personal(path: Path, run: TrainedRun, adapted: AdaptedClient, data: ClientData) -> None:
    """Write what the newcomer got; the shared part stays in the run."""
    scaling = None if data.scaling is None else data.scaling.to_table()
    about = {"format": FORMAT, "client": adapted.client, "branch": adapted.branch_after, "scaling": scaling}
    save_checked(path, adapted.personal, {**about, **_identify(run)})


def add_newcomer(run: TrainedRun, path: Path) -> tuple[TrainedRun, str, str]:
    """The run with the newcomer as one more client, its name, and the branch that it predicts with."""
    if not path.is_file():
        raise InputError(f"{path}: no such file; fedco2 adapt {run.folder.path} --out FILE.safetensors writes one")
    found = read_personal(path)
    inputs = run.federation.clients[0].train.inputs.shape[1:].numel()
    if (
        any(found.about.get(key) != value for key, value in _identify(run).items())
        or not run.trainer.is_compatible({**found.entries, **run.state.message.shared})
        or (found.scaling is not None and len(found.scaling.mean) != inputs)
    ):
        raise InputError(f"{path}: it belongs to another run than {run.folder.path}; name that, or adapt anew")
    known = run.federation.clients
    newcomer = replace(known[0], name=found.client, noise=0.0, scaling=found.scaling)
    device = run.trainer.device
    personal = {key: value.to(device) for key, value in found.entries.items()}
    states = {**run.state.client_states, found.client: personal}
    federation = replace(run.federation, clients=(*(one for one in known if one.name != found.client), newcomer))
    return (
        replace(run, federation=federation, state=replace(run.state, client_states=states)),
        found.client,
        found.branch,
    )


def read_personal(path: Path) -> PersonalPart:
    """What is in the file, whatever run it belongs to."""
    try:
        entries, about = load_checked(path)
        client, branch = about["client"], about["branch"]
        if about["format"] != FORMAT or not isinstance(client, str) or not isinstance(branch, str):
            raise ValueError("it is no personal part")
        check_client_names(path, [client])
        scaling = None if about["scaling"] is None else Scaling.from_table(about["scaling"])
    except CORRUPT_FILE_ERRORS as error:
        why = summarise_error(error)
        raise InputError(f"{path}: not a personal part that fedco2 wrote, or damaged ({why}); adapt anew") from None
    return PersonalPart(client, branch, entries, scaling, about)


def _identify(run: TrainedRun) -> dict[str, Any]:
    """By what a personal part knows the shared one."""
    return {
        "data": run.manifest["data"]["sha256"],
        "method": run.config.method_name,
        "round": run.state.message.round,
        "seed": run.config.seed,
    }
