"""A real SuperLink and real SuperNodes on this machine: they come, are seen, are mended, and go without a trace."""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedco2[flower]'")

import small_experiments
from click.testing import CliRunner
from submitted_run import SubmittedRun, run_in_process

from cli.flower.deployment import down, status, up
from cli.main import main
from fedtrain.errors import TrainingError
from fedtrain.flower.deployment import local_deployment
from fedtrain.flower.deployment.commands import (
    SUPERLINK_MODULE,
    SUPERNODE_MODULE,
    build_node_config,
    build_supernode_command,
    format_node_config,
)
from fedtrain.flower.deployment.local_deployment import Deployment
from fedtrain.flower.deployment.multi_host import format_multi_host_guide
from fedtrain.flower.deployment.ports import LOOPBACK, find_free_ports
from fedtrain.flower.deployment.processes import spawn, terminate
from fedtrain.flower.deployment.state_file import ComponentState, DeploymentState, load_deployment_state
from fedtrain.flower.deployment.supervisor import Supervisor, find_deployment_processes
from fedtrain.flower.deployment.tls_certificates import create_certificates, create_node_key
from fedtrain.flower.environment import ANY_APP, CLIENT_APP_VARIABLE
from fedtrain.runs.experiment import build_experiment, plan_experiment
from fedtrain.runs.folder import RunFolder

PROJECT = """
[project]
name = "toy"
version = "1.0.0"
[tool.flwr.app]
publisher = "fedco2"
[tool.flwr.app.components]
serverapp = "toy:server"
clientapp = "toy:client"
[tool.flwr.app.config]
"""
TOY = """
import time
from pathlib import Path
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

server = ServerApp()
client = ClientApp()

@server.main()
def main(grid, context):
    content = RecordDict({"about": ConfigRecord({"x": 1})})
    grid.push_messages([Message(content, dst_node_id=node, message_type="train") for node in grid.get_node_ids()])
    time.sleep(120)

@client.train()
def train(message, context):
    folder = Path(context.node_config["state-dir"])
    folder.mkdir(parents=True)
    (folder / "busy").touch()
    time.sleep(120)  # deaf, for a signal waits until this is over
"""


@pytest.fixture
def deployment(tmp_path):
    made = Deployment(tmp_path / "two nodes")
    yield made
    made.down()


@pytest.fixture
def toy(tmp_path):
    app = tmp_path / "app"
    app.mkdir()
    (app / "pyproject.toml").write_text(PROJECT)
    (app / "toy.py").write_text(TOY)
    return app


def until(true, seconds=60.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.2)


def listeners(processes):
    """(address, port) of all that these processes listen on; addresses in hexadecimals, as the kernel has them."""
    inodes = set()
    for process in processes:
        for handle in Path(f"/proc/{process.pid}/fd").iterdir():
            inodes |= set(re.findall(r"socket:\[(\d+)\]", os.readlink(handle)))
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    places = [row[1].split(":") for row in rows if row[3] == "0A" and row[9] in inodes]
    return {(address, int(port, 16)) for address, port in places}


def command(which, folder, *words):
    done = CliRunner().invoke(which, [*words, "--dir", str(folder)], catch_exceptions=False)
    return done.exit_code, done.stdout


def test_a_life_in_the_clear(deployment, toy, monkeypatch):
    monkeypatch.setenv(CLIENT_APP_VARIABLE, ANY_APP)  # the toy comes with its run
    folder = deployment.folder
    online = f"2 nodes are online; fedco2 flower down --dir {folder} ends them\n"
    assert command(up, folder, "--clients", "2") == (0, online)
    deployed = load_deployment_state(folder)
    ports = {part.port for part in (deployed.superlink, *deployed.nodes)}
    assert len(ports) == 3
    assert listeners(find_deployment_processes(folder)) == {("0100007F", port) for port in ports}
    code, seen = command(status, folder, "--json")
    assert code == 0
    assert json.loads(seen)["well"] is True
    assert json.loads(seen)["runs"] == []

    run = deployment.control.submit(toy)
    busy = [folder / "nodes" / str(client) / "busy" for client in range(2)]
    until(lambda: all(path.exists() for path in busy))
    assert listeners(find_deployment_processes(folder)) == {("0100007F", port) for port in ports}
    assert deployment.control.get_run(run).status == "running"
    deployment.control.stop_run(run)
    assert deployment.control.get_run(run).status == "finished:stopped"
    with pytest.raises(TrainingError, match="flwr stop 1: "):
        deployment.control.stop_run("1")

    parts = Supervisor(folder, deployed)
    orphans = []
    for node in deployed.nodes:
        os.kill(node.pid, signal.SIGKILL)
        until(lambda node=node: not node.alive)
    for name in ("node-0", "node-1"):
        left = [
            process
            for process in parts.find_processes(name)
            if process.alive and b"warm_worker" in commandline(process)
        ]
        assert left, "the killed node left no worker behind"
        orphans.append(left)
    code, seen = command(status, folder)
    assert code == 1
    assert seen.count("not running") == 2

    deployment.restart_node(1)
    assert not any(process.alive for process in orphans[1])
    assert all(process.alive for process in orphans[0])
    first, second = deployment.status().nodes
    assert not first.alive
    assert second.alive
    assert second.online
    assert second.node_id != deployed.nodes[1].node_id

    code, ended = command(down, folder)
    assert code == 0
    assert int(ended.removesuffix(" processes ended\n")) >= 4  # SuperLink and helper, a node, and the orphan
    assert not find_deployment_processes(folder)
    assert not any(process.alive for process in orphans[0])
    for port in ports:
        with socket.socket() as asking:
            assert asking.connect_ex((LOOPBACK, port))  # nobody listens
    assert sorted(path.name for path in folder.iterdir()) == ["logs", "nodes"]
    assert busy[0].exists()
    assert command(down, folder) == (0, f"{folder}: nothing runs here\n")


