"""Which client is on which node: nodes die, come back and have new numbers, so they are asked."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from flwr.serverapp import Grid

from fedtrain.errors import TrainingError
from fedtrain.flower.mailbox import Mailbox
from fedtrain.flower.records import build_record
from fedtrain.flower.replies import build_client_error, get_message_id, is_client_description, is_lost, parse_reply
from fedtrain.runs.json_types import NodeDescription
from theory.errors import InputError

POLL_INTERVAL, MOST_INTERVALS = 0.05, 40.0
"""Seconds between two looks for answers; as many times that as seconds were waited, for each costs the SuperLink."""
DISCOVERY_INTERVAL = 2.0
"""Seconds between two looks for nodes that are new."""
GRACE_PERIOD = 10.0
"""Seconds for other nodes to come when one has said that it is none of ours."""
QUERY_INTERVAL, MAX_QUERIES = 60.0, 5
"""Seconds after which a node that is online and has not said who it is is asked again, and how often it is asked."""
NOTICE_INTERVAL = 30.0
"""Seconds between two words on what is waited for."""
NAMES_SHOWN = 10
"""Clients that such a word names."""


@dataclass
class ClientManager:
    """Knows which node each client is on: by asking, since a node's number says nothing and may change."""

    grid: Grid
    node_query: Mapping[str, Any]
    """What a node is asked when it turns up."""
    stop_requested: Event = field(default_factory=Event)
    """Set from another thread, it ends all waiting."""
    tell: Callable[[str], None] = lambda line: None
    """Where words on waiting go."""
    node_ids: dict[str, int] = field(default_factory=dict)
    """Where each client is; of two nodes that speak for it, the later one: the other died and was not missed yet."""
    descriptions: dict[str, NodeDescription] = field(default_factory=dict)
    """What each client said of itself."""
    described_nodes: set[int] = field(default_factory=set)
    """Nodes that said who they are."""
    pending_queries: dict[str, int] = field(default_factory=dict)
    """Questions without an answer yet, and whom."""
    asked_at: dict[int, float] = field(default_factory=dict)
    """When each node was last asked."""
    query_counts: Counter[int] = field(default_factory=Counter)
    """How often, since it was last heard of."""
    rejected_nodes: dict[int, InputError | TrainingError] = field(default_factory=dict)
    """Nodes that could not say who they are, and why; a run that has its clients does without them."""
    is_complete: bool = False
    """Whether the run has its clients, and no new ones are taken in."""
    last_discovery: float = float("-inf")

    def __post_init__(self) -> None:
        self.mailbox = Mailbox(self.grid, self.tell)

    def wait_for_clients(self, clients: int, patience: float) -> None:
        """Wait until so many clients have said who they are."""
        end = time.monotonic() + patience
        notice = Notice(self.tell)
        for _ in self.poll():
            self.discover_nodes()
            if len(self.node_ids) >= clients:
                return
            if self.rejected_nodes:
                end = min(end, time.monotonic() + GRACE_PERIOD)
            here = ", ".join(self.node_ids) or "none"
            if time.monotonic() > end and self.rejected_nodes:
                raise next(iter(self.rejected_nodes.values()))
            if time.monotonic() > end:
                raise InputError(
                    f"{clients} clients are wanted and {len(self.node_ids)} came ({here}); start their nodes"
                )
            notice.give(f"waiting for {clients} clients, of whom {len(self.node_ids)} came ({here})")

    def poll(self) -> Iterator[None]:
        """Once for each look, with a pause between two of them."""
        begun = time.monotonic()
        while True:
            if self.stop_requested.is_set():
                raise KeyboardInterrupt
            yield
            time.sleep(POLL_INTERVAL * min(MOST_INTERVALS, max(1.0, time.monotonic() - begun)))

    def discover_nodes(self) -> None:
        """Ask nodes that are new who they are; one that is gone is no client's any more."""
        for reply in self.mailbox.fetch([*self.pending_queries]):
            node = self.pending_queries.pop(get_message_id(reply))
            if is_lost(reply):
                self.asked_at.pop(node, None)  # if it is back, it is asked again
                continue
            note, _ = parse_reply(reply)
            self.described_nodes.add(node)
            if "error" in note or not is_client_description(note):
                text = note if "error" in note else {"error": "", "text": "its answer is none of fedco2's; update it"}
                self.rejected_nodes[node] = build_client_error(f"node {node}", text)
                continue
            if (error := self._find_contradiction(note, node)) is not None:
                self.rejected_nodes[node] = error
                self.tell(str(error))
                continue
            self.node_ids[note["client"]] = node
            self.descriptions[note["client"]] = note
        now = time.monotonic()
        if now - self.last_discovery < DISCOVERY_INTERVAL:
            return
        self.last_discovery = now
        online = self.mailbox.list_nodes()
        for node in (self.described_nodes | set(self.asked_at)) - online:
            self.forget_node(node)
        new = [
            node
            for node in sorted(online - self.described_nodes)
            if now - self.asked_at.get(node, float("-inf")) > QUERY_INTERVAL and self.query_counts[node] < MAX_QUERIES
        ]
        for number, node in zip(self.send_queries(new), new, strict=True):
            self.asked_at[node] = now
            self.query_counts[node] += 1
            if number:
                self.pending_queries[number] = node

    def _find_contradiction(self, note: NodeDescription, node: int) -> InputError | None:
        """What is wrong with who a node says it is, in view of what is known already."""
        client, known = note["client"], self.descriptions.get(note["client"])
        if known is None and self.is_complete:
            return InputError(f"client {client} came when the run had begun; it can take part in the next one")
        if known is not None and get_fingerprint(known) != get_fingerprint(note):
            return InputError(
                f"client {client}: node {node} has other data than {client} had before; "
                "give it the same data, or another name"
            )
        return None

    def send_queries(self, nodes: list[int]) -> list[str]:
        """Ask these nodes who they are."""
        return self.mailbox.send("query", [(build_record(self.node_query, {}), node) for node in nodes])

    def forget_node(self, node: int) -> None:
        """It went away; if it is back it is asked again who it is."""
        self.described_nodes.discard(node)
        self.rejected_nodes.pop(node, None)
        self.asked_at.pop(node, None)
        self.query_counts.pop(node, None)
        self.node_ids = {client: at for client, at in self.node_ids.items() if at != node}


def get_fingerprint(description: NodeDescription) -> object:
    """Of a client's data, as far as it has said."""
    return next((one.get("sha256") for one in description["data"].get("clients", ())), None)


class Notice:
    """A word on what is waited for, now and then."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell = tell
        self.begun = self.last = time.monotonic()

    def give(self, what: str) -> None:
        """Say it, if the last time is long enough ago."""
        now = time.monotonic()
        if now - self.last >= NOTICE_INTERVAL:
            self.last = now
            self.tell(f"{what}: {now - self.begun:.0f} s")


def format_names(names: list[str]) -> str:
    """All names, or the first ones."""
    rest = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + f" and {rest} more" * (rest > 0)
