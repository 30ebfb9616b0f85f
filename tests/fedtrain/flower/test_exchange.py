"""Requests that are lost, expire, or are never answered: sent again a bounded number of times, and then named."""

from __future__ import annotations

import sqlite3
from itertools import count

import httpx
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make test-all")

from flwr.app import Error, Message
from flwr.supercore.task_identity import TaskIdentity

from fedtrain.errors import TrainingError
from fedtrain.flower import client_manager, exchange, mailbox
from fedtrain.flower.client_manager import ClientManager
from fedtrain.flower.exchange import Exchange
from fedtrain.flower.mailbox import Mailbox
from fedtrain.flower.records import build_record, parse_record
from theory.errors import InputError

EXPIRED, UNAVAILABLE, RAISED = 3, 5, 2
NAMES = ("mnist", "svhn", "usps")


class Clock:
    """Time passes only while somebody sleeps."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += max(seconds, 0.1)


class Node:
    """As Flower's: one request at a time, and what it has to send is sent only when a request was taken in."""

    def __init__(self, name, clock, *, seconds=5.0):
        self.name, self.clock, self.seconds = name, clock, seconds
        self.inbox, self.at_work, self.sent, self.held = [], None, {}, []
        self.deaf, self.behind = False, False
        self.spoil = lambda number, request: None

    def look(self):
        """Do what is due by now."""
        if self.deaf:
            return
        if self.at_work is not None and self.clock.now >= self.at_work[0]:
            _, number, request = self.at_work
            self.at_work = None
            self.held.append((number, request))
            if not self.behind:
                self.flush()
        if self.at_work is None and self.inbox:
            number, request = self.inbox.pop(0)
            if self.behind:
                self.flush()
            seconds = self.seconds if request.metadata.message_type == "train" else 1.0
            self.at_work = self.clock.now + seconds, number, request

    def flush(self):
        for number, request in self.held:
            what = self.spoil(number, request)
            if not isinstance(what, str):
                self.sent[number] = what or build_record({"client": self.name, "place": 0, "data": {}}, {})
        self.held = []


class Grid:
    def __init__(self, clock, **seconds):
        self.clock = clock
        self.nodes = {100 + i: Node(name, clock, seconds=seconds.get(name, 5.0)) for i, name in enumerate(NAMES)}
        self.listed, self.numbers = set(self.nodes), count(1)
        self.requests, self.ttls = {}, []

    def node(self, name):
        (found,) = [node for node in self.nodes.values() if node.name == name]
        return found

    def get_node_ids(self):
        return sorted(self.listed)

    def push_messages(self, messages):
        numbers = []
        for message in messages:
            number = f"m{next(self.numbers)}"
            self.requests[number] = message
            self.nodes[message.metadata.dst_node_id].inbox.append((number, message))
            numbers.append(number)
            if message.metadata.message_type == "train":
                self.ttls.append(message.metadata.ttl)
        return numbers

    def pull_messages(self, numbers):
        replies = []
        for node in self.nodes.values():
            node.look()
        for number in numbers:
            at = self.requests[number].metadata.dst_node_id
            what = self.nodes[at].sent.pop(number, None)
            if what is None and at not in self.listed:
                what = Error(UNAVAILABLE, "node unavailable")
            if what is not None:
                reply = Message(what, reply_to=self.requests[number])
                reply.metadata._reply_to_message_id = number
                replies.append(reply)
        return replies

    def sent_to(self, name, kind):
        at = [number for number, node in self.nodes.items() if node.name == name]
        return sum(
            one.metadata.dst_node_id in at and one.metadata.message_type == kind for one in self.requests.values()
        )


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    for module in (client_manager, exchange, mailbox):
        monkeypatch.setattr(module, "time", made)
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    return made


@pytest.fixture
def told():
    return []


@pytest.fixture
def manager(clock, told):
    def made(grid):
        found = ClientManager(grid, {"config": {}, "run": "run"}, tell=told.append)
        found.wait_for_clients(len(NAMES), 300.0)
        return found

    return made


def ask(manager, *, patience=600.0, least=3):
    requests = {name: build_record({"for": name}, {}) for name in NAMES}
    return {name: note for name, (note, _) in Exchange(manager, requests, patience).run(least).items()}


def good(answers):
    return [name for name, note in answers.items() if note.get("client") == name]


def test_one_request_each_and_nothing_more_when_all_is_well(clock, manager, told):
    grid = Grid(clock)
    assert good(ask(manager(grid))) == [*NAMES]
    assert [grid.sent_to(name, "train") for name in NAMES] == [1, 1, 1]
    assert [grid.sent_to(name, "query") for name in NAMES] == [1, 1, 1]
    assert told == []


def test_an_answer_that_was_lost_on_a_node_that_is_online(clock, manager, told):
    """The node answers a question that came after the request: it is not at work on it any more."""
    grid, lost = Grid(clock), []
    grid.node("svhn").spoil = lambda number, request: (
        lost.append(number) or "lost" if request.metadata.message_type == "train" and not lost else None
    )
    begun = clock.now
    assert sorted(good(ask(manager(grid)))) == [*NAMES]
    assert clock.now - begun < 2 * exchange.PROBE_INTERVAL
    assert grid.sent_to("svhn", "train") == 2
    assert any("client svhn: its turn is taken again, for its node answers, but not with its turn (1 of 5)" in line
               for line in told)  # fmt: skip


