"""What Flower's processes are told by their environment: keep to yourself, install nothing."""

from __future__ import annotations

import os
import re
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from theory.errors import InputError

OLDEST_VERSION, FIRST_UNTESTED_VERSION = (1, 41), (1, 43)
INSTALL_HINT = "pip install -c constraints.txt -e '.[flower]' in the folder of fedco2's source"
OWN_CLIENT_APP = "fedtrain.flower.client_app:app"
CLIENT_APP_VARIABLE, ANY_APP = "FEDCO2_CLIENT_APP", "any"
"""Environment of a node, set by its owner alone: the one app that it runs, if not ours, or that it runs whatever comes
with a run."""
DEFAULT_VARIABLES = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_PRIVATE_MAX_CONCURRENT_OBJ_PUSHES": "1",  # the SuperLink's database takes one at a time, others starve
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # else Ray listens on all interfaces
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else Ray warns of a future default
}
"""What holds unless the user has said otherwise."""


def build_environment(home: Path) -> dict[str, str]:
    """Ours and the user's settings, for processes that keep Flower's own files in ``home``."""
    found = DEFAULT_VARIABLES | os.environ | {"FLWR_HOME": str(home)}
    # processes of Flower start each other by name
    found["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    for name in ("no_proxy", "NO_PROXY"):  # a proxy cannot know what this machine's own address means here
        found[name] = ",".join(filter(None, [os.environ.get(name), "127.0.0.1", "localhost"]))
    return found


def require_flower() -> str:
    """The version of Flower that is installed; refuse none and those that were not tried."""
    try:
        found = version("flwr")
    except PackageNotFoundError:
        raise InputError(f"Flower is not installed; {INSTALL_HINT}") from None
    numbers = re.match(r"(\d+)\.(\d+)", found)
    if numbers is None or not OLDEST_VERSION <= (int(numbers[1]), int(numbers[2])) < FIRST_UNTESTED_VERSION:
        wanted = f">={OLDEST_VERSION[0]}.{OLDEST_VERSION[1]},<{FIRST_UNTESTED_VERSION[0]}.{FIRST_UNTESTED_VERSION[1]}"
        raise InputError(f"Flower {found} is installed, but fedco2 wants {wanted}; {INSTALL_HINT}")
    return found
