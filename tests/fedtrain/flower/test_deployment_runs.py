"""Runs on a real deployment: the bits of one process for every method, and what happens when parts of it are killed."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import small_experiments

from fedtrain.runs.folder import RunFolder

pytest.importorskip("flwr", reason="Flower is not installed: make test-all")

import submitted_run
from submitted_run import SubmittedRun

from fedtrain.flower.deployment.local_deployment import Deployment
from fedtrain.flower.deployment.processes import find_descendants
from fedtrain.flower.deployment.state_file import load_deployment_state
from fedtrain.flower.environment import ANY_APP, CLIENT_APP_VARIABLE

pytestmark = pytest.mark.minutes
CLIENTS = 5
LIAR = """
import torch
from flwr.clientapp import ClientApp
from fedtrain.flower.client_app import describe_client, run_client_round
from fedtrain.flower.records import build_record, parse_record

app = ClientApp()
app.query()(describe_client)

@app.train()
def lie(message, context):
    reply = run_client_round(message, context)
    note, entries = parse_record(reply.content)
    if context.node_config["partition-id"] == 1 and note["answers"]:
        name = next(key for key in entries if key.startswith("0/shared"))
        entries[name] = {lie}
        reply.content = build_record(note, entries)
    return reply
"""

DYING = """
import os
import signal
from pathlib import Path
from flwr.clientapp import ClientApp
from fedtrain.flower.client_app import describe_client, run_client_round

app = ClientApp()
app.query()(describe_client)

def die_once(client):
    mark = Path({folder!r}) / str(client)
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)

@app.train()
def die(message, context):
    client = context.node_config["partition-id"]
    if client == 3:
        die_once(client)
    reply = run_client_round(message, context)
    if client == 1:
        die_once(client)
    return reply