def test_an_answer_that_is_lost_every_time_is_given_up_and_named(clock, manager):
    grid = Grid(clock)
    grid.node("svhn").spoil = lambda number, request: "lost" if request.metadata.message_type == "train" else None
    answers = ask(manager(grid))
    assert sorted(good(answers)) == ["mnist", "usps"]
    assert answers["svhn"]["error"] == "TrainingError"
    assert "its turn was lost 5 times" in answers["svhn"]["text"]
    assert grid.sent_to("svhn", "train") == exchange.MAX_LOSSES


def test_an_answer_that_lies_on_its_node_until_the_next_request(clock, manager):
    """So Flower's node does once it has blamed a turn for the end of another: a question brings the answer forth."""
    grid = Grid(clock)
    found = manager(grid)
    grid.node("svhn").behind = True
    begun = clock.now
    for _ in range(3):
        assert sorted(good(ask(found))) == [*NAMES]
    assert grid.sent_to("svhn", "train") == 3  # nothing is done twice
    assert clock.now - begun < 3 * 1.5 * exchange.PROBE_INTERVAL


def test_a_request_that_expires_once_is_sent_again_and_always_is_named(clock, manager, told):
    for often, requests in ((1, 2), (99, exchange.MAX_LOSSES)):
        grid, seen = Grid(clock), []

        def spoil(number, request, often=often, seen=seen):
            if request.metadata.message_type == "train" and len(seen) < often:
                seen.append(number)
                return Error(EXPIRED, "the message\nhas expired")
            return None

        grid.node("usps").spoil = spoil
        answers = ask(manager(grid))
        assert grid.sent_to("usps", "train") == requests
        assert grid.sent_to("usps", "query") == 1  # its node is not taken for gone
        assert ("usps" in good(answers)) == (often == 1)
    assert "its turn was lost 5 times (the message has expired); see its node's log" in answers["usps"]["text"]
    assert "client usps: its turn is taken again, for the message has expired (1 of 5)" in told


def test_a_node_that_is_online_and_deaf(clock, manager, told):
    """It gets its request again after a while, a few times; in the end it is named."""
    grid = Grid(clock)
    found = manager(grid)
    grid.node("svhn").deaf = True
    begun = clock.now
    answers = ask(found, patience=600.0)
    assert clock.now - begun == pytest.approx(exchange.WAIT_LIMIT, abs=10)
    assert sorted(good(answers)) == ["mnist", "usps"]
    assert "no answer within 3600 s to 3 requests, though its node is online; see its log" in answers["svhn"]["text"]
    assert grid.sent_to("svhn", "train") == exchange.MAX_REQUESTS
    assert grid.sent_to("svhn", "query") < 20
    assert "client svhn: no answer for 600 s, though its node is online; asked again" in told
    assert any(line.startswith("waiting for svhn: ") and line.endswith(" s") for line in told)
    assert min(grid.ttls) > exchange.WAIT_LIMIT  # no request expires while it is waited for


def test_a_deaf_node_that_can_be_done_without(clock, manager):
    grid = Grid(clock)
    found = manager(grid)
    grid.node("svhn").deaf = True
    begun = clock.now
    assert sorted(ask(found, patience=120.0, least=2)) == ["mnist", "usps"]
    assert clock.now - begun < 130


def test_a_deaf_node_that_hears_again(clock, manager):
    grid = Grid(clock)
    found, node = manager(grid), grid.node("svhn")
    node.deaf, begun, honest = True, clock.now, grid.pull_messages

    def pull(numbers):
        if clock.now > begun + 900:
            node.deaf = False
        return honest(numbers)

    grid.pull_messages = pull
    assert sorted(good(ask(found))) == [*NAMES]


def test_a_long_turn_is_not_taken_for_lost(clock, manager):
    """Its node answers no question while it is at work."""
    grid = Grid(clock, usps=550.0)
    assert sorted(good(ask(manager(grid)))) == [*NAMES]
    assert grid.sent_to("usps", "train") == 1
    assert grid.sent_to("usps", "query") <= 5


def test_an_answer_that_comes_after_its_request_was_held_for_lost(clock, manager):
    """It is taken, once: the second answer changes nothing."""
    grid = Grid(clock, usps=700.0)
    assert sorted(good(ask(manager(grid), patience=100.0))) == [*NAMES]
    assert 1 < grid.sent_to("usps", "train") <= exchange.MAX_REQUESTS


