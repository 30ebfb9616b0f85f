"""Which code outside fedco2 a node runs: what its own settings allow, never what a message names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from fedtrain.config.references import SETTINGS, find_extensions, get_setting, names_code
from fedtrain.config.schema import Config
from fedtrain.extensions.references import resolve, shorten_reference
from theory.errors import InputError

ALLOW_VARIABLE = "FEDCO2_ALLOW"
"""Environment of a node: names of plug-ins, and references, with blanks between them."""
ALLOW_KEY = "allow"
"""The same in a node's settings: ``--node-config 'allow="lgfedavg nets:make"'``."""


def load_allowed_code(tables: Mapping[str, Any], node: Mapping[str, Any] | None = None) -> None:
    """Load the code that a configuration from elsewhere names, if this node's own settings name it too."""
    allowed = [*os.environ.get(ALLOW_VARIABLE, "").split(), *str((node or {}).get(ALLOW_KEY, "")).split()]
    for kind in SETTINGS:
        name = get_setting(tables, kind)
        if name is None or not names_code(kind, name):
            continue  # nothing to load; what is no name is refused where the configuration is read
        mine = next((text for text in allowed if shorten_reference(text) == name), None)
        if mine is None:
            raise InputError(
                f"this node does not allow {kind} {name!r}, which is not part of fedco2; whoever runs the node can "
                f"install it there and start the node with {ALLOW_VARIABLE}={name!r}"
            )
        resolve(kind, mine)


def list_code(config: Config) -> str:
    """What nodes that see this machine's files have to allow for a configuration, as `ALLOW_VARIABLE` has it."""
    return " ".join(one.reference for one in find_extensions(config))
