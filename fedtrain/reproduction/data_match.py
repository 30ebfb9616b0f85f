"""The clients that a run begun now would have, without a look at an image: are they those of a run that is there?"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache

from fedtrain.config.data import DataSettings
from fedtrain.data.build import assemble_federation
from fedtrain.reproduction.plan import Plan
from fedtrain.reproduction.run_spec import RunSpec
from fedtrain.runs.json_types import DataDescription
from fedtrain.runs.manifest import describe_clients
from theory.errors import InputError

ClientsPreview = Callable[[DataSettings], str]
"""From settings to `summarise_clients` of the clients that they make of the data that are here."""


def summarise_clients(data: DataDescription) -> str:
    """What a manifest says of the data but for checksums, which need the images; the same for the same clients.

    A subset has other numbers than the whole, and a replacement of equal size has a note.
    """
    clients = [[one["name"], one["train"], one["val"], one["test"], one["noise"]] for one in data["clients"]]
    return json.dumps([list(data["notes"]), clients])


def make_clients_preview(plans: Iterable[Plan]) -> ClientsPreview:
    """Shares each data set out as often as there are settings for it."""
    sources = {name: found.without_inputs() for plan in plans for name, found in plan.sources.items()}
    return cache(
        lambda settings: summarise_clients(describe_clients(assemble_federation(settings, sources[settings.dataset])))
    )


def matches_current_data(clients: str, settings: DataSettings, preview: ClientsPreview) -> bool:
    """Whether the data that are here make these clients; not if they can make none."""
    try:
        return clients == preview(settings)
    except InputError:
        return False


def find_impossible_runs(cells: Iterable[RunSpec], preview: ClientsPreview) -> dict[str, int]:
    """Why some cannot be run on the data that are here, and how many of them."""
    why: Counter[str] = Counter()
    for settings, count in Counter(cell.config.data for cell in cells).items():
        try:
            preview(settings)
        except InputError as error:
            why[str(error)] += count
    return why
