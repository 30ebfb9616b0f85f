"""Letters to clients and their answers, whichever node a client is on: nodes die, come back and have new numbers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from flwr.app import Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from fedtrain.data.errors import DataError
from fedtrain.errors import TrainingError
from fedtrain.flower.records import build_record, parse_record
from fedtrain.serialization.message_codec import EncodedMessage
from theory.errors import InputError

POLL_INTERVAL = 0.1
"""Seconds between two looks for answers."""
DISCOVERY_INTERVAL = 2.0
"""Seconds between two looks for nodes that are new."""
PERMANENT_ERRORS = (ErrorCode.LOAD_CLIENT_APP_EXCEPTION, ErrorCode.CLIENT_APP_RAISED_EXCEPTION,
          ErrorCode.MOD_FAILED_PRECONDITION, ErrorCode.INVALID_FAB)  # fmt: skip
"""What another try would not mend."""
CRASH_ERRORS = (ErrorCode.UNKNOWN, ErrorCode.CLIENT_APP_CRASHED)
"""What it may mend, unless it happens again and again; all other errors mean that the node or the letter was lost."""
MAX_CRASHES = 3
"""Of a turn that crashes."""
GRACE_PERIOD = 10.0
"""Seconds for other nodes to come when one has said that it is none of ours."""


@dataclass
class ClientManager:
    """Knows which node each client is on: by asking, since a node's number says nothing and may change."""

    grid: Grid
    node_query: Mapping[str, Any]
    """What a node is asked when it turns up."""
    stop_requested: Event = field(default_factory=Event)
    """Set from another thread, it ends all waiting."""
    node_ids: dict[str, int] = field(default_factory=dict)
    """Where each client is; of two nodes that speak for it, the later one: the other died and was not missed yet."""
    descriptions: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What each client said of itself."""
    described_nodes: set[int] = field(default_factory=set)
    """Nodes that said who they are."""
    pending_queries: dict[str, int] = field(default_factory=dict)
    """Questions without an answer yet, and whom."""
    rejected_nodes: dict[int, InputError | TrainingError] = field(default_factory=dict)
    """Nodes that could not say who they are, and why; a run that has its clients does without them."""
    last_discovery: float = float("-inf")

    def wait_for_clients(self, clients: int, patience: float) -> None:
        """Wait until so many clients have said who they are."""
        end = time.monotonic() + patience
        for _ in self._poll():
            self._discover_nodes()
            if len(self.node_ids) >= clients:
                return
            if self.rejected_nodes:
                end = min(end, time.monotonic() + GRACE_PERIOD)
            if time.monotonic() > end and self.rejected_nodes:
                raise next(iter(self.rejected_nodes.values()))
            if time.monotonic() > end:
                here = ", ".join(self.node_ids) or "none"
                raise InputError(
                    f"{clients} clients are wanted and {len(self.node_ids)} came ({here}); start their nodes"
                )

    def send_and_receive(
        self, letters: Mapping[str, RecordDict], least: int, patience: float
    ) -> dict[str, EncodedMessage]:
        """The answers: all of them, or after ``patience`` seconds ``least``. Who was lost gets its letter again."""
        answers: dict[str, EncodedMessage] = {}
        underway: dict[str, tuple[str, int]] = {}
        crashes: Counter[str] = Counter()
        end = time.monotonic() + patience
        for _ in self._poll():
            for reply in self._pull_replies(underway):
                client, node = underway.pop(get_message_id(reply))
                crashes[client] += reply.has_error() and reply.error.code in CRASH_ERRORS
                if is_lost(reply) and crashes[client] < MAX_CRASHES:
                    self._forget_node(node)
                else:
                    answers.setdefault(client, parse_reply(reply))
            if len(answers) == len(letters) or (len(answers) >= least and time.monotonic() > end):
                break
            self._discover_nodes()
            wanted = {
                (client, node) for client, node in self.node_ids.items() if client in letters.keys() - answers.keys()
            }
            new = sorted(wanted - set(underway.values()))
            numbers = self._push_messages("train", [(letters[client], node) for client, node in new])
            underway |= dict(zip(numbers, new, strict=True))
        return answers

    def _poll(self) -> Iterator[None]:
        while True:
            if self.stop_requested.is_set():
                raise KeyboardInterrupt
            yield
            time.sleep(POLL_INTERVAL)

    def _discover_nodes(self) -> None:
        """Ask nodes that are new who they are; one that is gone is no client's any more."""
        for reply in self._pull_replies(self.pending_queries):
            node = self.pending_queries.pop(get_message_id(reply))
            if is_lost(reply):
                continue  # if it is back, it is asked again
            note, _ = parse_reply(reply)
            self.described_nodes.add(node)
            if "error" in note or not is_client_description(note):
                text = note if "error" in note else {"error": "", "text": "its answer is none of fedco2's; update it"}
                self.rejected_nodes[node] = build_client_error(f"node {node}", text)
                continue
            self.node_ids[note["client"]] = node
            self.descriptions[note["client"]] = note
        if time.monotonic() - self.last_discovery < DISCOVERY_INTERVAL:
            return
        self.last_discovery = time.monotonic()
        online = set(self.grid.get_node_ids())
        for node in self.described_nodes - online:
            self._forget_node(node)
        new = sorted(online - self.described_nodes - set(self.pending_queries.values()))
        numbers = self._push_messages("query", [(build_record(self.node_query, {}), node) for node in new])
        self.pending_queries |= dict(zip(numbers, new, strict=True))

    def _forget_node(self, node: int) -> None:
        self.described_nodes.discard(node)
        self.rejected_nodes.pop(node, None)
        self.node_ids = {client: at for client, at in self.node_ids.items() if at != node}

    def _push_messages(self, kind: str, letters: Sequence[tuple[RecordDict, int]]) -> list[str]:
        """All in one go: what several of them hold alike is moved once."""
        messages = [Message(letter, dst_node_id=node, message_type=kind) for letter, node in letters]
        return [str(number) for number in self.grid.push_messages(messages)] if messages else []

    def _pull_replies(self, underway: Mapping[str, object]) -> list[Message]:
        return list(self.grid.pull_messages(list(underway))) if underway else []


def get_message_id(reply: Message) -> str:
    """Of the letter that is answered; the sender's number does not do, for an error is the SuperLink's."""
    return str(reply.metadata.reply_to_message_id)


def is_lost(reply: Message) -> bool:
    """Whether node or letter were lost, and another try may do."""
    return reply.has_error() and reply.error.code not in PERMANENT_ERRORS


def is_client_description(note: Mapping[str, Any]) -> bool:
    """Whether a node says in it which client it has."""
    kinds = {"client": str, "place": int, "data": dict}
    return all(isinstance(note.get(key), kind) for key, kind in kinds.items())


def parse_reply(reply: Message) -> EncodedMessage:
    """What a node says; an app that failed, or one that is not ours, says what kind of error that is."""
    if reply.has_error():
        return {"error": "TrainingError", "text": f"its app failed ({reply.error.reason}); see the node's log"}, {}
    try:
        return parse_record(reply.content)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        return {"error": "TrainingError", "text": f"its answer is none of fedco2's ({error}); update its node"}, {}


def build_client_error(whose: str, note: Mapping[str, Any]) -> InputError | TrainingError:
    """The error that a note speaks of."""
    kinds = {kind.__name__: kind for kind in (InputError, DataError)}
    return kinds.get(note["error"], TrainingError)(f"{whose}: {note['text']}")
