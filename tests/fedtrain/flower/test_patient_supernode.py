"""A node whose app dies at any point: the request gets one reply, and the node takes the next one.

The two halves of Flower's own SuperNode are run here (take a request in, send its reply) with what an app asks of it in
between; only the SuperLink, the clock and the process of the app are ours.
"""

from __future__ import annotations

from datetime import timedelta
from threading import Thread

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make test-all")

import httpx
import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.common.constant import ErrorCode, Status, SubStatus
from flwr.common.serde import message_to_proto
from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PushAppMessagesRequest
from flwr.supercore import heartbeat
from flwr.supercore.corestate import in_memory_corestate
from flwr.supercore.date import now
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, no_object_id_recompute
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode import fleet_http_connection, start_client_internal
from flwr.supernode.nodestate import NodeStateFactory, nodestate_factory
from flwr.supernode.servicer.runtime import runtime_handlers

from fedtrain.flower.deployment import patient_state, patient_supernode

RUN = 1


def content_of(value):
    return RecordDict({"block": ArrayRecord({"one": Array(np.full(3, value)), "two": Array(np.full(4, value))})})


def objects_of(message):
    return {name: one.deflate() for name, one in get_all_nested_objects(message).items()}


class Node:
    """Flower's, with a SuperLink that keeps what is sent to it."""

    def __init__(self):
        self.state = NodeStateFactory(ObjectStoreFactory()).state()
        self.store = self.state.object_store
        self.state.set_node_id(1)
        self.state.store_run(Run.create_empty(RUN))
        self.sent, self.thread = [], None

    def take(self, value):
        """Take in a request, then wait for its reply in a thread; its id, and the task that it became."""
        request = Message(content_of(value), dst_node_id=1, message_type="train")
        with no_object_id_recompute():
            request.metadata.__dict__["_message_id"] = request.object_id
            tree, objects = get_object_tree(request), objects_of(request)
        known = {task.task_id for task in self.state.get_tasks()}
        nothing = lambda *words: None  # noqa: E731
        taken = start_client_internal._pull_and_store_message(
            self.state, self.store, {}, lambda: (request, tree), nothing, nothing,
            lambda run, name: objects[name], nothing, None,
        )  # fmt: skip
        assert taken == RUN
        self.thread = Thread(
            target=start_client_internal._push_messages,
            args=(self.state, self.store, self.send, self.push),
            daemon=True,
        )
        self.thread.start()
        (task,) = [task for task in self.state.get_tasks() if task.task_id not in known]
        return request.metadata.message_id, task

    def send(self, message, tree, seconds):
        self.sent.append(message)
        return {part.object_id for part in start_client_internal.iterate_object_tree(tree)}, "session"

    def push(self, run, session, name, content):
        if not content:
            raise ObjectPushError(name)  # as the SuperLink refuses it

    def is_done(self):
        """Whether the wait for a reply is over, in real time."""
        self.thread.join(30.0)
        return not self.thread.is_alive()

    def is_waiting(self):
        """Whether it goes on, half a second later."""
        self.thread.join(0.5)
        return self.thread.is_alive()

    def replies(self):
        return [
            (one.metadata.reply_to_message_id, one.error.code if one.has_error() else None) for one in self.sent
        ]  # fmt: skip


class App:
    """What the process of an app asks of its node, as far as it lives."""

    def __init__(self, node, task):
        self.node, self.task, self.state = node, task, node.state
        assert self.state.claim_task(task.task_id)

    def start(self):
        assert self.state.activate_task(self.task.task_id)
        return self

    def fetch(self):
        found = runtime_handlers.pull_messages(PullAppMessagesRequest(), self.state, self.task)
        (self.request,) = found.messages_list
        return self

    def reply(self, *, objects=None):
        """Push a reply, or only so many of its objects; how many there were to push."""
        with no_object_id_recompute():
            request = self.state.msg_store.get(self.request.metadata.message_id)
            request = self.kept if request is None else request.message
            message = Message(content_of(5), reply_to=request)
            message.metadata.__dict__["_message_id"] = message.object_id
            tree, contents = get_object_tree(message), objects_of(message)
            bare = message_to_proto(start_client_internal.Message(RecordDict(), reply_to=request))
            bare.metadata.message_id = message.object_id
        answer = runtime_handlers.push_messages(
            PushAppMessagesRequest(messages_list=[bare], message_object_trees=[tree]), self.state, self.task
        )
        for name in list(answer.objects_to_push)[:objects]:
            assert self.state.store_object(RUN, answer.session_id, name, contents[name])
        return len(answer.objects_to_push)

    def keep_request(self):
        self.kept = self.state.msg_store[self.request.metadata.message_id].message

    def finish(self, status=SubStatus.COMPLETED):
        assert self.state.finish_task(self.task.task_id, status, "")


@pytest.fixture
def clock(monkeypatch):
    """Moves Flower's time on."""
    moved = [timedelta()]
    for module in (in_memory_corestate, patient_state):
        monkeypatch.setattr(module, "now", lambda: now() + moved[0])

    def move(seconds):
        moved[0] += timedelta(seconds=seconds)

    return move


