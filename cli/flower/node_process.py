"""What ``fedco2 flower node`` does once its options are read: it becomes the process of a node."""

from __future__ import annotations

import os
import re
from ipaddress import ip_address
from pathlib import Path

import click

from fedtrain.config.references import names_code
from fedtrain.extensions.references import is_file_reference, resolve
from fedtrain.flower.deployment.commands import build_site_config, build_supernode_command
from fedtrain.flower.deployment.ports import find_free_ports
from fedtrain.flower.environment import build_environment, require_flower
from theory.errors import InputError

ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\s]+):([0-9]{1,5})")


def become_node(
    name: str, data: Path, superlink: str, state: Path, ca: Path | None, key: Path | None, insecure: bool, threads: int
) -> None:
    """Check what can be checked here, then go on as Flower's node."""
    require_flower()
    check_address(superlink, encrypted=ca is not None, insecure=insecure)
    is_code = names_code("dataset", str(data))
    if is_code:
        resolve("dataset", str(data))  # refused here, not in a log
    for path, option in ((None if is_code else data, "data"), (ca, "ca"), (key, "key")):
        if path is not None and not path.exists():
            raise InputError(f"{path}: no such file or folder; mend the path", options=(option,))
    if key is not None and ca is None:
        raise InputError("a key is used with encryption only; name the server's certificate, too", options=("ca",))
    state.mkdir(parents=True, exist_ok=True)
    (port,) = find_free_ports(1)
    place = data if is_code and not is_file_reference(str(data)) else data.resolve()
    config = build_site_config(name, place, state.resolve())
    command = build_supernode_command(superlink, port, config, ca, key)
    click.echo(f"site {name}: data {data}, state {state}, server {superlink}; Ctrl-C ends it", err=True)
    environment = build_environment(state.resolve() / "flower") | {"OMP_NUM_THREADS": str(threads)}
    os.execve(command[0], command, environment)


def check_address(superlink: str, *, encrypted: bool, insecure: bool) -> None:
    """Refuse one that is none, and one in the clear on another machine that nobody has asked for."""
    found = ADDRESS.fullmatch(superlink)
    if found is None or not 0 < int(found[2]) < 2**16:
        raise InputError(f"{superlink!r} is no address; give HOST:PORT", options=("superlink",))
    if encrypted and insecure:
        raise InputError("encryption is asked for and forbidden; leave one of them out", options=("ca", "insecure"))
    if not (encrypted or insecure or is_this_machine(found[1].strip("[]"))):
        raise InputError(
            f"{superlink} is another machine, and nothing would be encrypted; name the server's certificate",
            options=("ca",),
        )


def is_this_machine(host: str) -> bool:
    """Whether a host is this one by its name or address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
