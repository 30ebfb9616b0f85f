"""Runs on a real deployment: the bits of one process for every method, and what happens when parts of it are killed."""

from __future__ import annotations

import signal
import time

import pytest
import small

from fedtrain.cupboard import Cupboard, folder_name
from fedtrain.folder import METRICS, Folder
from fedtrain.methods import METHODS
from fedtrain.run import run

pytest.importorskip("flwr", reason="Flower is not installed: make test-all")

from fedtrain.flower.app import write_app
from fedtrain.flower.conduct import Plan
from fedtrain.flower.deployed import read
from fedtrain.flower.deployment import Deployment
from fedtrain.flower.processes import descendants

pytestmark = pytest.mark.minutes
CLIENTS, LIMIT = 5, 400.0
"""Clients, and the seconds that a run may take on a busy machine."""


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    made = Deployment(tmp_path_factory.mktemp("deployment"))
    made.up(CLIENTS)
    yield made
    made.down()


class Started:
    """A run that was submitted."""

    def __init__(self, deployment, work, folder, app, *, least=CLIENTS, patience=LIMIT):
        self.deployment, self.work, self.folder = deployment, work, folder
        plan = Plan(work.config, folder, CLIENTS, least, patience, "test")
        app.mkdir(parents=True)
        write_app(app, plan, deployment.folder / "logs" / f"{app.name}.log")
        self.id = deployment.control.submit(app)

    def until(self, condition):
        """Wait for something to happen."""
        end = time.monotonic() + LIMIT
        while not condition():
            assert time.monotonic() < end, "it did not happen in time"
            time.sleep(0.2)

    def completed(self):
        """Wait for the end, and for Flower to say so."""
        end = time.monotonic() + LIMIT
        while not (state := self.deployment.control.run_state(self.id)).over:
            assert time.monotonic() < end, state
            time.sleep(2)
        return state

    def everything(self):
        """What must agree; what clients keep is on their nodes."""
        state, bench = self.folder.restore(), self.work.bench()
        own = {}
        for place, client in enumerate(self.work.federation.clients):
            nodes = self.deployment.folder / "nodes" / str(place) / folder_name(str(self.folder.path))
            own[client.name] = small.bits(state.own(client.name, Cupboard(nodes), bench.start))
        return {
            "metrics": (self.folder.path / METRICS).read_bytes(),
            "shared": small.bits(state.message.shared),
            "heads": [(name, small.bits(head)) for name, head in state.message.peers.items()],
            "own": own,
            "ledger": state.ledger,
            "round": state.message.round,
            "skipped": state.skipped,
        }


@pytest.fixture
def start(deployment, tmp_path):
    numbers = iter(range(99))

    def started(case, folder=None, *, least=CLIENTS, patience=LIMIT, **changes):
        number = next(numbers)
        work = small.experiment(case, **changes)
        folder = folder or Folder(tmp_path / f"run {number}")
        return Started(deployment, work, folder, tmp_path / f"app {number}", least=least, patience=patience)

    return started


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """The same in one process."""
    monkeypatch.setattr("fedtrain.run.draw_figures", lambda folder, summary: [])
    numbers = iter(range(99))

    def made(work):
        folder = Folder(tmp_path / f"alone {next(numbers)}")
        folder.begin(work.config, {})
        run(work, folder, small.quiet)
        return small.everything(work, folder)

    return made


def test_real_nodes_give_the_bits_of_one_process(start, alone):
    """All nine methods, a part of the clients in each round, clients of unequal sizes."""
    for method in METHODS:
        started = start("fedco2 both" if method == "fedco2" else f"{method} some", server={"rounds": 2})
        assert started.completed().completed, method
        assert small.different(alone(started.work), started.everything()) == [], method


def computing(deployment, place):
    """Whether a node's app is at work."""
    process = read(deployment.folder).nodes[place].process
    return len(descendants([process])) > 1  # its helper, and the app


def test_a_node_that_is_killed_in_mid_round_and_started_again(start, alone, deployment):
    started = start("fedco2 all")
    started.until(lambda: started.folder.round_reached() >= 1 or started.folder.holds_a_run)
    started.until(lambda: computing(deployment, 2))
    read(deployment.folder).nodes[2].process.signal(signal.SIGKILL)
    deployment.restart_node(2)
    assert started.completed().completed
    assert small.different(alone(started.work), started.everything()) == []


def test_a_superlink_and_its_server_that_are_killed_and_a_run_that_goes_on(start, alone, deployment):
    started = start("fedbn all", server={"rounds": 6}, evaluation={"every": 6})
    started.until(lambda: started.folder.holds_a_run and started.folder.round_reached() >= 1)
    link = read(deployment.folder).superlink.process
    for process in [link, *descendants([link])]:
        process.signal(signal.SIGKILL)
    reached = started.folder.round_reached()
    assert not started.folder.finished
    deployment.restart_superlink()
    again = start("fedbn all", started.folder, server={"rounds": 6}, evaluation={"every": 6})
    assert again.completed().completed
    assert again.folder.read_json("manifest.json")["resumed"][0]["round"] >= reached
    assert small.different(alone(again.work), again.everything()) == []


def test_a_client_that_never_answers(start, deployment):
    started = start("fedavg all", least=4, patience=30.0)
    started.until(lambda: started.folder.holds_a_run)
    node = read(deployment.folder).nodes[4].process
    for process in [node, *descendants([node])]:
        process.signal(signal.SIGKILL)
    assert started.completed().completed
    skipped = started.folder.read_json("summary.json")["skipped"]
    assert {one["client"] for one in skipped} == {"mnist_m"}
    assert "no answer within 30 s" in skipped[-1]["reason"]
    deployment.restart_node(4)