@pytest.fixture
def node(monkeypatch, clock):
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    monkeypatch.setattr(nodestate_factory, "InMemoryNodeState", nodestate_factory.InMemoryNodeState)
    patient_supernode.install_node_state()
    honest = start_client_internal.time.sleep
    monkeypatch.setattr(start_client_internal.time, "sleep", lambda seconds: honest(min(seconds, 0.01)))
    return Node()


def assert_next_turn_is_well(node):
    """A request is answered by its own app, at once, and nothing lies about then."""
    before = len(node.sent)
    request, task = node.take(99)
    app = App(node, task).start().fetch()
    app.reply()
    assert node.is_done()
    app.finish()
    assert node.replies()[before:] == [(request, None)]
    assert not node.state.msg_store
    assert not node.state.requests


def test_turns_without_trouble(node):
    for _ in range(3):
        assert_next_turn_is_well(node)


@pytest.mark.parametrize("point", ["before it fetched its request", "in its turn"])
def test_an_app_that_dies(point, node, clock):
    request, task = node.take(1)
    app = App(node, task).start()
    if point == "in its turn":
        app.fetch()
    clock(61)
    assert node.is_done()
    assert node.replies() == [(request, ErrorCode.CLIENT_APP_CRASHED)]
    assert_next_turn_is_well(node)


@pytest.mark.parametrize("status", [SubStatus.FAILED, SubStatus.COMPLETED])
def test_an_app_that_ends_without_a_reply(status, node):
    """It could not fetch its request, or not bring its reply."""
    request, task = node.take(1)
    App(node, task).start().fetch().finish(status)
    assert node.is_done()
    assert node.replies() == [(request, ErrorCode.CLIENT_APP_CRASHED)]
    assert_next_turn_is_well(node)


def test_an_app_that_dies_in_the_midst_of_its_reply(node, clock):
    """Half a reply is not sent to its end; the server asks again, as for any reply that is lost."""
    request, task = node.take(1)
    app = App(node, task).start().fetch()
    assert app.reply(objects=1) > 2
    assert node.is_waiting()
    clock(61)
    node.state.get_tasks()  # as is asked for ten times a second
    assert node.is_done()
    assert node.replies() == [(request, None)]
    assert_next_turn_is_well(node)


def test_an_app_that_dies_after_its_reply(node, clock):
    """The request that the node has in hand when it is missed is not blamed."""
    request, task = node.take(1)
    App(node, task).start().fetch().reply()
    assert node.is_done()
    clock(40)
    second, task = node.take(2)
    app = App(node, task).start().fetch()
    clock(30)
    assert node.is_waiting()
    app.reply()
    assert node.is_done()
    app.finish()
    assert node.replies() == [(request, None), (second, None)]
    assert_next_turn_is_well(node)


def test_a_reply_that_comes_after_its_app_was_missed_is_refused(node, clock):
    request, task = node.take(1)
    app = App(node, task).start().fetch()
    app.keep_request()
    clock(61)
    assert node.is_done()
    assert app.reply() == 0
    assert node.replies() == [(request, ErrorCode.CLIENT_APP_CRASHED)]
    assert_next_turn_is_well(node)


def test_an_app_has_time_to_start(node, clock):
    request, task = node.take(1)
    App(node, task)
    clock(100)
    assert [one.status.status for one in node.state.get_tasks()] == [Status.STARTING]
    clock(30)  # now it is started again
    assert [one.status.status for one in node.state.get_tasks()] == [Status.PENDING]
    app = App(node, task).start().fetch()
    app.reply()
    assert node.is_done()
    assert node.replies() == [(request, None)]


# --- a SuperLink that cannot answer


def refuse(status):
    request = httpx.Request("POST", "http://127.0.0.1:1/")
    return httpx.HTTPStatusError(f"status {status}", request=request, response=httpx.Response(status, request=request))


@pytest.fixture
def outliving(monkeypatch):
    """Flower's pull and heartbeat, in a node that outlives failures; what they meet with is raised in turn."""
    happened = []

    def meet(*_, **__):
        error = happened.pop(0)
        if error is not None:
            raise error
        return 7

    monkeypatch.setattr(start_client_internal, "_pull_and_store_message", meet)
    monkeypatch.setattr(fleet_http_connection, "HeartbeatSender", None)
    patient_supernode.outlive_failures()
    return happened


def test_a_node_outlives_a_superlink_that_cannot_answer(outliving):
    outliving += [refuse(500), refuse(503), httpx.ConnectError("[SSL] EOF occurred"), httpx.ReadTimeout("late"), None]
    pull = start_client_internal._pull_and_store_message
    assert [pull(state=None, receive=None) for _ in range(5)] == [None] * 4 + [7]


def test_a_node_that_is_refused_ends(outliving):
    outliving += [refuse(401), ValueError("of our own")]
    for kind in (httpx.HTTPStatusError, ValueError):
        with pytest.raises(kind):
            start_client_internal._pull_and_store_message()


def test_heartbeats_go_on_after_a_failure(outliving):
    """Each is tried again until one was heard; a refusal is passed on, as it ends the node."""
    answers = [refuse(500), True, refuse(401)]

    def send():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    sender = fleet_http_connection.HeartbeatSender(send)
    with pytest.raises(heartbeat.HeartbeatFailure):
        sender._heartbeat()
    sender._heartbeat()
    with pytest.raises(httpx.HTTPStatusError):
        sender._heartbeat()