"""
"""Killed in its first turn: before client 3 has done anything, when client 1 has written down what is its own."""


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    made = Deployment(tmp_path_factory.mktemp("deployment"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CLIENT_APP_VARIABLE, ANY_APP)  # apps that die and lie come with their runs
        made.up(CLIENTS)
        yield made
        made.down()


@pytest.fixture
def start(deployment, tmp_path):
    numbers = iter(range(99))

    def started(case, folder=None, *, least=CLIENTS, patience=submitted_run.LIMIT, clientapp=None, **changes):
        number = next(numbers)
        work, folder = small_experiments.experiment(case, **changes), folder or RunFolder(tmp_path / f"run {number}")
        app = tmp_path / f"app {number}"
        return SubmittedRun(deployment, work, folder, app, least=least, patience=patience, clientapp=clientapp)

    return started


@pytest.fixture
def alone(tmp_path):
    """The same in one process."""
    numbers = iter(range(99))
    return lambda work: submitted_run.run_in_process(work, tmp_path / f"alone {next(numbers)}")


def test_real_nodes_give_the_bits_of_one_process(start, alone):
    """The paper's methods and three that look at data in other ways, some clients in each round, of unequal sizes.

    And heads that learn.
    """
    cases = [
        f"{method} some"
        for method in (*small_experiments.PAPER, "scaffold", "knnper", "fedproto")
        if method != "fedco2"
    ]
    for case in [*cases, "fedco2 both", *small_experiments.HEADS]:
        started = start(case, server={"rounds": 2})
        assert started.over().is_completed, case
        assert small_experiments.different(alone(started.work), started.everything()) == [], case


def computing(deployment, place):
    """Whether a node is at a turn: it says what it receives and sends."""
    told = (deployment.folder / "logs" / f"node-{place}.log").read_text()
    return told.count("Receiving: train message") > told.count("Sending: train message")


def read_command(process):
    """Nothing, if it is over."""
    try:
        return Path(f"/proc/{process.pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_node_that_is_killed_in_mid_round_and_started_again(start, alone, deployment):
    started = start("fedco2 all")
    started.until(lambda: started.folder.read_last_saved_round() >= 1 or started.folder.has_run)
    started.until(lambda: computing(deployment, 2))
    load_deployment_state(deployment.folder).nodes[2].process.signal(signal.SIGKILL)
    deployment.restart_node(2)
    assert started.over().is_completed
    assert small_experiments.different(alone(started.work), started.everything()) == []


def test_apps_that_are_killed_in_their_turns(start, alone, tmp_path):
    """Their nodes are told at once, and the turns are taken again."""
    marks = tmp_path / "marks"
    marks.mkdir()
    started = start("fedbn all", clientapp=DYING.format(folder=str(marks)), server={"rounds": 2})
    assert started.over().is_completed
    assert {path.name for path in marks.iterdir()} == {"1", "3"}
    told = started.log_of(started.app).read_text()
    for client in ("svhn", "synthdigits"):
        assert f"client {client}: its turn is taken again, for ClientApp stopped responding. (1 of 3)" in told
    assert "(2 of 3)" not in told
    assert small_experiments.different(alone(started.work), started.everything()) == []


def test_an_app_that_is_killed_at_any_time(start, alone, deployment):
    """While it starts, in its turn or after it: a node starts it again, the turn is taken again, or nothing is."""
    started = start("fedbn all", server={"rounds": 2})
    started.until(lambda: started.folder.has_run)
    started.until(lambda: computing(deployment, 3))
    node = load_deployment_state(deployment.folder).nodes[3].process
    for process in find_descendants([node]):
        if b"warm_worker" in read_command(process):
            process.signal(signal.SIGKILL)
    assert started.over().is_completed
    assert small_experiments.different(alone(started.work), started.everything()) == []


def test_a_run_that_is_stopped_does_not_go_on_into_the_next(start, alone, deployment):
    stopped = start("fedco2 all", server={"rounds": 50})
    stopped.until(lambda: stopped.folder.has_run)
    stopped.until(lambda: computing(deployment, 0))
    deployment.control.stop_run(stopped.id)
    after = start("fedbn all", server={"rounds": 2})
    assert after.over().is_completed
    assert small_experiments.different(alone(after.work), after.everything()) == []
    reached = stopped.folder.read_last_saved_round()
    assert not stopped.folder.is_finished
    assert deployment.control.get_run(stopped.id).status == "finished:stopped"
    assert reached < 50
    assert stopped.folder.read_last_saved_round() == reached


def test_a_superlink_and_its_server_that_are_killed_and_a_run_that_goes_on(start, alone, deployment):
    started = start("fedbn all", server={"rounds": 5}, evaluation={"every": 5})
    started.until(lambda: started.folder.has_run and started.folder.read_last_saved_round() >= 1)
    link = load_deployment_state(deployment.folder).superlink.process
    for process in [link, *find_descendants([link])]:
        process.signal(signal.SIGKILL)
    reached = started.folder.read_last_saved_round()
    assert not started.folder.is_finished
    deployment.restart_superlink()
    again = start("fedbn all", started.folder, server={"rounds": 5}, evaluation={"every": 5})
    assert again.over().is_completed
    assert again.folder.read_json("manifest.json")["resumed"][0]["round"] >= reached
    assert small_experiments.different(alone(again.work), again.everything()) == []


def test_a_client_that_never_answers(start, deployment):
    started = start("fedavg all", least=4, patience=30.0)
    started.until(lambda: started.folder.has_run)
    node = load_deployment_state(deployment.folder).nodes[4].process
    for process in [node, *find_descendants([node])]:
        process.signal(signal.SIGKILL)
    assert started.over().is_completed
    skipped = started.folder.read_json("summary.json")["skipped"]
    assert {one["client"] for one in skipped} == {"mnist_m"}
    assert "no answer within 30 s" in skipped[-1]["reason"]
    deployment.restart_node(4)


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        ("entries[name] * torch.nan", "is not finite"),
        ("entries[name].reshape(-1)[:1]", "is torch.float32 (1,), not"),
    ],
    ids=["nan", "shape"],
)
def test_a_reply_that_would_spoil_the_mean(lie, words, start):
    """Refused and named: the run stops, or goes on without that client."""
    app = LIAR.replace("{lie}", lie)
    stopped = start("fedbn all", clientapp=app).over()
    assert not stopped.is_completed
    assert "client svhn, round 1: refused, " in stopped.details
    assert words in stopped.details
    skipping = start("fedbn all", clientapp=app, server={"on_client_failure": "skip", "rounds": 2})
    assert skipping.over().is_completed
    skipped = skipping.folder.read_json("summary.json")["skipped"]
    assert [(one["round"], one["client"]) for one in skipped] == [(1, "svhn"), (2, "svhn")]
    assert words in skipped[0]["reason"]
