"""A worker that outlives messages: it takes turn after turn, and its node is told when it dies."""

import io
import socket
import sys
import time
import zipfile
from itertools import count
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make test-all")

from flwr.app import Message, RecordDict
from flwr.clientapp.client_app import LoadClientAppError
from flwr.common.constant import ErrorCode, Status, SubStatus
from flwr.supercore.constant import TaskType
from flwr.supercore.corestate import sql_corestate
from flwr.supercore.fab import Fab
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode import start_client_internal
from flwr.supernode.nodestate import nodestate_factory

from fedtrain.flower import client_app
from fedtrain.flower.deployment import patient_superlink, patient_supernode, warm_worker, worker_keeper
from fedtrain.flower.deployment.warm_worker import Turn
from fedtrain.flower.deployment.worker_keeper import WorkerKeeper
from fedtrain.flower.environment import ANY_APP, CLIENT_APP_VARIABLE, OWN_CLIENT_APP

STUB = """
import json, os, signal, socket, sys
with socket.socket(fileno=int(sys.argv[1])) as channel, channel.makefile("r") as lines:
    for line in lines:
        what = json.loads(line)["token"]
        if what == "deaf":
            os._exit(1)
        channel.sendall(b"t")
        if what == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if what != "goes on":
            channel.sendall(b"d")
        if what == "last":
            break
"""
"""A worker that does with its turns what their tokens say."""


class State:
    """Of a node, as far as its keeper asks it."""

    def __init__(self):
        self.waiting, self.without_request, self.failures = [], set(), []

    def get_tasks(self, statuses, order_by, ascending):
        assert (statuses, order_by, ascending) == ([Status.PENDING], "pending_at", True)
        return list(self.waiting)

    def has_request(self, task_id):
        return task_id not in self.without_request

    def claim_task(self, task_id):
        (task,) = [task for task in self.waiting if task.task_id == task_id]
        self.waiting.remove(task)
        return task.token

    def finish_task(self, task_id, status, details):
        assert status == SubStatus.FAILED
        self.failures.append((task_id, details))


@pytest.fixture
def keeper(tmp_path, monkeypatch):
    (tmp_path / "stub_worker.py").write_text(STUB)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(worker_keeper, "WORKER_MODULE", "stub_worker")
    monkeypatch.setattr(worker_keeper, "FINISH_LIMIT", 0.5)
    made = WorkerKeeper(State(), "127.0.0.1:1", None)
    yield made
    made.end_worker()


numbers = count(1)


def give(keeper, token, app="a", kind=TaskType.CLIENT_APP):
    """A turn comes in and is given on; the worker then."""
    task = SimpleNamespace(task_id=next(numbers), type=kind, fab_hash=app, token=token)
    keeper.state.waiting.append(task)
    keeper.look()
    return keeper.worker and keeper.worker.process


def until(true):
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_one_worker_takes_all_turns_of_an_app(keeper):
    first = give(keeper, "first")
    assert give(keeper, "second") is first
    third = give(keeper, "third", app="b")
    assert third is not first
    assert first.poll() is not None
    assert third.poll() is None
    keeper.end_worker()
    keeper.end_worker()
    assert third.poll() is not None
    assert keeper.state.failures == []


def test_a_worker_that_dies_in_its_turn_is_reported_at_once_and_replaced(keeper):
    first = give(keeper, "dies")
    number = keeper.worker.task_id
    until(lambda: keeper.look() or keeper.worker is None)
    assert keeper.state.failures == [(number, "the worker died in its turn")]
    assert give(keeper, "second") is not first


def test_a_worker_that_is_still_at_a_turn_that_is_over_for_its_node_is_replaced(keeper):
    first = give(keeper, "goes on")
    assert give(keeper, "second") is not first
    assert first.poll() is not None
    assert keeper.state.failures == []


def test_a_worker_that_has_gone_is_replaced_without_a_word(keeper):
    first = give(keeper, "last")
    first.wait()
    assert give(keeper, "second") is not first
    assert keeper.state.failures == []


def test_a_turn_that_no_worker_takes(keeper):
    assert give(keeper, "deaf") is None
    assert [words for _, words in keeper.state.failures] == ["no worker has taken the turn"]


def test_a_worker_that_has_nothing_to_do_is_ended(keeper, monkeypatch):
    monkeypatch.setattr(worker_keeper, "IDLE_LIMIT", 0.0)
    give(keeper, "goes on")
    keeper.look()
    assert keeper.worker is not None, "it was ended in its turn"
    keeper.end_worker()
    give(keeper, "first")
    until(lambda: keeper.look() or keeper.worker is None)


def test_a_turn_is_given_on_when_its_request_is_there(keeper):
    coming = next(numbers) + 1
    keeper.state.without_request.add(coming)
    assert give(keeper, "first") is None
    keeper.state.without_request.clear()
    keeper.look()
    assert keeper.worker is not None


