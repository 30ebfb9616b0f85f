"""The commands for a deployment on several hosts."""

from __future__ import annotations

import re
import shlex
from ipaddress import ip_address
from pathlib import Path

from fedtrain.data.datasets import DATASETS
from fedtrain.flower.deployment import commands
from fedtrain.flower.deployment.superlink_control import CONNECTION_NAME
from fedtrain.flower.environment import DEFAULT_VARIABLES
from fedtrain.runs.manifest import get_version
from theory.errors import InputError

SUPERLINK_PORT = 8000
CURRENT_DIR = Path()
STATE_DIR, DATA_DIR = Path("/var/lib/fedco2"), Path("/srv/fedco2-data")


HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")


def format_multi_host_guide(clients: int, host: str, *, threads: int = 1, data_dir: Path | None = None) -> str:
    """What to type where, with the SuperLink on ``host``, a name or an address that all nodes reach."""
    if not _is_ip_address(host) and not HOST_NAME.fullmatch(host):
        raise InputError(
            f"{host!r} is no name or address of one host; say where the SuperLink will be", options=("hosts",)
        )
    data = data_dir or DATA_DIR
    settings = {name: value for name, value in DEFAULT_VARIABLES.items() if name.startswith("FLWR")}
    quiet = shlex.join(f"{name}={value}" for name, value in (settings | {"OMP_NUM_THREADS": str(threads)}).items())
    wheel = f"fedco2-{get_version()}-py3-none-any.whl"
    domains = {len(one.domains): one.name for one in DATASETS.values() if len(one.domains) > 1}
    dataset = domains.get(clients, "cifar10")
    run = shlex.join(["--dataset", dataset, *(["--clients", str(clients)] if clients not in domains else [])])
    superlink = shlex.join(
        commands.build_superlink_command(
            SUPERLINK_PORT, Path("superlink.db"), CURRENT_DIR, host="0.0.0.0", python="python"
        )
    )
    return "\n".join(
        [
            f"# In the folder of the source, `make wheel` makes dist/{wheel}",
            "# Bring it and constraints.txt to every host: the same versions, and nothing told or fetched unasked",
            f"pip install -c constraints.txt '{wheel}[flower]'",
            f"export {quiet}",
            "",
            f"# On {host}: a test CA and a certificate for 30 days; better are your own CA's",
            *_format_certificate_commands(host),
            "",
            f"# On the host of each node: a key of its own. Bring node-K.pub to {host}, and ca.pem from there",
            *(f"ssh-keygen -q -t ecdsa -b 384 -N '' -C '' -f node-{client}" for client in range(clients)),
            "",
            f"# On {host}, in a terminal of its own: the SuperLink. Who reaches its port {SUPERLINK_PORT} may let in",
            "# nodes and have them run code, so open it in the firewall to the nodes alone.",
            "# Its database is a file, so it can be restarted",
            superlink,
            "",
            f"# On {host}: say where it is, and let in the nodes",
            "mkdir -p ~/.flwr && cat >> ~/.flwr/config.toml <<END",
            f"[superlink.{CONNECTION_NAME}]",
            f'address = "{_bracket_ipv6(host)}:{SUPERLINK_PORT}"',
            'root-certificates = "$PWD/ca.pem"',
            "END",
            *(f"flwr supernode register node-{client}.pub {CONNECTION_NAME}" for client in range(clients)),
            "",
            "# On the host of each node: its data (where every client is a domain, its own domain is enough)",
            f"fedco2 data add {dataset} FILE --data-dir {shlex.quote(str(data))}",
            "",
            "# On the host of each node, once its key is registered. What its client keeps is in state-dir: save it",
            *(_format_supernode_command(client, clients, host, data) for client in range(clients)),
            "",
            f"# On {host}: look, say what to train (all options of fedco2 train), and run it",
            f"flwr supernode list {CONNECTION_NAME}",
            f"fedco2 flower run {run} --data real --rounds 5 --out run --write-app app",
            f"flwr run app {CONNECTION_NAME} --stream",
        ]
    )


def _format_certificate_commands(host: str) -> list[str]:
    # the SuperLink's own processes reach it as 127.0.0.1
    all_names = dict.fromkeys([f"{'IP' if _is_ip_address(host) else 'DNS'}:{host}", "DNS:localhost", "IP:127.0.0.1"])
    names = f"subjectAltName={','.join(all_names)}"
    curve = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
    return [
        "umask 077",
        f"openssl req -x509 {curve} -keyout ca.key -out ca.pem -days 30 -subj '/CN=fedco2 test CA' "
        "-addext keyUsage=critical,keyCertSign,cRLSign",
        f"openssl req {curve} -keyout server.key -out server.csr -subj {shlex.quote(f'/CN={host}')}",
        f"printf '%s\\n' {shlex.quote(names)} basicConstraints=CA:FALSE extendedKeyUsage=serverAuth "
        "authorityKeyIdentifier=keyid > server.ext",
        "openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out server.pem -days 30 "
        "-extfile server.ext",
    ]


def _format_supernode_command(client: int, clients: int, host: str, data: Path) -> str:
    config = commands.build_node_config(client, clients, STATE_DIR / str(client), data)
    address = f"{_bracket_ipv6(host)}:{SUPERLINK_PORT}"
    # two nodes of one host need two ports
    ca, key = CURRENT_DIR / commands.CA_FILE, CURRENT_DIR / f"node-{client}"
    words = commands.build_supernode_command(address, 9100 + client, config, ca, key, python="python")
    return shlex.join(words)


def _is_ip_address(host: str) -> bool:
    try:
        return bool(ip_address(host))
    except ValueError:
        return False


def _bracket_ipv6(host: str) -> str:
    return f"[{host}]" if ":" in host else host
