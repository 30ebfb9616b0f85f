"""What a deployment writes, refuses and ends, as far as it takes no Flower to tell."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError
from itertools import pairwise
from pathlib import Path

import pytest

from fedtrain.flower import environment as surroundings
from fedtrain.flower.deployment.commands import (
    SUPERNODE_MODULE,
    build_node_config,
    build_superlink_command,
    build_supernode_command,
    format_node_config,
)
from fedtrain.flower.deployment.local_deployment import Deployment
from fedtrain.flower.deployment.logs import find_exit_reason, find_node_id, read_log
from fedtrain.flower.deployment.multi_host import format_multi_host_guide
from fedtrain.flower.deployment.ports import LOOPBACK, find_free_ports
from fedtrain.flower.deployment.processes import (
    Process,
    find_by_environment,
    find_descendants,
    spawn,
    terminate,
)
from fedtrain.flower.deployment.state_file import (
    STATE_FILE,
    ComponentState,
    DeploymentState,
    load_deployment_state,
)
from fedtrain.flower.deployment.superlink_control import write_connection
from fedtrain.flower.deployment.supervisor import DEPLOYMENT_VARIABLE
from fedtrain.flower.environment import build_environment, require_flower
from fedtrain.utils.locks import exclusive_lock
from theory.errors import InputError

needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="this system has no /proc")
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
)


@pytest.fixture
def some():
    parts = [ComponentState(20_001 + k, Process(40 + k, 7), 100 * k, str(2**63 + k)) for k in range(2)]
    return DeploymentState("1.41.0", True, 1, "/some data", ComponentState(20_000, Process(39, 6)), parts)


@pytest.fixture
def version(monkeypatch):
    def set_to(found):
        def look(name):
            assert name == "flwr"
            if found is None:
                raise PackageNotFoundError(name)
            return found

        monkeypatch.setattr(surroundings, "version", look)

    set_to("1.41.0")
    return set_to


@contextmanager
def running(*command, **more):
    with subprocess.Popen(command, stdout=subprocess.PIPE, **more) as process:
        try:
            yield process
        finally:
            process.kill()


def found(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return Process(pid, int(fields[19]))


# --- deployment.json


def test_what_was_written_is_read(tmp_path, some):
    some.write(tmp_path)
    assert load_deployment_state(tmp_path) == some
    assert [path.name for path in tmp_path.iterdir()] == [STATE_FILE]


def test_a_part_that_was_not_started_has_no_process(tmp_path, some):
    some.nodes[1] = ComponentState(20_002)
    some.write(tmp_path)
    assert load_deployment_state(tmp_path).nodes[1] == ComponentState(20_002)
    assert not load_deployment_state(tmp_path).nodes[1].alive


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "fedco2 deployment 1"}', '{"format": "other 3"}', "{"])
def test_a_damaged_file_is_refused_with_the_way_out(tmp_path, text):
    (tmp_path / STATE_FILE).write_text(text)
    with pytest.raises(InputError, match=r"deployment\.json: damaged .*; delete it, then fedco2 flower down"):
        load_deployment_state(tmp_path)


def test_no_deployment_is_said_with_the_way_out(tmp_path):
    with pytest.raises(InputError, match="no deployment is here; start one with fedco2 flower up"):
        Deployment(tmp_path).status()


# --- what is refused


def test_up_twice_is_refused(tmp_path, some, version):
    some.write(tmp_path)
    with pytest.raises(InputError, match="a deployment is here already; end it with fedco2 flower down"):
        Deployment(tmp_path).up(2)
    assert load_deployment_state(tmp_path) == some


@pytest.mark.parametrize("name", ["superlink.db", "security", "flower"])
def test_nothing_is_overwritten(tmp_path, version, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(InputError, match="is there already and is not overwritten; choose another folder"):
        Deployment(tmp_path).up(2)
    assert (tmp_path / name).read_text() == "mine"
    assert not (tmp_path / STATE_FILE).exists()


def test_a_folder_of_data_that_is_not_there(tmp_path, version):
    with pytest.raises(InputError, match="no such folder; name that of all data"):
        Deployment(tmp_path / "new").up(2, data_dir=tmp_path / "nowhere")
    assert not (tmp_path / "new").exists()


def test_one_at_a_time(tmp_path, version):
    with exclusive_lock(tmp_path), pytest.raises(InputError, match="another process starts or ends something here"):
        Deployment(tmp_path).down()
    assert Deployment(tmp_path).down() == 0


def test_without_flower_the_way_to_it_is_told(tmp_path, version):
    version(None)
    with pytest.raises(InputError, match=r"Flower is not installed; pip install .* -e '\.\[flower\]' in the folder"):
        Deployment(tmp_path).up(2)


@pytest.mark.parametrize(
    ("number", "good"), [("1.41.0", True), ("1.42.3", True), ("1.40.9", False), ("1.43.0", False), ("2.41", False)]
)
def test_versions(version, number, good):
    version(number)
    if good:
        assert require_flower() == number
    else:
        with pytest.raises(InputError, match=r"fedco2 wants >=1\.41,<1\.43"):
            require_flower()


# --- what Flower's processes are told


def test_the_environment_is_quiet_unless_the_user_says_otherwise(tmp_path, monkeypatch):
    for name in (*surroundings.DEFAULT_VARIABLES, "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    told = build_environment(tmp_path)
    assert surroundings.DEFAULT_VARIABLES.items() <= told.items()
    assert told["FLWR_TELEMETRY_ENABLED"] == "0"
    assert told["FLWR_HOME"] == str(tmp_path)
    assert told["PATH"].split(os.pathsep)[0] == os.path.dirname(sys.executable)
    assert told["no_proxy"] == told["NO_PROXY"] == "127.0.0.1,localhost"
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "1")
    monkeypatch.setenv("NO_PROXY", "example.org")
    told = build_environment(tmp_path)
    assert told["FLWR_TELEMETRY_ENABLED"] == "1"
    assert told["NO_PROXY"] == "example.org,127.0.0.1,localhost"
    assert told["FLWR_DISABLE_UPDATE_CHECK"] == "1"


def test_values_are_spelt_for_flower(tmp_path):
    config = build_node_config(3, 4, tmp_path / "a b", None)
    assert config == f'partition-id=3 num-partitions=4 state-dir="{tmp_path}/a b"'
    assert build_node_config(3, 4, tmp_path, tmp_path / "d").endswith(f' data-dir="{tmp_path}/d"')
    assert format_node_config({"x": 'say "é" \\ \n'}) == 'x="say \\u0022é\\u0022 \\\\ \\n"'


def test_all_listen_on_this_machine_alone(tmp_path):
    for secrets in (None, tmp_path):
        for words in (
            build_superlink_command(20_000, tmp_path / "db", secrets),
            build_supernode_command("127.0.0.1:20000", 20_001, "", secrets, secrets),
        ):
            assert words[words.index("--host") + 1] == "127.0.0.1"
            assert ("--insecure" in words) == (secrets is None)


def test_the_connection_is_a_file_that_flwr_reads(tmp_path):
    write_connection(tmp_path / "home", "127.0.0.1:20000", None)
    assert 'address = "127.0.0.1:20000"\ninsecure = true' in (tmp_path / "home" / "config.toml").read_text()
    write_connection(tmp_path / "home", "127.0.0.1:20000", tmp_path / "ca.pem")
    text = (tmp_path / "home" / "config.toml").read_text()
    assert f'root-certificates = "{tmp_path}/ca.pem"' in text
    assert "insecure" not in text


def test_several_hosts():
    text = format_multi_host_guide(3, "10.0.0.7", threads=2)
    nodes = [shlex.split(line) for line in text.splitlines() if SUPERNODE_MODULE in line]
    assert len(nodes) == 3
    for client, words in enumerate(nodes):
        after = dict(pairwise(words))
        assert after["--superlink"] == "10.0.0.7:8000"
        assert after["--auth-supernode-private-key"] == f"node-{client}"
        assert after["--host"] == "127.0.0.1"
        assert f'partition-id={client} num-partitions=3 state-dir="/var/lib/fedco2/{client}"' in after["--node-config"]
        assert f"flwr supernode register node-{client}.pub fedco2" in text
    assert "--enable-supernode-auth" in text
    assert "--insecure" not in text
    assert "subjectAltName=IP:10.0.0.7,DNS:localhost,IP:127.0.0.1" in text
    assert "FLWR_TELEMETRY_ENABLED=0" in text
    assert "OMP_NUM_THREADS=2" in text
    assert "fedco2 flower run --dataset cifar10 --clients 3 --data real" in text
    assert "fedco2 flower run --dataset office --data real" in format_multi_host_guide(4, "host.example.org")
    for wrong in ("a,b", "https://x:9092", "", "-x"):
        with pytest.raises(InputError, match="no name or address of one host"):
            format_multi_host_guide(3, wrong)


# --- logs and ports


def test_logs_tell_who_and_why(tmp_path):
    log = tmp_path / "x.log"
    assert read_log(log, 0) == ""
    log.write_bytes(b"before\n\x1b[92mINFO \x1b[0m: SuperNode ID: 784\nTypeError: no\n[code: 2004] Failed.\nall done\n")
    said = read_log(log, 7)
    assert said.startswith("INFO : SuperNode ID: 784\n")
    assert find_node_id(said) == "784"
    assert find_node_id("Starting") is None
    assert find_exit_reason(said) == "[code: 2004] Failed."
    assert find_exit_reason("one\ntwo\n\n") == "two"
    assert find_exit_reason("") == "it said nothing"


def test_ports_are_free_and_differ():
    ports = find_free_ports(20)
    assert len(set(ports)) == 20
    for port in ports:
        with socket.create_server((LOOPBACK, port)):  # nobody else has it
            pass


# --- processes


@needs_proc
def test_a_recycled_process_id_is_not_touched():
    with running("sleep", "60") as stranger:
        now = found(stranger.pid)
        before = Process(now.pid, now.started - 1)
        assert now.alive
        assert not before.alive
        before.signal(signal.SIGKILL)
        assert terminate([before], patience=0.1) == 0
        time.sleep(0.2)
        assert stranger.poll() is None


@needs_proc
def test_down_leaves_a_recycled_process_id_alone(tmp_path, some):
    with running("sleep", "60") as stranger:
        now = found(stranger.pid)
        for part in (some.superlink, *some.nodes):
            part.process = Process(now.pid, now.started - 1)
        some.write(tmp_path)
        (tmp_path / "nodes").mkdir()
        (tmp_path / "superlink.db-wal").touch()
        assert Deployment(tmp_path).down() == 0
        assert stranger.poll() is None
    assert [path.name for path in tmp_path.iterdir()] == ["nodes"]
    assert Deployment(tmp_path).down() == 0


@needs_proc
def test_who_does_not_listen_is_made_to_end():
    with running(sys.executable, "-c", STUBBORN) as deaf:
        deaf.stdout.readline()
        process = found(deaf.pid)
        assert terminate([process], patience=0.3) == 1
        assert not process.alive


@needs_proc
def test_the_family_is_found_and_the_orphans_by_their_mark(tmp_path):
    folder = Deployment(tmp_path / "a folder").folder
    told = os.environ | {DEPLOYMENT_VARIABLE: str(folder)}
    with running("sh", "-c", "sleep 60 & echo $!; wait", env=told) as parent, running("sleep", "60") as stranger:
        child = found(int(parent.stdout.readline()))
        assert find_descendants([found(parent.pid)]) == {child}
        assert find_by_environment({DEPLOYMENT_VARIABLE: str(folder)}) == {child, found(parent.pid)}
        assert not find_by_environment({DEPLOYMENT_VARIABLE: str(folder), "FEDCO2_PART": "node-1"})
        parent.kill()
        parent.wait()
        assert child.alive
        assert Deployment(folder).down() == 1  # its folder is gone, its file too: the mark is enough
        assert not child.alive
        assert stranger.poll() is None


@needs_proc
def test_what_is_started_appends_to_its_log_and_is_nobodys_child_to_wait_for(tmp_path):
    log = tmp_path / "log"
    log.write_text("old\n")
    process = spawn(["sh", "-c", "echo new; echo bad >&2; exec sleep 60"], os.environ, log)
    try:
        assert process == found(process.pid)
        assert os.getsid(process.pid) == process.pid
        until = time.monotonic() + 10
        while log.read_text() != "old\nnew\nbad\n" and time.monotonic() < until:
            time.sleep(0.02)
        assert log.read_text() == "old\nnew\nbad\n"
    finally:
        assert terminate([process]) == 1
    assert not process.alive
    assert not os.path.exists(f"/proc/{process.pid}"), "a zombie is left"


def test_a_program_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="there is no program flower-nothing"):
        spawn(["flower-nothing"], os.environ, tmp_path / "log")


def test_deployment_json_is_json(tmp_path, some):
    some.write(tmp_path)
    table = json.loads((tmp_path / STATE_FILE).read_text())
    assert table["format"] == "fedco2 deployment 1"
    assert table["nodes"][0]["process"] == {"pid": 40, "started": 7}
