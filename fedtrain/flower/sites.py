"""Runs whose clients are sites: each node has a data set of its own, and the server learns from them who has what."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedtrain.config.data import DataSettings
from fedtrain.config.references import names_code
from fedtrain.data.build import build_natural_clients
from fedtrain.data.client_data import Federation
from fedtrain.data.errors import DataError
from fedtrain.extensions.references import resolve
from fedtrain.runs.json_types import DataDescription
from theory.errors import InputError

SITES_DATASET = "sites"
"""The data set of such a run, as it is called in its configuration."""
SITES_TITLE = "the sites' own data"
SCHEMA_KEYS = ("classes", "input_shape", "input_type", "mean", "std", "table")
"""What all sites must agree in: one network is trained on all of them."""


def build_site(settings: DataSettings, path: Path, name: str) -> Federation:
    """The one client of a site, read as the run says from where the site says."""
    if settings.dataset != SITES_DATASET:
        wanted = f"the run is on {settings.dataset!r} and this node has only the data of its site"
        raise InputError(f"{wanted}; the run of sites has the data set {SITES_DATASET!r}")
    if settings.standardise == "pooled":
        raise InputError("no site knows what is the mean of all; let each standardise by its own (data.standardise)")
    given = str(path)
    if names_code("dataset", given):  # the site's own settings name it, no message does
        given = resolve("dataset", given).name
    own = replace(settings, dataset=given, skew="domain", clients=None, source="real", sha256="")
    found = build_natural_clients(own)
    if len(found.clients) != 1:
        names = ", ".join(client.name for client in found.clients[:5])
        raise DataError(f"{path}: it holds {len(found.clients)} clients ({names}); give the node of a site one")
    (client,) = found.clients
    return replace(found, clients=(replace(client, name=name),), title=SITES_TITLE)


def hash_schema(data: DataDescription) -> str:
    """Of all that sites must agree in, by the description of a site's data."""
    agreed = {key: data.get(key) for key in SCHEMA_KEYS}
    return hashlib.sha256(json.dumps(agreed, sort_keys=True).encode()).hexdigest()


def check_same_schema(parts: Sequence[DataDescription]) -> None:
    """Refuse sites that differ; both are named, and what they differ in."""
    first, *others = parts
    for other in others:
        if hash_schema(other) != hash_schema(first):
            names = [str(part["clients"][0]["name"]) for part in (first, other)]
            raise InputError(
                f"sites {names[0]} and {names[1]} do not fit together: {describe_difference(first, other, names)}"
            )


def describe_difference(one: Mapping[str, Any], other: Mapping[str, Any], names: Sequence[str]) -> str:
    """The first thing that two sites do not have in common, and the way out."""
    pairs = [(list_classes(one), list_classes(other), "class"), (list_columns(one), list_columns(other), "column")]
    for mine, theirs, what in pairs:
        for has, lacks, extra in ((names[0], names[1], mine - theirs), (names[1], names[0], theirs - mine)):
            if extra:
                found = ", ".join(repr(name) for name in sorted(extra)[:5])
                return f"{has} has the {what} {found} and {lacks} has not; give both the same {what} names"
    key = next(key for key in SCHEMA_KEYS if one.get(key) != other.get(key))
    values = [json.dumps(part.get(key))[:80] for part in (one, other)]
    return f"their {key} is {values[0]} at {names[0]} and {values[1]} at {names[1]}; make them the same"


def list_classes(data: Mapping[str, Any]) -> set[str]:
    """Of a site."""
    return set(map(str, data.get("classes", ())))


def list_columns(data: Mapping[str, Any]) -> set[str]:
    """Of a site's table: names, and the categories of those that have some."""
    table = data.get("table") or {}
    found: set[str] = set()
    for column in table.get("columns", ()):
        found.add(str(column["name"]))
        found |= {f"{column['name']}={category}" for category in column.get("categories") or ()}
    return found
