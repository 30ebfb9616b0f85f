"""Two sites and a server on hosts of their own: addresses, certificates and keys, and a cable that is cut in a round.

The hosts are network namespaces of this machine: what one listens on, another reaches by the cable alone.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make test-all")

import namespaces
import small_experiments
from namespaces import SERVER, Network
from submitted_run import LIMIT, run_in_process

from fedtrain.flower.deployment.commands import build_superlink_command
from fedtrain.flower.deployment.multi_host import SUPERLINK_PORT, format_multi_host_guide
from fedtrain.flower.deployment.superlink_control import CONNECTION_NAME, write_connection
from fedtrain.flower.deployment.tls_certificates import create_node_key
from fedtrain.flower.environment import build_environment
from fedtrain.runs.client_state import ClientStateStore, make_folder_name
from fedtrain.runs.experiment import build_experiment, plan_experiment
from fedtrain.runs.folder import RunFolder

SITES = ("basel", "lund")
COLUMNS = ("age", "pressure", "pulse")
SETTINGS = {
    "data": {"target": "ill", "split_column": "part"},
    "method": {"name": "fedco2"},
    "server": {"rounds": 4},
    "evaluation": {"every": 1},
    "local": {"epochs": 60, "batch_size": 8},
    "machine": {"threads": 1, "device": "cpu"},
}
SHORT_CUT = 8.0
"""Seconds that nobody notices: a node says that it is there every thirty, and is missed after sixty."""


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    if reason := namespaces.why_not():
        pytest.skip(reason)
    with Network(SITES, tmp_path_factory.mktemp("hosts")) as made:
        yield made


def write_table(path, names, *, named=False):
    """The patients of a hospital, or of several, and then with a column that says of which."""
    with path.open("w") as file:
        file.write(",".join([*["hospital"] * named, "part", *COLUMNS, "ill"]) + "\n")
        for name in names:
            rng = np.random.default_rng(len(name))
            for row in range(60):
                values = rng.normal(size=len(COLUMNS)).round(3)
                part, ill = ("test" if row % 3 == 0 else "train"), ("yes" if values.sum() > 0 else "no")
                file.write(",".join([*[name] * named, part, *map(str, values), ill]) + "\n")


def until(true, what, log=None):
    end = time.monotonic() + LIMIT
    while not true():
        assert time.monotonic() < end, f"it takes too long until {what}"
        assert log is None or "the run has ended" not in read(log), read(log)
        time.sleep(0.1)


def read(log):
    return log.read_text(errors="replace") if log.exists() else ""


class Hosts:
    """A server that knows the keys of two sites, and the sites' nodes, each where its data are."""

    def __init__(self, network, folder):
        self.network, self.folder = network, folder
        self.run_folder = RunFolder(folder / "server" / "run")
        for name in network.hosts:
            (folder / name).mkdir(parents=True)
        self.address = f"{network.hosts[SERVER]}:{SUPERLINK_PORT}"

    def environment(self, name):
        quiet = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "environ", quiet)
            return build_environment(self.folder / name / "flower")

    def make_certificates(self):
        """As the printed commands for several hosts have it, for the address of the server's host."""
        guide = format_multi_host_guide(2, self.network.hosts[SERVER]).splitlines()
        begin = next(number for number, line in enumerate(guide) if line.startswith("# ") and "a test CA" in line)
        script = "\n".join(guide[begin + 1 : guide.index("", begin)])
        assert script.count("openssl") == 3
        subprocess.run(["sh", "-e"], input=script, text=True, cwd=self.folder / SERVER, check=True, capture_output=True)

    def start_server(self):
        here = self.folder / SERVER
        command = build_superlink_command(SUPERLINK_PORT, here / "superlink.db", here, host="0.0.0.0")
        self.network.start(SERVER, command, self.environment(SERVER), here / "log")
        until(lambda: "Uvicorn running on" in read(here / "log"), "the SuperLink listens")
        write_connection(here / "flower", self.address, here / "ca.pem")

    def register(self, name):
        create_node_key(self.folder / name / "key")
        answer = self.flwr("supernode", "register", self.folder / name / "key.pub", CONNECTION_NAME)
        assert '"success": true' in answer.stdout, answer

    def flwr(self, *words):
        return self.network.run(SERVER, ["flwr", *words, "--format", "json"], self.environment(SERVER))

    def start_site(self, name, *more):
        """What is typed on the machine of a site; only the CA's certificate came from elsewhere."""
        here = self.folder / name
        words = [sys.executable, "-P", "-m", "cli", "flower", "node", "--name", name]
        words += ["--data", here / "patients.csv", "--state", here / "state", "--superlink", self.address]
        words += ["--ca", self.folder / SERVER / "ca.pem", "--key", here / "key", *more]
        return self.network.start(name, words, self.environment(name), here / "log")

    def submit(self, settings):
        """Say what to train on the server's host, and run it there."""
        app, told = self.folder / SERVER / "app", []
        for section, values in settings.items():
            told += [word for key, value in values.items() for word in ("--set", f"{section}.{key}={value}")]
        words = [sys.executable, "-P", "-m", "cli", "flower", "run", "--dataset", "sites", "--clients", "2"]
        words += [*told, "--out", self.run_folder.path, "--write-app", app]
        written = self.network.run(SERVER, words, self.environment(SERVER))
        assert written.returncode == 0, written
        assert '"success": true' in self.flwr("run", app, CONNECTION_NAME).stdout

    @property
    def log(self):
        """Where the server says how the run goes."""
        return self.run_folder.path.with_name("run.log")

    def until(self, true, what):
        """Wait for something to happen in the run."""
        until(true, what, self.log)

    def count_rounds(self):
        """That were made."""
        return len(re.findall(r"^round ", read(self.log), re.MULTILINE))

    def is_at_work(self, name):
        """Whether a site is at a turn."""
        said = read(self.folder / name / "log")
        return said.count("Receiving: train message") > said.count("Sending: train message")