def test_of_two_answers_that_come_together_the_first_counts(clock, manager):
    grid = Grid(clock, usps=150.0)
    found, node, honest = manager(grid), grid.node("usps"), grid.pull_messages
    node.spoil = lambda number, request: build_record({"client": "usps", "number": number}, {})

    def pull(numbers):
        hidden = len(node.sent) < 2 and grid.sent_to("usps", "train")
        return honest([one for one in numbers if not (hidden and grid.requests[one].metadata.dst_node_id == 102)])

    grid.pull_messages = pull
    answers = ask(found, patience=100.0)
    assert sorted(good(answers)) == [*NAMES]
    assert answers["usps"]["number"] == min(
        (number for number, one in grid.requests.items()
         if one.metadata.dst_node_id == 102 and one.metadata.message_type == "train"),
        key=lambda number: int(number[1:]),
    )  # fmt: skip


def test_a_node_that_went_away_and_is_not_back(clock, manager):
    grid = Grid(clock)
    found = manager(grid)
    grid.node("svhn").deaf = True
    (at,) = [number for number, node in grid.nodes.items() if node.name == "svhn"]
    grid.listed.discard(at)
    answers = ask(found)
    assert "its node was away for 3600 s; start it again" in answers["svhn"]["text"]


def test_what_is_waited_for_is_said(clock, manager, told, monkeypatch):
    grid = Grid(clock, svhn=100.0, usps=100.0)
    ask(manager(grid))
    assert [line.rpartition(":")[0] for line in told] == ["waiting for svhn, usps"] * 3
    assert client_manager.format_names([*"abcdefghijklmn"]).endswith("i, j and 4 more")


def test_a_node_that_does_not_say_who_it_is_is_asked_again(clock, told):
    grid = Grid(clock)
    grid.node("svhn").spoil = lambda number, request: "lost"
    found = ClientManager(grid, {"config": {}, "run": "run"}, tell=told.append)
    with pytest.raises(InputError, match=r"3 clients are wanted and 2 came \(mnist, usps\)"):
        found.wait_for_clients(3, 1000.0)
    assert grid.sent_to("svhn", "query") == client_manager.MAX_QUERIES
    assert any(line.startswith("waiting for 3 clients, of whom 2 came (mnist, usps): ") for line in told)


def http_error(status):
    request = httpx.Request("POST", "http://127.0.0.1/")
    return httpx.HTTPStatusError("no", request=request, response=httpx.Response(status, request=request))


class ObjectPushError(Exception):
    """As Flower calls it."""


@pytest.mark.parametrize(
    "error", [http_error(500), http_error(503), ObjectPushError("expired")], ids=["500", "503", "push"]
)
def test_an_overloaded_superlink_is_asked_again_within_bounds(error, clock, told):
    calls = []

    class Overloaded:
        def get_node_ids(self):
            calls.append(1)
            if len(calls) < 4:
                raise error
            return [7]

    assert Mailbox(Overloaded(), told.append).list_nodes() == {7}
    assert len(told) == 3
    calls.clear()
    Overloaded.get_node_ids = lambda self: calls.append(1) or (_ for _ in ()).throw(error)
    with pytest.raises(TrainingError, match="the SuperLink could not list nodes in 5 tries"):
        Mailbox(Overloaded(), told.append).list_nodes()
    assert len(calls) == 5


@pytest.mark.parametrize("status", [401, 403, 413])
def test_a_run_that_was_stopped_stops_sending(status, clock, told):
    """The SuperLink refuses it, and it does not ask again."""
    calls = []

    class Refusing:
        def push_messages(self, messages):
            calls.append(len(messages))
            raise http_error(status)

    with pytest.raises(httpx.HTTPStatusError):
        Mailbox(Refusing(), told.append).send("train", [(build_record({}, {}), 7)])
    assert calls == [1]


def test_a_request_that_the_superlink_did_not_take_is_sent_again(clock, manager):
    grid = Grid(clock)
    found, honest, refused = manager(grid), grid.push_messages, []

    def push(messages):
        if refused:
            return honest(messages)
        refused.append(1)
        return [None, *honest(messages[1:])]

    grid.push_messages = push
    assert sorted(good(ask(found))) == [*NAMES]
    assert refused


def test_no_request_is_sent_after_the_last_answer(clock, manager):
    grid = Grid(clock)
    found = manager(grid)
    ask(found)
    before = len(grid.requests)
    ask(found)
    assert len(grid.requests) == before + len(NAMES)
    assert {parse_record(one.content)[0].get("for") for one in [*grid.requests.values()][before:]} == {*NAMES}


def test_the_superlink_waits_for_its_database(tmp_path, monkeypatch):
    """Flower's five seconds end in an error that nobody handles."""
    from flwr.supercore import sql_mixin

    from fedtrain.flower.deployment import patient_superlink

    monkeypatch.setattr(sql_mixin, "SQLITE_PRAGMAS", sql_mixin.SQLITE_PRAGMAS)
    before = dict(sql_mixin.SQLITE_PRAGMAS)
    patient_superlink.wait_for_database()
    with sqlite3.connect(tmp_path / "db") as connection:
        sql_mixin._set_sqlite_pragmas(connection, None)
        assert connection.execute("PRAGMA busy_timeout").fetchone() == (25_000,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert {**before, "busy_timeout": "25000"} == dict(sql_mixin.SQLITE_PRAGMAS)
