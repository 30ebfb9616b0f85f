"""The command lines of a SuperLink and of its SuperNodes."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from fedtrain.flower.deployment.ports import LOOPBACK
from fedtrain.flower.site_keys import DATA_KEY, NAMED_FILES_KEY, SITE_KEY

SUPERLINK_MODULE = "fedtrain.flower.deployment.patient_superlink"
SUPERNODE_MODULE = "fedtrain.flower.deployment.patient_supernode"
CA_FILE, CERTIFICATE_FILE, KEY_FILE = "ca.pem", "server.pem", "server.key"


def build_superlink_command(
    port: int, database: Path, certificates: Path | None, host: str = LOOPBACK, python: str = sys.executable
) -> list[str]:
    """With certificates it wants TLS, and of nodes a key that was registered."""
    secure = ["--insecure"]
    if certificates is not None:
        files = {"--ssl-ca-certfile": CA_FILE, "--ssl-certfile": CERTIFICATE_FILE, "--ssl-keyfile": KEY_FILE}
        secure = [word for option, name in files.items() for word in (option, str(certificates / name))]
        secure.append("--enable-supernode-auth")
    words = [*secure, "--database", str(database), "--host", host, "--port", str(port)]
    return _run_module(python, SUPERLINK_MODULE, words)


def build_supernode_command(
    address: str, port: int, config: str, ca: Path | None, key: Path | None, python: str = sys.executable
) -> list[str]:
    """A node that serves its own apps on ``port``, to this machine alone."""
    secure = ["--insecure"] if ca is None else ["--root-certificates", str(ca)]
    if key is not None:
        secure += ["--auth-supernode-private-key", str(key)]
    here = ["--host", LOOPBACK, "--port", str(port)]
    return _run_module(python, SUPERNODE_MODULE, [*secure, "--superlink", address, *here, "--node-config", config])


def build_node_config(client: int, clients: int, state: Path, data: Path | None, *, named_files: bool = False) -> str:
    """Which client a node is, where it keeps what is its own, and where its data are; or that a run may say so."""
    own: dict[str, int | str] = {"partition-id": client, "num-partitions": clients, "state-dir": str(state)}
    own |= {NAMED_FILES_KEY: 1} if named_files else {}
    return format_node_config(own if data is None else own | {"data-dir": str(data)})


def build_site_config(name: str, data: Path, state: Path) -> str:
    """Which site a node is, where its data are, and where it keeps what is its own."""
    return format_node_config({SITE_KEY: name, DATA_KEY: str(data), "state-dir": str(state)})


def format_node_config(config: Mapping[str, int | str]) -> str:
    """NAME=VALUE as Flower reads it: TOML's strings, but one ends at the first quotation mark, escaped or not."""
    return " ".join(
        f"{name}=" + (str(value) if isinstance(value, int) else _quote_string(value)) for name, value in config.items()
    )


def _run_module(python: str, module: str, words: list[str]) -> list[str]:
    return [python, "-P", "-m", module, *words]  # -P: nothing is loaded from where it is started


def _quote_string(text: str) -> str:
    inner = json.dumps(text, ensure_ascii=False)[1:-1]
    return '"' + inner.replace('\\"', "\\u0022").replace("\x7f", "\\u007f") + '"'