def test_a_node_runs_nothing_but_clients(keeper):
    assert [give(keeper, "first", kind=kind) for kind in TaskType if kind != TaskType.CLIENT_APP][-1] is None


def test_a_keeper_goes_on_after_trouble(keeper, monkeypatch):
    class Enough(BaseException):
        pass

    happened, slept = iter([ValueError("trouble"), None, Enough]), []

    def look():
        if (error := next(happened)) is not None:
            raise error

    monkeypatch.setattr(keeper, "look", look)
    monkeypatch.setattr(worker_keeper.time, "sleep", slept.append)
    with pytest.raises(Enough):
        keeper._run()
    assert slept == [1.0, worker_keeper.LOOK_INTERVAL, worker_keeper.LOOK_INTERVAL]


# --- whose app it is


PROJECT = """
[project]
name = "app"
version = "0.0.0"
[tool.flwr.app]
publisher = "somebody"
[tool.flwr.app.components]
serverapp = "theirs:server"
clientapp = "{reference}"
"""


def bundle(reference):
    """What comes with a run: an app, and code beside it that must not be run."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("pyproject.toml", PROJECT.format(reference=reference))
        archive.writestr("fedtrain/__init__.py", "raise SystemExit('code of a run was run')")
    return Fab("0", buffer.getvalue(), {})


def test_a_node_has_its_own_app(monkeypatch):
    monkeypatch.delenv(CLIENT_APP_VARIABLE, raising=False)
    before = list(sys.path)
    assert warm_worker.load_app(Run.create_empty(1), bundle(OWN_CLIENT_APP)) == (client_app.app, True)
    with pytest.raises(LoadClientAppError, match=r"wants the app 'theirs:app' .* FEDCO2_CLIENT_APP=any"):
        warm_worker.load_app(Run.create_empty(1), bundle("theirs:app"))
    assert sys.path == before


def test_its_owner_may_name_another(monkeypatch):
    monkeypatch.setenv(CLIENT_APP_VARIABLE, "test_their_app:app")
    monkeypatch.setitem(sys.modules, "test_their_app", type(sys)("test_their_app"))
    sys.modules["test_their_app"].app = app = object()
    assert warm_worker.load_app(Run.create_empty(1), bundle("test_their_app:app")) == (app, True)
    with pytest.raises(LoadClientAppError, match="this node has 'test_their_app:app'"):
        warm_worker.load_app(Run.create_empty(1), bundle(OWN_CLIENT_APP))
    monkeypatch.setenv(CLIENT_APP_VARIABLE, ANY_APP)
    assert warm_worker.load_app(Run.create_empty(1), bundle(OWN_CLIENT_APP)) == (client_app.app, True)


# --- a turn


class Desk:
    """What a worker fetches from its node, and what it brings."""

    def __init__(self, monkeypatch):
        self.app, self.events, self.trouble = lambda message, context: "the reply", [], set()
        self.reusable = True
        desk = self

        class Heartbeats:
            is_running = True

            def __init__(self, send):
                pass

            def start(self):
                desk.events.append("heart beats")

            def stop(self):
                desk.events.append("heart stops")

        def happen(what, *more):
            if what in self.trouble:
                raise ValueError(what)
            self.events.append((what, *more))

        def fetch(client):
            happen("fetch")
            return Message(RecordDict(), dst_node_id=1, message_type="train"), "context", None, None

        def finish(client, context, status, details):
            self.events.append(("finish", context, status, details))

        for name, part in {
            "HeartbeatSender": Heartbeats,
            "pull_task_input": fetch,
            "load_app": lambda run, fab: (self.app, self.reusable),
            "push_message": lambda client, reply, context: happen("push", reply),
            "push_task_output": finish,
        }.items():
            monkeypatch.setattr(warm_worker, name, part)
        for name in ("_task_id", "_run_id", "_node_id"):
            monkeypatch.setattr(TaskIdentity, name, 1)

    def take(self):
        reusable = warm_worker.take_turn(Turn("127.0.0.1:1", "token", None))
        assert reusable == self.reusable or "fetch" in self.trouble
        assert self.events[0] == "heart beats"
        assert self.events[-1] == "heart stops"
        return self.events[1:-1]


@pytest.fixture
def desk(monkeypatch):
    return Desk(monkeypatch)


def test_a_turn(desk):
    assert desk.take() == [("fetch",), ("push", "the reply"), ("finish", "context", SubStatus.COMPLETED, "")]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KeyError("x"), ErrorCode.CLIENT_APP_RAISED_EXCEPTION),
        (LoadClientAppError("x"), ErrorCode.LOAD_CLIENT_APP_EXCEPTION),
    ],
)
def test_an_app_that_fails_has_that_for_a_reply(error, code, desk):
    def fail(message, context):
        raise error

    desk.app = fail
    _, (_, reply), (*_, status, details) = desk.take()
    assert (reply.error.code, reply.error.reason) == (code, f"{type(error).__name__}: {error}")
    assert (status, details) == (SubStatus.FAILED, f"{type(error).__name__}: {error}")


def test_a_request_that_cannot_be_fetched(desk):
    desk.trouble = {"fetch"}
    assert desk.take() == [("finish", None, SubStatus.FAILED, "ValueError: fetch")]


def test_a_reply_that_cannot_be_brought(desk):
    desk.trouble = {"push"}
    assert desk.take() == [("fetch",), ("finish", "context", SubStatus.FAILED, "ValueError: push")]


def test_a_worker_serves_until_nobody_is_there(desk, monkeypatch):
    """Or until it had an app that came with its run, which nothing else may share a process with."""
    taken = []
    monkeypatch.setattr(warm_worker, "take_turn", lambda turn: taken.append(turn.token) or turn.token != "last")
    for tokens, served in ((["1", "2"], ["1", "2"]), (["last", "3"], ["last"])):
        mine, theirs = socket.socketpair()
        with mine:
            mine.sendall("".join(Turn("a:1", token, None).encode() for token in tokens).encode())
            mine.shutdown(socket.SHUT_WR)
            with theirs:
                warm_worker.serve(theirs)
            assert mine.recv(64) == (warm_worker.TAKEN + warm_worker.DONE) * len(served)
        assert taken == served
        taken.clear()


# --- what stays between messages


def test_data_are_read_once_for_a_run(monkeypatch):
    opened = []
    monkeypatch.setattr(
        client_app.ClientSession, "from_node_config", lambda node, note: opened.append((node, note)) or len(opened)
    )
    client_app.open_session.cache_clear()
    context = type("Context", (), {"run_id": 1, "node_config": {"partition-id": 0}})
    note = {"config": {"seed": 1}, "run": "/run", "turn": 0}
    assert client_app.find_session(context, note) == 1
    assert client_app.find_session(context, note | {"turn": 5}) == 1
    assert client_app.find_session(context, note | {"config": {"seed": 2}}) == 2
    context.run_id = 2
    assert client_app.find_session(context, note | {"config": {"seed": 2}}) == 3
    assert opened[0] == ({"partition-id": 0}, {"config": {"seed": 1}, "run": "/run"})
    client_app.open_session.cache_clear()


# --- the node


def test_a_node_looks_often_after_work_and_seldom_later(monkeypatch):
    now, slept = [100.0], []
    monkeypatch.setattr(patient_supernode.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(patient_supernode.time, "sleep", slept.append)
    clock = patient_supernode.AttentiveClock()
    clock.sleep(3)
    clock.sleep(0.5)
    for later in (100.1, 104.0, 200.0):
        now[0] = later
        clock.sleep(3)
    assert slept == [3, 0.1, 0.5, 1.0, 3]


def test_a_node_starts_its_keeper(monkeypatch):
    for module, name in ((start_client_internal, "subprocess"), (start_client_internal, "time"),
                         (nodestate_factory, "InMemoryNodeState")):  # fmt: skip
        monkeypatch.setattr(module, name, None)
    started = []
    monkeypatch.setattr(WorkerKeeper, "start", lambda keeper: started.append(keeper))
    patient_supernode.install_warm_worker()
    state = nodestate_factory.InMemoryNodeState(None)
    popen = start_client_internal.subprocess.Popen
    popen(["flower-superexec", "--insecure", "--runtime-api-address", "a:1", "--parent-pid", "1"])
    popen(["flower-superexec", "--root-certificates", "ca", "--runtime-api-address", "a:1"])
    assert [(keeper.state, keeper.address, keeper.root_certificates) for keeper in started] == [
        (state, "a:1", None),
        (state, "a:1", "ca"),
    ]
    assert isinstance(start_client_internal.time, patient_supernode.AttentiveClock)


def test_a_superlink_has_time_to_start_a_run_and_misses_it_as_soon_as_ever(monkeypatch):
    interval, patience = sql_corestate.HEARTBEAT_DEFAULT_INTERVAL, sql_corestate.HEARTBEAT_PATIENCE
    monkeypatch.setattr(sql_corestate, "HEARTBEAT_DEFAULT_INTERVAL", interval)
    monkeypatch.setattr(sql_corestate, "HEARTBEAT_PATIENCE", patience)
    patient_superlink.wait_for_start()
    assert sql_corestate.HEARTBEAT_DEFAULT_INTERVAL == patient_superlink.START_LIMIT
    silent = sql_corestate.HEARTBEAT_DEFAULT_INTERVAL * sql_corestate.HEARTBEAT_PATIENCE
    assert silent == pytest.approx(interval * patience)