def commandline(process):
    return Path(f"/proc/{process.pid}/cmdline").read_bytes()


def test_keys_and_certificates(deployment, tmp_path):
    images, labels = np.zeros((60, 32, 32, 3), np.uint8), np.arange(60, dtype=np.uint8) % 10
    images[:] = 20 * labels[:, None, None, None]
    np.savez(tmp_path / "cifar10.npz", x_train=images, y_train=labels, x_test=images[:20], y_test=labels[:20])
    data = tmp_path / "data"
    assert main(["data", "add", "cifar10", str(tmp_path / "cifar10.npz"), "--data-dir", str(data)]) == 0
    deployment.up(2, tls=True, data_dir=data)

    # a run over TLS has the bits of one process
    settings = {
        "data": {"source": "real", "clients": 2, "skew": "iid"},
        "model": {"name": "two-layer", "width": 8},
        "server": {"rounds": 2, "participation": 1.0},
        "evaluation": {"every": 2, "window": 0, "report": "last"},
        "machine": {"threads": 1, "device": "cpu"},
        "method": {"name": "fedbn"},
    }
    work = build_experiment(*plan_experiment("cifar10", settings, data))
    submitted = SubmittedRun(deployment, work, RunFolder(tmp_path / "run"), tmp_path / "app")
    assert submitted.over().is_completed
    assert small_experiments.different(run_in_process(work, tmp_path / "alone"), submitted.everything()) == []

    secrets = deployment.folder / "security"
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in secrets.iterdir()} == {0o600}
    before = deployment.status()
    assert before.is_healthy
    assert before.tls

    os.kill(before.pid, signal.SIGKILL)
    until(lambda: not load_deployment_state(deployment.folder).superlink.alive)
    assert not deployment.status().alive
    deployment.restart_superlink()  # it knows the keys still, and nodes come back as who they were
    until(lambda: deployment.control.list_nodes() == {node.node_id: "online" for node in before.nodes})

    # a node that does not know our CA keeps away
    other, log = tmp_path / "other", tmp_path / "log"
    other.mkdir()
    create_certificates(other)
    parts = Supervisor(deployment.folder, load_deployment_state(deployment.folder))
    config = build_node_config(0, 2, tmp_path / "state", None)
    words = build_supernode_command(parts.address, *find_free_ports(1), config, other / "ca.pem", secrets / "node-0")
    stranger = spawn([*words, "--max-retries", "1"], parts.build_component_environment("stranger"), log)
    until(lambda: not stranger.alive)
    assert "CERTIFICATE_VERIFY_FAILED" in log.read_text()
    assert "SuperNode ID" not in log.read_text()

    # one with a key that nobody registered is sent away
    for path in (secrets / "node-1", secrets / "node-1.pub"):
        path.unlink()
    create_node_key(secrets / "node-1")
    with pytest.raises(TrainingError, match=r"node-1 did not come online: \[code: 2004\] .*; see .*node-1\.log"):
        deployment.restart_node(1, patience=0)
    assert "Exit Code: 305" in (deployment.folder / "logs" / "node-1.log").read_text()
    first, second = deployment.status().nodes
    assert first.online
    assert not second.alive


def test_a_start_that_fails_leaves_nothing(deployment, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = [taken.getsockname()[1], *find_free_ports(1)]
        monkeypatch.setattr(local_deployment, "find_free_ports", lambda count: ports)
        with pytest.raises(TrainingError, match=r"superlink did not start: .*address already in use.*superlink\.log"):
            deployment.up(1)
    assert not find_deployment_processes(deployment.folder)
    assert [path.name for path in deployment.folder.iterdir()] == ["logs"]


def test_flower_reads_what_we_spell():
    from flwr.common.config import parse_config_args

    config = {"a": 3, "plain": "/a/b", "spaces": "/a b/c d.toml", "rest": "\"quotes\" 'too' \\ \n é 😀 \x7f k=v"}
    assert parse_config_args([format_node_config(config)]) == config


@pytest.mark.parametrize("program", [f"python -P -m {SUPERLINK_MODULE}", f"python -P -m {SUPERNODE_MODULE}"])
def test_flower_knows_the_options_of_several_hosts(program, deployment):
    lines = format_multi_host_guide(1, "example.org").splitlines()
    options = re.findall(r" (--[a-z-]+)", next(line for line in lines if line.startswith(program)))
    told = Supervisor(
        deployment.folder, DeploymentState("", False, 1, None, ComponentState(1))
    ).build_component_environment("help")
    known = subprocess.run(
        [*program.split(), "--help"], env=told, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert options
    assert not [option for option in options if not re.search(rf"^  {option}\b", known, re.MULTILINE)]
    assert terminate(find_deployment_processes(deployment.folder)) == 0