@pytest.mark.minutes
def test_sites_on_hosts_of_their_own_and_a_cable_that_is_cut(network, tmp_path):
    """The bits of one process that holds the tables of both sites."""
    hosts = Hosts(network, tmp_path)
    hosts.make_certificates()
    hosts.start_server()
    for name in SITES:
        write_table(tmp_path / name / "patients.csv", [name])
        hosts.register(name)
        hosts.start_site(name)
    hosts.submit(SETTINGS)

    hosts.until(lambda: hosts.count_rounds() >= 1 and hosts.is_at_work("basel"), "basel trains")
    network.cut("basel")
    time.sleep(SHORT_CUT)
    network.mend("basel")
    reached = hosts.count_rounds()
    hosts.until(lambda: hosts.count_rounds() > reached and hosts.is_at_work("lund"), "lund trains")
    network.cut("lund")
    hosts.until(lambda: "lund (away)" in read(hosts.log), "lund is missed")
    assert "basel (away)" not in read(hosts.log)
    reached = hosts.count_rounds()
    network.mend("lund")
    hosts.until(lambda: hosts.run_folder.is_finished, "the run is over")
    assert hosts.count_rounds() > reached

    write_table(tmp_path / "all.csv", SITES, named=True)
    data = {**SETTINGS["data"], "dataset": str(tmp_path / "all.csv"), "client_column": "hospital"}
    work = build_experiment(*plan_experiment("found", {**SETTINGS, "data": data}))
    alone = run_in_process(work, tmp_path / "alone")
    make = work.build_client_trainer().initial_client_state

    def own(state, name):
        kept = tmp_path / name / "state" / make_folder_name(str(hosts.run_folder.path))
        return state.load_client_state(name, ClientStateStore(kept), make)

    found = small_experiments.agreeing(hosts.run_folder, SITES, own)
    assert small_experiments.different(alone, found) == []
