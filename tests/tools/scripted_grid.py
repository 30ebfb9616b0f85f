"""A Flower grid that does as it is told: nodes die, come back, fail, lie or never answer."""

from __future__ import annotations

from copy import copy
from itertools import count

from flwr.app import Context, Error, Message, RecordDict

from fedtrain.flower import client_app
from fedtrain.flower.records import parse_record

CLIENTS = 5
UNLOADABLE, RAISED, UNAVAILABLE, CRASHED = 1, 2, 5, 8


class Dead(Exception):  # noqa: N818 - it is no error
    """A node is killed while its app computes."""


class Grid:
    """Five nodes with one client each, whose apps are called when their answers are looked for."""

    def __init__(self, root, tamper=None):
        self.root, self.tamper = root, tamper
        self.numbers, self.ids = count(1), count(100)
        self.nodes = {next(self.ids): place for place in range(CLIENTS)}
        self.memory = {number: RecordDict() for number in self.nodes}
        self.listed = set(self.nodes)
        self.requests = {}
        self.log = []

    def get_node_ids(self):
        return sorted(self.listed)

    def push_messages(self, messages):
        numbers = [f"m{next(self.numbers)}" for _ in messages]
        self.requests |= dict(zip(numbers, messages, strict=True))
        return numbers

    def pull_messages(self, numbers):
        return [reply for number in list(numbers) if (reply := self.answer(number)) is not None]

    def answer(self, number):
        request = self.requests[number]
        at = request.metadata.dst_node_id
        if at not in self.nodes:
            if at in self.listed:
                return None  # dead, and not missed yet
            return self.reply(number, request, Error(UNAVAILABLE, "node unavailable"))
        place = self.nodes[at]
        app = client_app.describe_client if request.metadata.message_type == "query" else client_app.run_client_round
        settings = {**self.settings_of(place), "state-dir": str(self.root / f"node {place}")}
        context = Context(1, at, settings, self.memory[at], {})
        try:
            if self.tamper is not None:
                self.tamper(self, place, request)
            reply = app(copy(request), context)  # it may empty its own
        except Dead:
            return None
        except ValueError as error:
            return self.reply(number, request, Error(RAISED, str(error)))
        self.log.append((place, request.metadata.message_type, parse_record(request.content)[0]))
        return self.reply(number, request, self.spoilt(place, request, reply.content))

    def settings_of(self, place):
        """Of a node: which client it has."""
        return {"partition-id": place}

    def reply(self, number, request, what):
        del self.requests[number]
        made = Message(what, reply_to=request)
        made.metadata._reply_to_message_id = number
        return made

    def spoilt(self, place, request, records):
        return records

    def kill(self, place, *, missed=False):
        (at,) = [number for number, one in self.nodes.items() if one == place]
        del self.nodes[at], self.memory[at]
        if missed:
            self.listed.discard(at)
        return at

    def start(self, place, number=None):
        number = next(self.ids) if number is None else number
        self.nodes[number], self.memory[number] = place, RecordDict()
        self.listed.add(number)
