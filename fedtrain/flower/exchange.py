"""The requests of a round and their answers, however often it takes, within bounds.

A node takes one request at a time. So one that answers a later question, but not the request before it, has lost that
request or its answer, and gets the request again. (Flower may also leave an answer lying on its node until the next
request comes; the question brings it forth.)
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from flwr.app import Message, RecordDict

from fedtrain.flower.client_manager import ClientManager, Notice, format_names
from fedtrain.flower.replies import get_message_id, is_crash, is_lost, is_node_gone, parse_reply
from fedtrain.serialization.message_codec import EncodedMessage

MAX_CRASHES = 3
"""Of a turn that crashes."""
MAX_LOSSES = 5
"""Of a turn that is lost on its way, or with its node."""
MAX_REQUESTS = 3
"""To a node that is online and silent; whatever is lost may add to them."""
PROBE_INTERVAL = 120.0
"""Seconds until a silent node is asked whether it is still there; twice that until the next time, and so on."""
WAIT_LIMIT = 3600.0
"""Seconds until a client that cannot be done without is given up, unless a longer time was asked for."""
TTL_MARGIN = 600.0
"""Seconds that a request outlives the waiting for its answer: it never expires before."""


@dataclass
class SentRequest:
    """One that is underway."""

    client: str
    node: int
    sent_at: float
    probes: int = 0
    is_replaced: bool = False
    """Whether it is held for lost; an answer that comes all the same is taken."""

    @property
    def next_probe(self) -> float:
        """When its node is to be asked whether it is still there."""
        return self.sent_at + PROBE_INTERVAL * (2 ** (self.probes + 1) - 1)


class Exchange:
    """One request for each client, sent until it is answered or given up."""

    def __init__(self, manager: ClientManager, requests: Mapping[str, RecordDict], patience: float) -> None:
        self.manager, self.requests, self.patience = manager, requests, patience
        self.begun = time.monotonic()
        self.limit = max(WAIT_LIMIT, MAX_REQUESTS * patience)
        self.answers: dict[str, EncodedMessage] = {}
        self.underway: dict[str, SentRequest] = {}
        self.probes: dict[str, str] = {}
        """Questions to nodes, and the requests that they wait for."""
        self.crashes: Counter[str] = Counter()
        self.losses: Counter[str] = Counter()
        self.requests_to_node: Counter[tuple[str, int]] = Counter()

    @property
    def missing(self) -> list[str]:
        """Clients whose answer is waited for."""
        return [client for client in self.requests if client not in self.answers]

    def run(self, least: int) -> dict[str, EncodedMessage]:
        """The answers: all of them, or after ``patience`` seconds ``least``; who is given up has an error for one."""
        notice = Notice(self.manager.tell)
        for _ in self.manager.poll():
            self._collect()
            waited = time.monotonic() - self.begun
            if waited > self.limit:
                self._give_up()
            if not self.missing or (len(self.answers) >= least and waited > self.patience):
                break
            self.manager.discover_nodes()
            self._send()
            self._probe()
            names = [name + " (away)" * (name not in self.manager.node_ids) for name in self.missing]
            notice.give(f"waiting for {format_names(names)}")
        return self.answers

    def _collect(self) -> None:
        """What came; a request whose node answered a later question in its place is lost."""
        unanswered: list[str] = []
        for reply in self.manager.mailbox.fetch([*self.underway, *self.probes]):
            number = get_message_id(reply)
            if number in self.probes:
                waiting = self.probes.pop(number)
                if not is_lost(reply) or is_crash(reply):
                    unanswered.append(waiting)
                continue
            request = self.underway.pop(number)
            if request.client in self.answers:
                continue
            if is_lost(reply):
                self._count_loss(request, reply)
            else:
                self.answers[request.client] = parse_reply(reply)
        for number in unanswered:
            found = self.underway.get(number)
            if found is not None and found.client not in self.answers and not found.is_replaced:
                found.is_replaced = True
                self._count_loss(found, None)

    def _count_loss(self, request: SentRequest, reply: Message | None) -> None:
        """Let the turn be taken again, unless that was done too often; ``reply`` is the error, if there is one."""
        client, crash = request.client, reply is not None and is_crash(reply)
        why = "its node answers, but not with its turn" if reply is None else " ".join(str(reply.error.reason).split())
        if reply is not None and is_node_gone(reply):
            self.manager.forget_node(request.node)
        counts, most = (self.crashes, MAX_CRASHES) if crash else (self.losses, MAX_LOSSES)
        counts[client] += 1
        if counts[client] < most:
            self.manager.tell(f"client {client}: its turn is taken again, for {why} ({counts[client]} of {most})")
        elif crash and reply is not None:
            self.answers[client] = parse_reply(reply)
        else:
            text = f"its turn was lost {most} times ({why}); see its node's log"
            self.answers[client] = {"error": "TrainingError", "text": text}, {}

    def _send(self) -> None:
        """A request to each client that has none underway, or has been silent for too long."""
        now = time.monotonic()
        missing = set(self.missing)
        due = sorted(
            (client, node) for client, node in self.manager.node_ids.items() if client in missing and
            self._is_due(client, node, now)
        )  # fmt: skip
        ttl = self.limit + TTL_MARGIN
        numbers = self.manager.mailbox.send("train", [(self.requests[client], node) for client, node in due], ttl)
        for number, (client, node) in zip(numbers, due, strict=True):
            if number:
                self.underway[number] = SentRequest(client, node, now)
                self.requests_to_node[client, node] += 1

    def _is_due(self, client: str, node: int, now: float) -> bool:
        sent = [request for request in self.underway.values() if (request.client, request.node) == (client, node)]
        waiting = [request for request in sent if not request.is_replaced]
        if not waiting:
            return True
        silent = now - max(request.sent_at for request in waiting)
        if silent < max(self.patience, PROBE_INTERVAL) or self.requests_to_node[client, node] >= MAX_REQUESTS:
            return False
        self.manager.tell(f"client {client}: no answer for {silent:.0f} s, though its node is online; asked again")
        return True

    def _probe(self) -> None:
        """Ask silent nodes whether they are still there."""
        now, missing = time.monotonic(), set(self.missing)
        due = [
            (number, request)
            for number, request in self.underway.items()
            if request.client in missing
            and not request.is_replaced
            and now >= request.next_probe
            and self.manager.node_ids.get(request.client) == request.node
        ]
        if not due:
            return
        for probe, (number, request) in zip(
            self.manager.send_queries([request.node for _, request in due]), due, strict=True
        ):
            request.probes += 1
            if probe:
                self.probes[probe] = number

    def _give_up(self) -> None:
        for client in self.missing:
            online = client in self.manager.node_ids
            sent = sum(self.requests_to_node[one] for one in self.requests_to_node if one[0] == client)
            if online:
                why = f"no answer within {self.limit:.0f} s to {sent} requests, though its node is online"
                way_out = "see its log and start it again, or allow more time"
            else:
                why, way_out = f"its node was away for {self.limit:.0f} s", "start it again"
            self.answers[client] = {"error": "TrainingError", "text": f"{why}; {way_out}"}, {}
