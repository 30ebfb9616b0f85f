"""The personal part of a newcomer in a file of its own, beside the run whose shared part it belongs to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from fedtrain.data.client_data import ClientData
from fedtrain.data.scaling import Scaling
from fedtrain.inference.adapt import AdaptedClient
from fedtrain.inference.trained_run import TrainedRun
from fedtrain.serialization.checked_file import CORRUPT_FILE_ERRORS, load_checked, save_checked
from theory.errors import InputError

FORMAT = "fedco2 personal part 1"


def save_personal(path: Path, run: TrainedRun, adapted: AdaptedClient, data: ClientData) -> None:
    """Write what the newcomer got; the shared part stays in the run."""
    scaling = None if data.scaling is None else data.scaling.to_table()
    about = {"format": FORMAT, "client": adapted.client, "branch": adapted.branch_after, "scaling": scaling}
    save_checked(path, adapted.personal, {**about, **_identify(run)})


def add_newcomer(run: TrainedRun, path: Path) -> tuple[TrainedRun, str, str]:
    """The run with the newcomer as one more client, its name, and the branch that it predicts with."""
    if not path.is_file():
        raise InputError(f"{path}: no such file; fedco2 adapt {run.folder.path} --out FILE.safetensors writes one")
    try:
        personal, about = load_checked(path)
        name, branch = about["client"], about["branch"]
        if about["format"] != FORMAT or not isinstance(name, str) or not isinstance(branch, str):
            raise ValueError("it is no personal part")
        scaling = None if about["scaling"] is None else Scaling.from_table(about["scaling"])
    except CORRUPT_FILE_ERRORS as error:
        raise InputError(f"{path}: not a personal part that fedco2 wrote, or damaged ({error}); adapt anew") from None
    if any(about.get(key) != value for key, value in _identify(run).items()) or not run.trainer.is_compatible(
        {**personal, **run.state.message.shared}
    ):
        raise InputError(f"{path}: it belongs to another run than {run.folder.path}; name that, or adapt anew")
    known = run.federation.clients
    newcomer = replace(known[0], name=name, noise=0.0, scaling=scaling)
    device = run.trainer.device
    states = {**run.state.client_states, name: {key: value.to(device) for key, value in personal.items()}}
    federation = replace(run.federation, clients=(*(one for one in known if one.name != name), newcomer))
    return replace(run, federation=federation, state=replace(run.state, client_states=states)), name, branch


def _identify(run: TrainedRun) -> dict[str, Any]:
    """By what a personal part knows the shared one."""
    return {
        "data": run.manifest["data"]["sha256"],
        "method": run.config.method_name,
        "round": run.state.message.round,
        "seed": run.config.seed,
    }
